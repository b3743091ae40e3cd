"""Chosen models with their fallbacks, and the clients of a process, one for each endpoint.

Fallbacks come from `fallback_providers` and `auxiliary.<task>.fallback_chain`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from hermes_agent.contracts.model_client import (
    NO_OPTIONS,
    ModelAnswer,
    ModelClient,
    ModelDelta,
    ModelRequest,
    RequestOptions,
)
from hermes_agent.core.errors import ModelError, UserError
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.messages import Message
from hermes_agent.models.providers import ModelEndpoint

if TYPE_CHECKING:
    from hermes_agent.models.selection import ModelSelection


logger = logging.getLogger(__name__)

_OURS = "hermes_agent.models."
"""Where the clients are that never change the messages of a request."""
PROBE_PAUSE_S = 60.0
"""Pause after a failed probe."""
FLAPPING_S = 600.0
"""A failure so soon after a recovery doubles the pause."""
LONGEST_PAUSE_S = 3600.0
PROBE = "Answer with the one word: ok"
PROBE_TOKENS = 16
PROBE_LIMIT_S = 60.0
PROBE_CAUSE = "probe"
"""The cause under which a probe is recorded."""

RecordAnswer = Callable[[ModelAnswer, str, float], None]
"""Records an answer outside of turns: the answer, its cause, and seconds."""


class EndpointHealth:
    """Whether an endpoint with its key is paused after a failure; one object for the life of the process.

    After the pause a probe decides whether it is asked again; meanwhile its fallbacks answer.

    Args:
        probe: asks the endpoint, and raises ModelError if it fails; None: it is asked again after the pause.
    """

    def __init__(self, probe: Callable[[], Awaitable[None]] | None = None) -> None:
        self._until = 0.0
        self._is_failing = False
        self._failures = 0
        self._recovered_at = 0.0
        self._probe = probe
        self._probing: asyncio.Task[None] | None = None
        self.refused: dict[str, str] = {}
        """Options of requests that the provider refused, with half a sentence on why."""
        self.why = ""
        """Its last error, as a sentence."""

    @property
    def is_paused(self) -> bool:
        """Whether fallbacks are asked first."""
        return time.monotonic() < self._until or (self._is_failing and self._probe is not None)

    @property
    def left_s(self) -> float:
        """Remaining seconds of the pause."""
        return max(0.0, self._until - time.monotonic())

    def pause(self, seconds: float, why: str = "") -> None:
        """Pause for some seconds; `why` is a sentence. A provider that fails again soon pauses longer."""
        now = time.monotonic()
        is_again = self._failures and not self._is_failing and now - self._recovered_at < FLAPPING_S
        self._failures = self._failures + 1 if is_again else max(1, self._failures * self._is_failing)
        self.why, self._is_failing = why, True
        self._until = max(self._until, now + min(LONGEST_PAUSE_S, seconds * 2 ** (self._failures - 1)))

    def recover(self) -> None:
        """End the pause: the endpoint answers."""
        if self._is_failing:
            self._is_failing, self._until, self._recovered_at = False, 0.0, time.monotonic()

    def probe_if_due(self) -> None:
        """Start a probe in the background if the pause is over; call it on the core loop."""
        is_due = self._is_failing and self._probe is not None and not self.left_s
        if is_due and (self._probing is None or self._probing.done()):
            self._probing = asyncio.get_running_loop().create_task(self._run_probe())

    def stop(self) -> None:
        """Cancel a probe."""
        if self._probing is not None:
            self._probing.cancel()

    async def _run_probe(self) -> None:
        assert self._probe is not None
        try:
            await self._probe()
        except ModelError as exc:
            self.pause(PROBE_PAUSE_S, exc.message)
            logger.info("model probe failed: %s", exc)
        else:
            self.recover()
            logger.info("model probe answered: it is asked again")


@lazy_dataclass(frozen=True, slots=True)
class ChosenModel:
    """A model with its client and its fallbacks."""

    client: ModelClient
    name: str
    max_tokens: int | None = None
    """Longest answer; None leaves it to the provider."""
    context_length: int = 0
    """Context window in tokens; 0 if it is unknown, or if the client shortens a conversation by itself."""
    reasoning_effort: str = ""
    """Reasoning effort in a turn, in the provider's words; "" leaves it to the provider."""
    options: RequestOptions = NO_OPTIONS
    """Options of the session (`/model NAME key=value`)."""
    credential: str = ""
    """Name of its key: a variable or a login; "" if there is none."""
    health: EndpointHealth = field(default_factory=EndpointHealth, compare=False)
    fallbacks: Callable[[], Sequence[ChosenModel]] = field(default=tuple, compare=False)
    """Returns the fallbacks: the same model with further keys, then `fallback_providers`."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Send a request and yield the answer (`ModelClient.stream`).

        The client of a plugin gets a list of messages of its own, since the next request continues this one's.
        """
        if not type(self.client).__module__.startswith(_OURS):
            request = replace(request, messages=[*request.messages])
        return self.client.stream(request)


