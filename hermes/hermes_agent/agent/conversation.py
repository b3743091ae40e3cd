"""Conversations: a session with its transcript, its model and the person who may be asked."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes_agent.agent.inbox import Inboxes
from hermes_agent.agent.interrupt import GRACE_S, Interrupt, Interrupted
from hermes_agent.agent.prompt import Prompt, Prompts
from hermes_agent.agent.turn import run_turn
from hermes_agent.agent.visits import Visits
from hermes_agent.core.events import Event
from hermes_agent.core.ids import new_session_id
from hermes_agent.core.messages import Content, Message, Usage
from hermes_agent.hooks import HookBus, HookResult
from hermes_agent.hooks.spill import Spill
from hermes_agent.io.bridge import Bridge, Lane
from hermes_agent.models.request import ModelClient
from hermes_agent.policy import Approvals, Approver, Told
from hermes_agent.sessions import Transcript
from hermes_agent.tools import CallScope, Dispatcher, ToolRegistry, current_scope

__all__ = ["Agent", "ChosenModel", "Conversation", "Settings"]


@dataclass(frozen=True, slots=True)
class ChosenModel:
    """A model and who is asked for it."""

    client: ModelClient
    name: str
    max_tokens: int | None = None
    """Longest answer; None leaves it to the provider."""


BOUNDARY = "session_boundary"
"""Reason to close a conversation whose session somebody else keeps: a request over HTTP is done."""
SENT_SESSIONS = 512
"""Sessions whose sent messages are remembered; one that falls out costs a cache miss at the provider."""

ChooseModel = Callable[[str | None], ChosenModel]
"""Returns the model for a wish (None: as configured). Raises UserError when there is none."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the operator set for every conversation."""

    max_turns: int = 90
    """Model steps of one turn before the last answer is asked for."""
    max_verify_nudges: int = 3
    """Times that `pre_verify` may send the model back to work in one turn."""
    approval_timeout_s: float = 60.0
    approvals_off: bool = False
    """Nobody is asked about anything."""
    disabled_toolsets: frozenset[str] = frozenset()
    cwd: Path = Path()


