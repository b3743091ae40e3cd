"""What follows a failed request: the same again after a wait, somebody else, or the end.

| failure | what follows |
| --- | --- |
| the key, the account or the model is not accepted | the next key or provider |
| too many requests | the next key or provider; without one a wait, as long as the provider says |
| unreachable, a fault of the provider, cut off, empty | waits that double, `api_max_retries` times; then the next |
| the conversation is too long, the request is refused | the end: nobody would answer it otherwise |

Who failed is asked last for a while, also by other conversations.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from hermes_agent.contracts.model_client import ModelRequest, RequestOptions
from hermes_agent.core.backoff import Backoff
from hermes_agent.core.errors import ModelError
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
    """Return the messages of a request that goes on after `said`."""
    return [*messages, Message("assistant", said), Message("user", CONTINUE_PROMPT)] if said.strip() else list(messages)


class Continuation:
    """Takes a continuation piece by piece. `said`: what the reader has; empty lets everything through."""

    def __init__(self, said: str) -> None:
        self._said = said
        self._held = ""
        self._open = not said.strip()

    def feed(self, text: str) -> str:
        """Return what of `text`, and of what was held back, the reader has not seen."""
        if self._open:
            return text
        self._held += text
        if len(self._held) < MAX_OVERLAP or self._said.startswith(self._held):
            return ""
        return self.flush()

    def flush(self) -> str:
        """Return what is held back, at the end."""
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
"""Before a repetition, where the provider names no time."""
LONGEST_WAIT_S = 120.0
"""A provider that asks for more is not waited for."""
NOTICE_S = 2.0
"""A shorter wait is not worth a sentence to the person."""
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


def find_unsupported_option(chosen: ChosenModel, options: RequestOptions) -> tuple[str, str] | None:
    """Return the option that a model cannot be asked with, and why; None when there is none."""
    return chosen.client.unsupported(chosen.name, options) if options.values() else None


@dataclass(frozen=True, slots=True)
class RetryNotice:
    """The request is made again."""

    why: str
    """A sentence for the user; empty when it is not worth one."""
    log: str = ""
    """What the log says; empty: it has it already."""


def _change(old: ChosenModel, new: ChosenModel) -> str:
    """Return what changed from one that is asked to the next: the credential alone, or the model."""
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
    """One request, until it has an answer.

    Args:
        chosen: who is asked; who stands in for it when it rests.
        retries: repetitions at one of them.
        refusal: returns why a model may not stand in; empty when it may.
    """

    def __init__(self, chosen: ChosenModel, retries: int, refusal: Callable[[ChosenModel], str] = lambda _: "") -> None:
        self.retries = retries
        self.count = 0
        """Failures so far."""
        self._left = retries
        self._refusal = refusal
        self._waits = 0
        self.first = self.chosen = chosen
        self._others: list[ChosenModel] | None = None
        if chosen.health.is_paused and (other := self._next()) is not None:
            self.chosen = other

    def start_notice(self) -> str:
        """Return what to tell before the first request: who stands in for whom, and why; empty when nobody does."""
        if self.chosen is self.first:
            return ""
        left = f" It is not asked for {self.first.health.left_s:.0f} seconds more."
        return f"{self.first.health.why}{left} {_change(self.first, self.chosen)}".strip()

    def request(self, asked: ModelRequest) -> ModelRequest:
        """Return the request for who is asked now; what was made for the first names another model to the others."""
        if self.chosen is self.first:
            return asked
        limit = asked.options.smaller_limit(self.chosen.max_tokens)
        return replace(asked, model=self.chosen.name, max_tokens=limit)

    def record_failure(self, error: ModelError) -> float | None:
        """Take note of a failure, and say after how many seconds `chosen` is asked; None: nobody is."""
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
        """Return what to tell after `failed`. `before`: who had failed."""
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
        """Return the wait before the same one is asked again; None when it is not."""
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
                continue
            if why := self._refusal(other):
                logger.warning("%s of %s does not stand in: %s", other.name, other.client.provider, why)
                continue
            return other
        return None
