"""Retries and fallbacks of a model request.

| failure | next |
| --- | --- |
| the key, the account or the model is not accepted | the next key or provider |
| too many requests | the next key or provider; without one a wait of the length that the provider asks for |
| unreachable, a fault of the provider, cut off, empty | waits that double, `api_max_retries` times; then the next |
| the conversation is too long, the request is rejected | the end: no other provider would answer it |

An endpoint that failed is paused for a while, also for other conversations.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal
from urllib.parse import urlsplit

from hermes_agent.contracts.model_client import ModelRequest
from hermes_agent.core.backoff import Backoff
from hermes_agent.core.errors import ModelError
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.messages import Message
from hermes_agent.models.client_pool import ChosenModel

logger = logging.getLogger(__name__)

CONTINUE_PROMPT = (
    "[The connection broke in the middle of your answer. The person has read all of it up to here. Go on exactly"
    " where it ends; repeat nothing and do not mention this.]"
)
MAX_OVERLAP = 160
"""Characters that are held back until it is known whether they repeat what was said."""
SHORTEST_OVERLAP = 8


def continuation_messages(messages: Sequence[Message], said: str) -> list[Message]:
    """Return the messages of a request that continues after the text `said`."""
    return [*messages, Message("assistant", said), Message("user", CONTINUE_PROMPT)] if said.strip() else list(messages)


class Continuation:
    """Filter for a continued answer: removes the beginning that repeats `said`, the text so far."""

    def __init__(self, said: str) -> None:
        self._said = said
        self._held = ""
        self._open = not said.strip()

    def feed(self, text: str) -> str:
        """Return the new part of `text` and of the pieces that were held back."""
        if self._open:
            return text
        self._held += text
        if len(self._held) < MAX_OVERLAP or self._said.startswith(self._held):
            return ""
        return self.flush()

    def flush(self) -> str:
        """Return the pieces that were held back, at the end of the answer."""
        held, self._held, self._open = self._held, "", True
        return _without_overlap(self._said, held)


def _without_overlap(said: str, text: str) -> str:
    if text.startswith(said):
        return text[len(said) :]
    if said.startswith(text):
        return ""
    for length in range(min(len(said), len(text)), SHORTEST_OVERLAP - 1, -1):
        if said.endswith(text[:length]):
            return text[length:]
    return text


BACKOFF = Backoff(0.5, 30.0, jitter=0.2)
"""Delay before a retry if the provider asks for none."""
LONGEST_WAIT_S = 120.0
"""Longest wait in seconds; a provider that asks for more is skipped."""
NOTICE_S = 2.0
"""Seconds from which a wait is shown to the user."""
PAUSE_S = {
    "payment": 3600.0,
    "auth": 300.0,
    "no_key": 60.0,
    "rate_limit": 60.0,
    "unreachable": 60.0,
    "overloaded": 60.0,
}
LASTING_KINDS = ("auth", "no_key", "payment", "unknown_model")
PASSING_KINDS = ("unreachable", "overloaded", "cut_off", "empty")


@lazy_dataclass(frozen=True, slots=True)
class RetryNotice:
    """A notice that the request is repeated, or that it waits for its model."""

    why: str
    """A sentence for the user, or "" for none."""
    log: str = ""
    """The log line, or "" if the log has one already."""
    level: Literal["info", "warning"] = "warning"


def _change(old: ChosenModel, new: ChosenModel) -> str:
    """Return a sentence on the change from one model to the next: another credential, or another model."""
    provider, other = old.client.provider, new.client.provider
    same_place = (provider, old.client.base_url) == (other, new.client.base_url)
    if same_place and old.name == new.name:
        credentials = f"from {old.credential or 'none'} to {new.credential or 'none'}"
        return f"Credential rotated: {credentials} of {provider}; the model stays {_model(new)}."
    if provider == other and not same_place:
        provider, other = (f"{one.client.provider} ({urlsplit(one.client.base_url).hostname})" for one in (old, new))
    return f"Fallback: from model {_model(old)} of {provider} to model {_model(new)} of {other}."


def _model(chosen: ChosenModel) -> str:
    return chosen.name or "(the first of its list)"


class RequestAttempts:
    """Attempts at one model request, until it has an answer.

    Args:
        chosen: the model; one of its fallbacks if it is paused.
        retries: number of retries for each model.
        refusal: returns why a fallback may not be used, or "".
    """

    def __init__(self, chosen: ChosenModel, retries: int, refusal: Callable[[ChosenModel], str] = lambda _: "") -> None:
        self.retries = retries
        self.count = 0
        """Number of failures."""
        self._left = retries
        self.refusal = refusal
        self._waits = 0
        self.first = self.chosen = chosen
        self._others: list[ChosenModel] | None = None
        if chosen.health.is_paused and (other := self._next()) is not None:
            self.chosen = other
            chosen.health.probe_if_due()

    def start_notice(self) -> str:
        """Return the notice before the first request that a fallback is used, or ""."""
        if self.chosen is self.first:
            return ""
        left_s = self.first.health.left_s
        left = f" It is not asked for {left_s:.0f} seconds more." if left_s else " It is being tried in the background."
        return f"{self.first.health.why}{left} {_change(self.first, self.chosen)}".strip()

    def request(self, asked: ModelRequest) -> ModelRequest:
        """Return the request for the current model; `asked` was made for the first."""
        if self.chosen is self.first:
            return asked
        limit = asked.options.smaller_limit(self.chosen.max_tokens)
        return replace(asked, model=self.chosen.name, max_tokens=limit)

    def record_failure(self, error: ModelError) -> float | None:
        """Record a failure. Return the seconds after which `chosen` is requested, or None for the end."""
        self.count += 1
        kind, health = error.kind, self.chosen.health
        if kind in LASTING_KINDS or kind == "rate_limit":
            other = self._next()
            if kind in PAUSE_S:
                health.pause(max(PAUSE_S[kind], error.retry_after_s or 0.0), error.message)
            if other is not None:
                return self._switch(other)
            return self._wait(error) if kind == "rate_limit" else None
        if kind not in PASSING_KINDS:
            return None
        wait_s = self._wait(error)
        if wait_s is None and (other := self._next()) is not None:
            health.pause(PAUSE_S.get(kind, 0.0), error.message)
            return self._switch(other)
        return wait_s

    def retry_notice(self, error: ModelError, wait_s: float, before: ChosenModel) -> RetryNotice:
        """Return the notice after a failure; `before` is the model that failed."""
        if self.chosen is not before:
            why = f"{error.message} {_change(before, self.chosen)}"
            return RetryNotice(why, why)
        again = f"{error.message} Asking again in {wait_s:.0f} seconds."
        asked = f"model {_model(before)} of {before.client.provider}"
        return RetryNotice(
            again if wait_s >= NOTICE_S else "",
            f"{error.message} Retry {self.count} of {asked} in {wait_s:.1f} seconds.",
        )

    def _wait(self, error: ModelError) -> float | None:
        """Return the seconds before the same model is requested again, or None if it is not."""
        asked_s = error.retry_after_s
        if not self._left or (asked_s or 0.0) > LONGEST_WAIT_S:
            return None
        self._left -= 1
        self._waits += 1
        return asked_s if asked_s is not None else BACKOFF.after(self._waits)

    def _switch(self, other: ChosenModel) -> float:
        self.chosen, self._left, self._waits = other, self.retries, 0
        return 0.0

    def _next(self) -> ChosenModel | None:
        if self._others is None:
            self._others = list(self.first.fallbacks())
        while self._others:
            other = self._others.pop(0)
            if other.health.is_paused:
                other.health.probe_if_due()
                continue
            if why := self.refusal(other):
                logger.warning("fallback skipped: %s of %s: %s", other.name, other.client.provider, why)
                continue
            return other
        return None
