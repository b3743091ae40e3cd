"""A stored session once more, offline: its turns are run again over what the journal has, and each request is compared.

The model's answers and the results of tools are those of the transcript; no model is asked and no tool runs. What is
compared is the digest of each request's bytes, as it was before plugins added to it or changed it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hermes_agent.agent.agent import Agent
from hermes_agent.agent.prompt import Prompts
from hermes_agent.agent.recording import RequestDigest, digest_of_tools
from hermes_agent.agent.settings import Settings
from hermes_agent.core.errors import ModelError
from hermes_agent.core.messages import Message, Usage
from hermes_agent.hooks import HookBus
from hermes_agent.io.bridge import Bridge
from hermes_agent.models.chosen import ChosenModel
from hermes_agent.models.request import ModelAnswer, ModelDelta, ModelRequest, RequestOptions
from hermes_agent.policy import NobodyThere
from hermes_agent.sessions import StoredTurn, Transcript
from hermes_agent.tools import Dispatcher, ToolRegistry
from hermes_agent.tools.results import ResultStore
from hermes_agent.tools.toolsets import Toolsets

__all__ = ["Replayed", "replay"]

NO_LIMIT = 1_000_000


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of one turn."""

    turn_id: str
    requests: int
    """Those that were sent then."""
    differing: tuple[int, ...] = ()
    """Which of them are not the same now, from 1."""
    problem: str = ""
    """Why it could not be compared."""


async def replay(transcript: Transcript, session_id: str) -> list[Replayed]:
    """Run the turns of a session again and return what became of each, in their order."""
    prompt = transcript.system_prompt(session_id) or ""
    return [await _replayed(transcript, turn, prompt) for turn in transcript.turns(session_id)]


async def _replayed(transcript: Transcript, turn: StoredTurn, prompt: str) -> Replayed:
    sent = turn.requests
    before = transcript.history_before(turn)
    if before is None:
        return Replayed(turn.id, len(sent), problem="what stood before it is there in a shorter form alone")
    said = transcript.messages(turn.session_id, after=turn.before, upto=turn.upto)
    first = next((i for i, m in enumerate(said) if m.role == "assistant"), len(said))
    if not first:
        return Replayed(turn.id, len(sent), problem="nobody said anything in it")
    client = _Client(said[first:])
    bridge = Bridge()
    agent = _agent(client, turn, bridge)
    try:
        talk = await agent.open(turn.session_id, platform="replay", approver=NobodyThere("in a replay"), keep=False)
        talk.system_prompt, talk.history = prompt, before
        client.push = lambda text: agent.inboxes.push(text, turn.session_id)
        for message in said[: first - 1]:
            client.push(message.text)
        known = dict(enumerate(m.text for m in said if m.role == "tool"))
        try:
            async for _ in talk.turn(said[first - 1].content, known=known):
                continue
        except ModelError:  # the answers are used up: the turn failed then, too, or was cut off
            pass
    finally:
        await agent.aclose()
        bridge.close()
    now = client.digests
    differing = tuple(r.number for i, r in enumerate(sent) if i >= len(now) or now[i] != r.digest)
    return Replayed(turn.id, len(sent), differing)


def _agent(client: _Client, turn: StoredTurn, bridge: Bridge) -> Agent:
    """Return an agent that shows the tools of then and has the answers of then."""
    tools, hooks = ToolRegistry(), HookBus(bridge.wait_plugin)
    for definition in turn.definitions:
        function = definition["function"]
        tools.register(function["name"], "replay", function, _not_run)
    last_without = bool(turn.definitions) and not turn.requests[-1].tools
    return Agent(
        settings=Settings(
            max_turns=len(turn.requests) - 1 if last_without else NO_LIMIT, notice_after=0, end_after=0, cwd=Path("/")
        ),
        choose_model=lambda wish: ChosenModel(client, turn.model),
        tools=tools,
        toolsets=Toolsets(tools),
        prompts=Prompts(tools),
        dispatcher=Dispatcher(tools, hooks, bridge, ResultStore(Path("/nonexistent"))),
        hooks=hooks,
        bridge=bridge,
        open_transcript=_Nowhere,  # type: ignore[arg-type]  # nothing of a replay is stored
    )


def _not_run(args: dict[str, Any], **kwargs: Any) -> str:
    return "a replay runs no tool"


class _Nowhere:
    """Stores nothing."""

    def write(self, steps: Sequence[Any]) -> list[None]:
        return [None] * len(steps)

    def close(self) -> None: ...


@dataclass(slots=True)
class _Client:
    """Gives the answers of then. `said`: the turn from its first answer on."""

    said: Sequence[Message]
    digests: list[str] = field(default_factory=list)
    push: Any = None
    """Says something into the session."""
    provider: str = "replay"
    base_url: str = ""
    api_mode: str = "chat_completions"
    url: str = ""
    fits_within: int = 0
    _at: int = 0
    _digest: RequestDigest = field(default_factory=RequestDigest)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        """Keep the digest of the request, and give the next answer."""
        head = (request.model, request.messages[0].text, digest_of_tools(request.tools)[0])
        self.digests.append(self._digest.of(head, request.messages[1:]))
        if self._at >= len(self.said):
            raise ModelError("refused", "there is no further answer in the transcript")
        answer = self.said[self._at]
        self._at += 1
        while self._at < len(self.said) and self.said[self._at].role != "assistant":
            if self.said[self._at].role == "user":  # said while the turn ran
                self.push(self.said[self._at].text)
            self._at += 1
        yield ModelAnswer(answer, "tool_calls" if answer.tool_calls else "stop", Usage(), request.model)

    def is_priced(self, model: str) -> bool:
        """Nobody is asked."""
        return True

    def unsupported(self, model: str, options: RequestOptions) -> tuple[str, str] | None:
        """Nothing is sent."""
        return None

    def warm_up(self) -> None:
        """Nothing is imported."""

    async def aclose(self) -> None:
        """Nothing is open."""