class Agent:
    """Opens conversations. One object serves the process."""

    def __init__(
        self,
        *,
        settings: Settings,
        choose_model: ChooseModel,
        tools: ToolRegistry,
        dispatcher: Dispatcher,
        hooks: HookBus,
        bridge: Bridge,
        open_transcript: Callable[[], Transcript],
        prompts: Prompts | None = None,
        spill: Spill | None = None,
        inboxes: Inboxes | None = None,
    ) -> None:
        self.settings = settings
        self.spill = spill
        """Where long texts of `pre_llm_call` go; None keeps them."""
        self.visits = Visits(hooks, bridge)
        self.tools = tools
        self.dispatcher = dispatcher
        self.hooks = hooks
        self.bridge = bridge
        self.open_conversations: set[Conversation] = set()
        self._choose_model = choose_model
        self._open_transcript = open_transcript
        self._prompts = prompts or Prompts(tools)
        self.inboxes = inboxes or Inboxes()
        self._transcript: Transcript | None = None
        self._lane: Lane = bridge.lane("store")
        self._warm: set[int] = set()
        self._sent: OrderedDict[str, dict[int, str]] = OrderedDict()
        """By session: the messages that were sent with what plugins added, for the provider's cached prefix."""

    async def open(
        self,
        session_id: str | None = None,
        *,
        platform: str,
        approver: Approver,
        history: Sequence[Message] | None = None,
        instructions: str = "",
        model: str | None = None,
        cwd: Path | None = None,
        keep: bool = True,
    ) -> Conversation:
        """Open a session: the stored one of that id, or a new one.

        Args:
            session_id: None makes a new id; an unknown id starts a session of that id.
            history: the caller's own transcript, in place of the stored one.
            instructions: added to the system prompt of a new session.
            keep: whether what is said is stored.

        Raises:
            UserError: no model can be had, or the state cannot be read.
        """
        chosen = self._choose_model(model)
        talk = Conversation(
            self,
            session_id or new_session_id(),
            chosen,
            platform=platform,
            approver=approver,
            cwd=(cwd or self.settings.cwd).resolve(),
            keep=keep,
        )
        stored = await self.transcript("system_prompt", talk.session_id) if keep and session_id else None
        if stored is not None:
            history_stored = await self.transcript("messages", talk.session_id)
            talk.resume(stored, history_stored, self._sent.get(talk.session_id))
        else:
            talk.system_prompt, talk.notices = await self.bridge.run(self._prompt, talk, instructions)
        if history is not None:
            talk.history = list(history)
        self.open_conversations.add(talk)
        self.inboxes.open(talk.session_id)
        return talk

    def choose_model(self, wish: str | None) -> ChosenModel:
        """Return the model that somebody asks for.

        Raises:
            UserError: it cannot be had.
        """
        return self._choose_model(wish)

    async def warm_up(self, client: ModelClient) -> None:
        """Let the client import what it needs, away from the core loop; the second call does nothing."""
        if id(client) not in self._warm:
            await self.bridge.run(client.warm_up)
            self._warm.add(id(client))

    def remember_sent(self, session_id: str, sent: dict[int, str]) -> None:
        """Keep what was sent in a session, in memory, for the next conversation that takes it up."""
        self._sent[session_id] = sent
        self._sent.move_to_end(session_id)
        while len(self._sent) > SENT_SESSIONS:
            self._sent.popitem(last=False)

    def definitions(self) -> list[dict[str, Any]]:
        """Return the tools that the model is shown, sorted by name."""
        hidden = self.settings.disabled_toolsets
        return self.tools.get_definitions([n for n, e in self.tools.items() if e.toolset not in hidden])

    def _prompt(self, talk: Conversation, instructions: str) -> Prompt:
        shown = [d["function"]["name"] for d in self.definitions()]
        return self._prompts.make(shown, platform=talk.platform, cwd=talk.cwd, instructions=instructions)

    async def transcript(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the transcript in the thread that alone writes it."""

        def call() -> Any:
            if self._transcript is None:
                self._transcript = self._open_transcript()
            return getattr(self._transcript, method)(*args, **kwargs)

        return await self._lane.run(call)

    async def aclose(self) -> None:
        """End every conversation and close the transcript."""
        for talk in list(self.open_conversations):
            await talk.close("shutdown")
        await self.visits.end()
        if self._transcript is not None:
            await self.transcript("close")
            self._transcript = None


class Conversation:
    """One session in use. `turn` is its only way to act; one turn runs at a time."""

    def __init__(
        self,
        agent: Agent,
        session_id: str,
        chosen: ChosenModel,
        *,
        platform: str,
        approver: Approver,
        cwd: Path,
        keep: bool,
    ) -> None:
        self.agent = agent
        self.session_id = session_id
        self.chosen = chosen
        self.platform = platform
        self.cwd = cwd
        surface = "cli" if platform == "cli" else "gateway"
        told = Told(agent.hooks, agent.bridge, surface=surface, session_key=session_id)
        self.approvals = Approvals(
            approver, timeout_s=agent.settings.approval_timeout_s, told=told, off=agent.settings.approvals_off
        )
        self.system_prompt = ""
        self.notices: tuple[str, ...] = ()
        """What the person is told when the first turn begins."""
        self.history: list[Message] = []
        self._keep = keep
        self._started = False
        self._resumed = False
        self._sent: dict[int, str] = {}
        self._turn_lock = asyncio.Lock()
        self._interrupt: Interrupt | None = None

    @property
    def model(self) -> str:
        """The name of the model that answers."""
        return self.chosen.name

    @property
    def provider(self) -> str:
        """Who is asked."""
        return self.chosen.client.provider

    def resume(self, prompt: str, history: list[Message], sent: dict[int, str] | None) -> None:
        """Take up a stored session.

        Args:
            sent: what `Agent.remember_sent` kept of it.
        """
        self.system_prompt = prompt
        self.history = history
        self._sent = sent or {}
        self._started = self._resumed = True

    async def turn(self, content: Content) -> AsyncGenerator[Event, None]:
        """Say `content` and yield what happens; a second turn waits until the first has ended.

        Raises:
            ModelError: the model could not answer.
        """
        async with self._turn_lock:
            self._interrupt = interrupt = Interrupt()
            try:
                async with contextlib.aclosing(run_turn(self, content, interrupt)) as events:
                    async for event in events:
                        yield event
            finally:
                self._interrupt = None

    def scope(
        self,
        turn_id: str = "",
        user_task: str = "",
        cancelled: threading.Event | None = None,
        *,
        api_request_id: str = "",
    ) -> CallScope:
        """Return the circumstances of a tool call in this conversation."""
        return CallScope(
            session_id=self.session_id,
            task_id=self.session_id,
            turn_id=turn_id,
            cwd=self.cwd,
            approvals=self.approvals,
            user_task=user_task,
            platform=self.platform,
            api_request_id=api_request_id,
            cancelled=cancelled or threading.Event(),
        )

    def interrupt(self) -> None:
        """Stop the running turn at the next safe point; without one nothing happens."""
        if self._interrupt is not None:
            self._interrupt.set()

    def use_model(self, wish: str) -> None:
        """Go on with another model.

        Raises:
            UserError: it cannot be had; the present one stays.
        """
        self.chosen = self.agent.choose_model(wish)

    async def close(self, reason: str, *, successor: str = "") -> None:
        """End the conversation: `on_session_finalize`, and the end in the transcript.

        Args:
            reason: `session_boundary` with a stored session means that its caller may come back: it is finalized
                when the process ends, or when many others came since.
            successor: id of the session that takes its place.
        """
        self.agent.open_conversations.discard(self)
        self.interrupt()
        if not self._keep:
            self.agent.inboxes.close(self.session_id)
        if not self._started:
            return
        if self._keep:
            await self.agent.transcript("end", self.session_id, reason)
        if self._keep and reason == BOUNDARY:
            await self.agent.visits.leave(self.session_id, self.platform)
        else:
            await self.agent.visits.finalize(self.session_id, self.platform, reason, successor)

    async def take_over(self, old: Conversation) -> None:
        """Stand in the place of another conversation, which is closed: `/new`."""
        await old.close("new_session", successor=self.session_id)
        await self.agent.visits.reset(self.session_id, self.platform, old.session_id)

    def take_notices(self) -> tuple[str, ...]:
        """Return what the person is to be told, once."""
        told, self.notices = self.notices, ()
        return told

    async def ensure_resumed(self) -> bool:
        """Say whether this is the first turn of a stored session that this process takes up."""
        first, self._resumed = self._resumed, False
        return first and not self.agent.visits.knows(self.session_id)

    async def ensure_started(self) -> bool:
        """Store the session when this is its first turn; true when it is."""
        if self._started:
            return False
        self._started = True
        if self._keep:
            await self.agent.transcript(
                "create",
                self.session_id,
                source=self.platform,
                model=self.model,
                system_prompt=self.system_prompt,
                cwd=str(self.cwd),
            )
        return True

    async def add(self, message: Message, usage: Usage | None = None) -> None:
        """Append a message to the history and the stored transcript."""
        self.history.append(message)
        if self._keep:
            await self.agent.transcript("append", self.session_id, [message], usage or Usage())

    def inject(self, index: int, text: str) -> None:
        """Send `text` in place of the content of message `index`; kept in memory only, for as long as we live."""
        self._sent[index] = text
        if self._keep:
            self.agent.remember_sent(self.session_id, self._sent)

    def outgoing(self) -> list[Message]:
        """Return the history as the model is shown it."""
        if not self._sent:
            return self.history
        return [
            Message(m.role, self._sent[i], m.tool_calls, m.tool_call_id, m.tool_name) if i in self._sent else m
            for i, m in enumerate(self.history)
        ]

    async def fire(self, hook: str, **payload: Any) -> list[HookResult]:
        """Call the listeners of a hook in a worker.

        An interrupted turn waits for them no longer than for a tool; then they end on their own, unanswered.
        """
        hooks = self.agent.hooks
        if not hooks.has(hook):
            return []
        scope = self.scope(
            str(payload.get("turn_id") or ""), cancelled=None if self._interrupt is None else self._interrupt.flag
        )
        token = current_scope.set(scope)  # what a callback does with tools and messages is done in this conversation
        try:
            work = self.agent.bridge.run_steps(hooks.steps(hook, payload), shortest_s=hooks.shortest_s(hook))
            if self._interrupt is None:
                return await work
            return await self._interrupt.run(work, grace_s=GRACE_S)
        except Interrupted:
            return []
        finally:
            current_scope.reset(token)
