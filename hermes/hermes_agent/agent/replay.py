"""Replay of a stored session: its turns run again offline, and its requests are compared.

The answers of the model, the results of tools and the compacted histories come from the store; no model is called and
no tool runs. The comparison uses the digest of each request that was sent. A request that a plugin changed is compared
in its form before that change, and reported as changed.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.agent.agent import Agent
from hermes_agent.agent.context_engines import ContextEngines
from hermes_agent.agent.settings import AgentSettings
from hermes_agent.agent.system_prompt import SystemPromptBuilder
from hermes_agent.agent.transcript_writer import RequestDigest, digest_tools
from hermes_agent.contracts.model_client import ModelAnswer, ModelDelta, ModelRequest, RequestOptions
from hermes_agent.core.errors import ModelError
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.core.messages import Message, Usage, fold
from hermes_agent.hooks import HookBus
from hermes_agent.models.client_pool import ChosenModel
from hermes_agent.policy import NoApprover
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.sessions import StoredTurn, Transcript
from hermes_agent.tools import Dispatcher, ToolRegistry
from hermes_agent.tools.results import ResultStore
from hermes_agent.tools.toolsets import Toolsets

if TYPE_CHECKING:
    from hermes_agent.agent.compaction import SessionCompaction
    from hermes_agent.agent.turn_context import TurnContext


NO_LIMIT = 1_000_000


@lazy_dataclass(frozen=True, slots=True)
class ReplayResult:
    """The comparison of one turn."""

    turn_id: str
    requests: int
    """Number of requests that were sent."""
    differing: tuple[int, ...] = ()
    """Numbers, from 1, of the requests that differ in the replay."""
    changed: tuple[tuple[int, tuple[str, ...]], ...] = ()
    """Numbers of the requests that plugins changed before they were sent, with the plugins; otherwise equal."""
    unknown: tuple[int, ...] = ()
    """Numbers of the requests without a record of what was sent; equal as the agent made them."""
    problem: str = ""
    """Why the turn could not be compared, or ""."""

    def __str__(self) -> str:
        if self.problem:
            return self.problem
        by_plugins: dict[tuple[str, ...], list[int]] = {}
        for number, plugins in self.changed:
            by_plugins.setdefault(plugins, []).append(number)
        parts = [f"not the same: request {_join_numbers(self.differing)}"] if self.differing else []
        parts += [
            f"changed by plugin {', '.join(plugins)}: request {_join_numbers(numbers)}"
            for plugins, numbers in by_plugins.items()
        ]
        if self.unknown:
            parts.append(f"the same but for what plugins may have changed: request {_join_numbers(self.unknown)}")
        return "; ".join(parts) or "the same"


def _join_numbers(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


async def replay_session(transcript: Transcript, session_id: str) -> list[ReplayResult]:
    """Run the turns of a session again, and return a comparison for each."""
    prompt = transcript.system_prompt(session_id) or ""
    return [await _replay_turn(transcript, turn, prompt) for turn in transcript.turns(session_id)]


NOT_STORED = "the history before it is stored in a compacted form only"


async def _replay_turn(transcript: Transcript, turn: StoredTurn, prompt: str) -> ReplayResult:
    before, compactions = transcript.history_before(turn), _load_compactions(transcript, turn)
    if before is None or compactions is None:
        return ReplayResult(turn.id, len(turn.requests), problem=NOT_STORED)
    messages = transcript.messages(turn.session_id, after=turn.before, upto=turn.upto)
    first = next((i for i, m in enumerate(messages) if m.role == "assistant"), len(messages))
    if messages and messages[0].role == "tool":
        return ReplayResult(turn.id, len(turn.requests), problem="it continues with results of a caller's tools")
    if not first:
        return ReplayResult(turn.id, len(turn.requests), problem="it has no user message")
    client = _RecordedClient(messages[first:], turn, compactions)
    bridge = Bridge()
    agent = _make_agent(client, turn, bridge)
    try:
        conversation = await agent.open(
            turn.session_id, platform="replay", approver=NoApprover("in a replay"), keep=False
        )
        conversation.system_prompt, conversation.history = prompt, before
        client.conversation = conversation
        for message in messages[: first - 1]:
            client.push(message.text)
        known = dict(enumerate(m.text for m in messages if m.role == "tool"))
        # no answer is left where the stored turn failed or was interrupted
        with contextlib.suppress(ModelError):
            await fold(conversation.turn(messages[first - 1].content, known=known))
    finally:
        await agent.aclose()
        bridge.close()
    return _compare(turn, client)


def _load_compactions(transcript: Transcript, turn: StoredTurn) -> dict[int, list[Message]] | None:
    """Return the compacted histories by number of the request that was first sent after each.

    None if one is not stored any more.
    """
    found: dict[int, list[Message]] = {}
    number = turn.compaction
    for request in turn.requests:
        note = turn.sent.get(request.number)
        if note is None or note.compaction == number:
            continue
        number, shorter = note.compaction, transcript.compaction(note.compaction)
        if shorter is None:
            return None
        found[request.number] = shorter
    return found


def _compare(turn: StoredTurn, client: _RecordedClient) -> ReplayResult:
    differing, changed, unknown = [], [], []
    for then, now in itertools.zip_longest(turn.requests, client.requests[: len(turn.requests)]):
        note = turn.sent.get(then.number)
        if now is None or now.digest != then.digest:
            differing.append(then.number)
        elif note is None:
            unknown.append(then.number)
        elif note.plugins:
            changed.append((then.number, note.plugins))
        elif now.sent != note.digest:
            differing.append(then.number)
    return ReplayResult(turn.id, len(turn.requests), tuple(differing), tuple(changed), tuple(unknown))


def _make_agent(client: _RecordedClient, turn: StoredTurn, bridge: Bridge) -> Agent:
    """Return an agent with the stored tools and the stored answers."""
    tools, hooks = ToolRegistry(), HookBus(bridge.wait_plugin)
    for definition in turn.definitions:
        function = definition["function"]
        tools.register(function["name"], "replay", function, _not_run)
    last_without = bool(turn.definitions) and not turn.requests[-1].tools
    return Agent(
        settings=AgentSettings(
            max_turns=turn.answer_count - 1 if last_without else NO_LIMIT, notice_after=0, end_after=0, cwd=Path("/")
        ),
        choose_model=lambda requested: ChosenModel(client, turn.model),
        tools=tools,
        toolsets=Toolsets(tools),
        prompt_builder=SystemPromptBuilder(tools),
        dispatcher=Dispatcher(tools, hooks, bridge, ResultStore(Path("/nonexistent"))),
        hooks=hooks,
        bridge=bridge,
        open_transcript=_NullTranscript,  # type: ignore[arg-type]  # nothing of a replay is stored
        context_engines=_RecordedEngines(client),
    )


def _not_run(args: dict[str, Any], **kwargs: Any) -> str:
    return "a replay runs no tool"


class _NullTranscript:
    """Stores nothing."""

    def write(self, steps: Sequence[Any]) -> list[None]:
        return [None] * len(steps)

    def close(self) -> None: ...


class _RecordedEngines(ContextEngines):
    """Shortens the history where the recorded turn did."""

    def __init__(self, client: _RecordedClient) -> None:
        super().__init__()
        self._client = client

    async def for_session(self, context: TurnContext) -> SessionCompaction:
        """Return the compaction, after the history has the form that it had at the next request."""
        self._client.restore_history()
        return await super().for_session(context)


class _ReplayedRequest(LazyNamedTuple):
    """A request of the replay."""

    digest: str
    """As in `RequestRecord`."""
    sent: str
    """As in `SentRecord`, for the model that was used."""


@lazy_dataclass(slots=True)
class _RecordedClient:
    """A model client that returns the stored answers. `recorded`: the turn from its first answer on."""

    recorded: Sequence[Message]
    turn: StoredTurn
    compactions: Mapping[int, list[Message]]
    requests: list[_ReplayedRequest] = field(default_factory=list)
    conversation: Any = None
    """The conversation of the replay."""
    provider: str = "replay"
    base_url: str = ""
    api_mode: str = "chat_completions"
    url: str = ""
    fits_within: int = 0
    _at: int = 0
    _digest: RequestDigest = field(default_factory=RequestDigest)

    def push(self, text: str) -> None:
        """Add an injected message to the session."""
        self.conversation.services.injected.push(text, self.conversation.session_id)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Record the digest of the request, and yield the next answer."""
        self._record(request, request.messages[1:])
        while self._was_repeated():  # it was too long, or a crash interrupted it
            self.restore_history()
            self._record(request, self.conversation.accepted_history())
        if self._at >= len(self.recorded):
            raise ModelError("refused", "there is no further answer in the transcript")
        answer = self.recorded[self._at]
        self._at += 1
        while self._at < len(self.recorded) and self.recorded[self._at].role != "assistant":
            if self.recorded[self._at].role == "user":  # it came during the turn
                self.push(self.recorded[self._at].text)
            self._at += 1
        yield ModelAnswer(answer, "tool_calls" if answer.tool_calls else "stop", Usage(), request.model)

    def restore_history(self) -> None:
        """Give the history the compacted form that it had at the next request, if that form differs."""
        if self.compactions and len(self.requests) < len(self.turn.requests):
            shorter = self.compactions.get(self.turn.requests[len(self.requests)].number)
            if shorter is not None:
                self.conversation.history = list(shorter)

    def _was_repeated(self) -> bool:
        count = len(self.requests)
        note = self.turn.sent.get(self.turn.requests[count - 1].number) if count < len(self.turn.requests) else None
        return note is not None and not note.answered

    def _record(self, request: ModelRequest, messages: Sequence[Message]) -> None:
        count = len(self.requests)
        note = self.turn.sent.get(self.turn.requests[count].number) if count < len(self.turn.requests) else None
        rest = (request.messages[0].text, digest_tools(request.tools)[0])
        digest = self._digest.digest([request.model, *rest], messages)
        other = note.model if note is not None else ""  # a fallback
        sent = digest if other in ("", request.model) else self._digest.digest([other, *rest], messages)
        self.requests.append(_ReplayedRequest(digest, sent))

    def is_priced(self, model: str) -> bool:
        """Return True: a replay costs nothing."""
        return True

    def unsupported(self, model: str, options: RequestOptions) -> tuple[str, str] | None:
        """Return None: a replay sends no option."""
        return None

    def warm_up(self) -> None:
        """Do nothing: a replay needs no import."""

    async def aclose(self) -> None:
        """Do nothing: a replay has no connection."""