class ClientPool:
    """One client for each endpoint, for the life of the process: a change of model keeps connections.

    Args:
        record: records the answers of probes; None: a failed endpoint is not probed.
    """

    def __init__(self, record: RecordAnswer | None = None) -> None:
        self._record = record
        self._clients: dict[ModelEndpoint, ModelClient] = {}
        self._health: dict[tuple[ModelEndpoint, str], EndpointHealth] = {}

    def client(self, selection: ModelSelection) -> ModelClient:
        """Return the client of the selection's endpoint."""
        known = self._clients.get(selection.endpoint)
        if known is None:
            known = self._clients[selection.endpoint] = selection.new_client()
        return known

    def make_chosen(
        self,
        selection: ModelSelection,
        fallbacks: Callable[[], Sequence[ModelSelection]] = tuple,
        context_length: Callable[[ModelSelection], int] = lambda _: 0,
    ) -> ChosenModel:
        """Return the selection with its client and its fallbacks.

        Args:
            fallbacks: called when no key of the selection works.
            context_length: returns the context window of a model in tokens.
        """

        def others() -> list[ChosenModel]:
            asked = (selection.endpoint, selection.model)
            found = (*selection.with_other_keys, *fallbacks())
            return [make(each) for each in found if (each.endpoint, each.model) != asked]

        def make(each: ModelSelection, others: Callable[[], Sequence[ChosenModel]] = tuple) -> ChosenModel:
            client, key = self.client(each), (each.endpoint, each.model)
            health = self._health.get(key)
            if health is None:
                probe = None if self._record is None else partial(self._probe, client, each.model)
                health = self._health[key] = EndpointHealth(probe)
            length, credential = context_length(each), each.endpoint.key_name
            return ChosenModel(
                client,
                each.model,
                each.max_tokens,
                length,
                each.reasoning_effort,
                credential=credential,
                health=health,
                fallbacks=others,
            )

        return make(selection, others)

    async def _probe(self, client: ModelClient, model: str) -> None:
        """Send the smallest request. Raises ModelError if it is not answered."""
        assert self._record is not None
        request = ModelRequest(model, [Message("user", PROBE)], max_tokens=PROBE_TOKENS)
        began = time.monotonic()
        try:
            async with asyncio.timeout(PROBE_LIMIT_S), aclosing(client.stream(request)) as items:
                async for item in items:
                    if isinstance(item, ModelAnswer):
                        self._record(item, PROBE_CAUSE, time.monotonic() - began)
        except TimeoutError:
            raise ModelError("unreachable", f"{client.provider} did not answer within {PROBE_LIMIT_S:g} s.") from None
        except ModelError as exc:
            if exc.kind not in ("refused", "empty"):  # these answer, though not to this request
                raise

    async def aclose(self) -> None:
        """Close every client, and cancel the probes."""
        for health in self._health.values():
            health.stop()
        while self._clients:
            _, client = self._clients.popitem()
            await client.aclose()


def fallback_selections(chain: Any, select: Callable[[Mapping[str, Any]], ModelSelection]) -> list[ModelSelection]:
    """Return the fallbacks in order; an entry that cannot be used is skipped with a warning.

    Args:
        chain: names of providers, or mappings with `provider`, `model`, `base_url`, `api_key`, `key_env`.
        select: selects by a block in the form of `model` in the config.
    """
    found: list[ModelSelection] = []
    for entry in chain if isinstance(chain, Iterable) and not isinstance(chain, str | Mapping) else ():
        given: Mapping[str, Any] = entry if isinstance(entry, Mapping) else {"provider": entry}
        block = {**given, "default": given.get("model") or given.get("default") or ""}
        try:
            found.append(select(block))
        except UserError as exc:
            logger.warning("fallback skipped: %s: %s", given.get("provider") or "without a provider", exc)
    return found
