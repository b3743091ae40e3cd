"""Steps of turns on their way to the store: those of all conversations that wait for it share a commit.

Each statement lets go of the interpreter's lock and waits for it again, and so does each hop between two threads: what
many turns at once come to depends on how few there are.

The agent: it opens conversations, and has what they share.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes_agent.agent.context_engines import ContextEngines
from hermes_agent.agent.injected_messages import InjectedMessages
from hermes_agent.agent.session_lifecycle import BOUNDARY, SessionLifecycle, TitleWriter
from hermes_agent.agent.settings import AgentSettings, ChooseModel
from hermes_agent.agent.subagents import DelegationSettings, SubagentPolicy, Subagents
from hermes_agent.agent.system_prompt import SystemPrompt, SystemPromptBuilder
from hermes_agent.contracts.tool import Effect
from hermes_agent.core.messages import Message, new_session_id
from hermes_agent.core.redaction import redactor
from hermes_agent.hooks import HookBus
from hermes_agent.hooks.bus import AnswerSpill
from hermes_agent.memory.manager import InitialMemory, MemoryManager
from hermes_agent.models.request import ModelClient, ToolDefinitions
from hermes_agent.policy import Approver
from hermes_agent.policy.taint import TaintTracker
from hermes_agent.policy.taint_rules import CheckedCall
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.runtime.workers import SerialExecutor
from hermes_agent.sessions import (
    LOCAL,
    Principals,
    SessionCommit,
    StoredSession,
    Transcript,
    UnfinishedTurn,
    is_running,
    session_denied,
    this_process,
)
from hermes_agent.tools import Dispatcher, ToolRegistry
from hermes_agent.tools.tool_search import TOOL_CALL, ToolSearch
from hermes_agent.tools.toolsets import Toolsets

if TYPE_CHECKING:
    from hermes_agent.agent.conversation import Conversation
    from hermes_agent.agent.transcript_writer import MessageCache, SentTexts


_PendingCommit = tuple[str, SessionCommit, "asyncio.Future[None]"]


class CommitWriter:
    """Writes in the order of `write`. On the core loop.

    Args:
        lane: the thread of the transcript.
        transcript: returns it, in that thread.
    """

    def __init__(self, lane: SerialExecutor, transcript: Callable[[], Transcript]) -> None:
        self._lane = lane
        self._transcript = transcript
        self._waiting: deque[_PendingCommit] = deque()
        self._called = False
        """The lane is about to take what waits."""

    async def write(self, session_id: str, step: SessionCommit) -> None:
        """Store a step; it is stored even if the waiting side is cancelled.

        Raises:
            UserError: the session is somebody else's, or the store cannot be opened.
            sqlite3.Error: the disk is full, say.
        """
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((session_id, step, stored))
        if not self._called:
            self._called = True
            taken: list[_PendingCommit] = []
            self._lane.start(functools.partial(self._flush, taken)).add_done_callback(
                functools.partial(_resolve_futures, taken)
            )
        await stored  # whoever is cancelled cancels this, and not the work

    def _flush(self, taken: list[_PendingCommit]) -> list[Exception | None]:
        """Write what waits. In the lane; who comes now calls it again."""
        self._called = False
        while self._waiting:
            taken.append(self._waiting.popleft())
        return self._transcript().write([(session_id, step) for session_id, step, _ in taken]) if taken else []


def _resolve_futures(taken: list[_PendingCommit], written: asyncio.Future[list[Exception | None]]) -> None:
    """Say to each how it ended."""
    failed = written.exception()
    errors = [failed] * len(taken) if failed is not None else written.result()
    for (_, _, stored), error in zip(taken, errors, strict=True):
        if stored.done():
            continue
        if error is None:
            stored.set_result(None)
        else:
            stored.set_exception(error)


SENT_SESSIONS = 512
"""Sessions whose sent messages are remembered; one that falls out costs a cache miss at the provider."""

MESSAGE_CACHES = 64
"""Sessions of which is kept what was worked out of their messages."""
DEFINITION_CACHE = 64
"""Selections of tools whose definitions are kept."""
DEFINITIONS_FRESH_S = 1.0
"""For how long they are not made anew; checks of plugins are asked twice a minute anyway."""


class _OfferedTools(NamedTuple):
    """What a model may be shown."""

    names: tuple[str, ...]
    named: frozenset[str]
    """Those whose toolset was named, where tools are searched for."""
    window: int


class _CachedDefinitions(NamedTuple):
    """The definitions that came of it."""

    definitions: list[dict[str, Any]]
    shown_names: ToolDefinitions
    generation: int
    """Of the registry."""
    made_at: float = 0.0


@dataclass(kw_only=True, eq=False)
class Agent:
    """Opens conversations. One object serves the process."""

    settings: AgentSettings
    choose_model: ChooseModel
    tools: ToolRegistry
    dispatcher: Dispatcher
    hooks: HookBus
    bridge: Bridge
    open_transcript: Callable[[], Transcript]
    prompt_builder: SystemPromptBuilder
    toolsets: Toolsets
    context_engines: ContextEngines = field(default_factory=ContextEngines)
    memory: MemoryManager | None = None
    spill: AnswerSpill | None = None
    """Where long texts of `pre_llm_call` go; None keeps them."""
    injected: InjectedMessages = field(default_factory=InjectedMessages)
    principals: Principals = field(default_factory=Principals)
    titles: TitleWriter | None = None
    delegation: DelegationSettings = field(default_factory=DelegationSettings)
    search: ToolSearch | None = None
    """Finds tools where there are more than a request should carry; None shows them all."""
    provenance: TaintTracker | None = None
    """Is told what people say; None: nobody asks whose words a call has."""
    discovered: Callable[[], Awaitable[None]] | None = None
    """Waits a little for tools that come in the background (MCP servers), before a turn looks at what there is."""

    def __post_init__(self) -> None:
        self.visits = SessionLifecycle(self.hooks, self.bridge)
        self.subagents = Subagents(self, self.delegation)
        self.open_conversations: set[Conversation] = set()
        self._transcript: Transcript | None = None
        self._lane: SerialExecutor = self.bridge.serial_executor("store")
        self._writer = CommitWriter(self._lane, self._opened)
        self._warm: set[int] = set()
        self._conversations: type[Conversation] | None = None
        self._definitions: dict[_OfferedTools, _CachedDefinitions] = {}
        self._shown: tuple[Sequence[dict[str, Any]], str, str] | None = None
        """The tools that were shown last, with their digest."""
        self._grown: OrderedDict[str, MessageCache] = OrderedDict()
        self._sent: OrderedDict[str, SentTexts] = OrderedDict()
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
        principal: str = LOCAL,
        parent: str = "",
        after: str = "",
        toolsets: Collection[str] | None = None,
        charter: SubagentPolicy | None = None,
    ) -> Conversation:
        """Open a session: the stored one of that id, or a new one.

        Args:
            principal: who speaks here: `local`, `api_server`, or `PLATFORM:USER` (`sessions.people`). A new session
                is theirs.
            parent: the session that handed a task to this new one, a sub-agent's.
            cwd: where it works, resolved, when it is not `AgentSettings.cwd`.
            charter: what that sub-agent may do.
            after: the open session whose place this new one takes (`Conversation.take_over` follows).
            toolsets: the toolsets whose tools the model is shown; None means all that the operator left.
            session_id: None makes a new id; an unknown id starts a session of that id.
            history: the caller's own transcript, in place of the stored one.
            instructions: added to the system prompt of a new session.
            keep: whether what is said is stored.

        Raises:
            UserError: no model can be had, the state cannot be read, or the session is somebody else's.
        """
        if self._conversations is None:
            self._conversations = await self.bridge.run(_import_conversation)
        chosen = self.choose_model(model)
        talk = self._conversations(
            agent=self,
            session_id=session_id or new_session_id(),
            chosen=chosen,
            requested_model=model,
            platform=platform,
            approver=approver,
            cwd=cwd or self.settings.cwd,
            is_stored=keep,
            principal=principal,
            parent=parent,
            toolsets=toolsets,
            subagent_policy=charter,
        )
        stored = await self.load_if_allowed(session_id, principal) if keep and session_id else None
        if stored is not None:
            talk.resume(stored, self._sent.get(talk.session_id))
        remembered = await self._load_memory(talk, after, is_new=stored is None)
        if stored is None:
            made = await self.bridge.run(self._prompt, talk, instructions, remembered.block)
            talk.system_prompt, talk.notices = made
        talk.notices = (*talk.notices, *remembered.notices)
        if history is not None:
            talk.history = list(history)
        self.open_conversations.add(talk)
        self.injected.open(talk.session_id)
        if stored is not None and charter is None:
            try:
                await self.subagents.recover(talk.session_id)
            except BaseException:
                await talk.close(BOUNDARY)
                raise
        return talk

    async def load_if_allowed(self, session_id: str, principal: str) -> StoredSession | None:
        """Return what is stored of a session; None when there is none of that id.

        Raises:
            NotYours: it is somebody else's.
        """
        stored: StoredSession | None = await self.call_transcript("kept", session_id)
        if stored is not None and stored.principal not in self.principals.visible_to(principal):
            raise session_denied(session_id, principal)
        return stored

    async def unfinished_turns(self, session_id: str | None = None, since: int | None = None) -> list[UnfinishedTurn]:
        """Return the turns that a crash cut off, oldest first; those of a session, or all (`journal.unfinished`).

        A front door asks at its start, opens each session for its principal and goes on with
        `Conversation.resume_turn`; a new message to such a session closes its turn instead. Turns that run, here or
        in another process, are left out.
        """
        mine = this_process()
        running = {talk.running_turn for talk in self.open_conversations}
        return [
            turn
            for turn in await self.call_transcript("unfinished", session_id, since)
            if turn.turn_id not in running and (turn.process == mine or not is_running(turn.process))
        ]

    def tools_digest(self, definitions: Sequence[dict[str, Any]]) -> tuple[str, str]:
        """Return the digest of the tools that the model is shown, and their text when it may not be stored yet."""
        if self._shown is None or definitions != self._shown[0]:
            from hermes_agent.agent.transcript_writer import digest_tools  # here and below: conversations bring them

            self._shown = (definitions, *digest_tools(definitions))
            return self._shown[1:]
        return self._shown[1], ""

    async def warm_up(self, client: ModelClient) -> None:
        """Let the client import what it needs, away from the core loop; the second call does nothing."""
        if id(client) not in self._warm:
            await self.bridge.run(client.warm_up)
            self._warm.add(id(client))

    def message_cache(self, session_id: str) -> MessageCache:
        """Return what was worked out of a session's messages so far."""
        from hermes_agent.agent.transcript_writer import MessageCache

        grown = self._grown.pop(session_id, None) or MessageCache()
        self._grown[session_id] = grown
        while len(self._grown) > MESSAGE_CACHES:
            self._grown.popitem(last=False)
        return grown

    def forget_sent(self, session_id: str) -> None:
        """Forget what `remember_sent` kept: it is kept by the messages' places, which change."""
        self._sent.pop(session_id, None)

    def remember_sent(self, session_id: str, sent: SentTexts) -> None:
        """Keep what was sent in a session, in memory, for the next conversation that takes it up."""
        self._sent[session_id] = sent
        self._sent.move_to_end(session_id)
        while len(self._sent) > SENT_SESSIONS:
            self._sent.popitem(last=False)

    async def release_memory(self) -> None:
        """Let go of what idle sessions keep in memory; all of it can be made again from the store."""
        self._sent.clear()
        self._grown.clear()
        await self.call_transcript("forget_read")
        await self.context_engines.end_idle(self, {talk.session_id for talk in self.open_conversations})
        await self.visits.finalize_all("session_expired")

    def definitions(
        self, platform: str, toolsets: Collection[str] | None = None, withheld: Collection[str] = (), window: int = 0
    ) -> ToolDefinitions:
        """Return the tools that a model is shown on a platform, sorted by name; asks check functions of plugins.

        The same object as long as nothing of it has changed.

        Args:
            toolsets: those that a task is limited to; None means all that the operator left.
            withheld: names of tools that are left out.
            window: tokens that the model can see; 0 when nobody knows.
        """
        offered = self._offered(platform, toolsets, withheld, window)
        made = self.tools.get_definitions(offered.names)
        known = self._definitions.get(offered)
        if known is None or known.definitions != made:
            if len(self._definitions) > DEFINITION_CACHE:
                self._definitions.clear()
            shown, found = (
                (made, ())
                if self.search is None or TOOL_CALL not in offered.names
                else self.search.split(made, named=offered.named, window=window)
            )
            known = self._definitions[offered] = _CachedDefinitions(
                made, ToolDefinitions(shown), self.tools._generation
            )
            known.shown_names.searchable = found
        self._definitions[offered] = known._replace(made_at=time.monotonic(), generation=self.tools._generation)
        return known.shown_names

    def recent_definitions(
        self, platform: str, toolsets: Collection[str] | None, withheld: Collection[str], window: int
    ) -> ToolDefinitions | None:
        """Return what `definitions` did up to a second ago, without calling anybody; None when it did not."""
        known = self._definitions.get(self._offered(platform, toolsets, withheld, window))
        if (
            known is None
            or known.generation != self.tools._generation
            or time.monotonic() - known.made_at > DEFINITIONS_FRESH_S
        ):
            return None
        return known.shown_names

    def _offered(
        self, platform: str, toolsets: Collection[str] | None, withheld: Collection[str], window: int
    ) -> _OfferedTools:
        names = tuple(name for name in self.toolsets.offered_tools(platform, toolsets) if name not in withheld)
        searched = self.search is not None and TOOL_CALL in names
        return _OfferedTools(names, self.toolsets.named_tools(platform, toolsets) if searched else frozenset(), window)

    async def _load_memory(self, talk: Conversation, after: str, *, is_new: bool) -> InitialMemory:
        """Return what is remembered for a session; a sub-agent is told what it needs by whoever calls it."""
        if self.memory is None or talk.parent:
            return InitialMemory()
        old = next((t for t in self.open_conversations if after and t.session_id == after), None)
        if old is not None:
            await self.memory.on_session_change(after, talk.session_id, [m.to_dict() for m in old.history])
        return await self.memory.open(
            talk.session_id, talk.principal, platform=talk.platform, is_new=is_new, with_provider=talk.is_stored
        )

    def _prompt(self, talk: Conversation, instructions: str, memory: str) -> SystemPrompt:
        self.context_engines.offer_tools(self)
        shown = [d["function"]["name"] for d in talk.definitions()]
        if self.provenance is not None and memory:
            self.provenance.add_recalled(talk.session_id, memory)
        return self.prompt_builder.build(
            shown,
            platform=talk.platform,
            cwd=talk.cwd,
            memory=memory,
            instructions=instructions,
            take=partial(self.mask_and_track, talk.session_id),
        )

    def mask_and_track(self, session_id: str, path: Path, text: str) -> str:
        """Return what a file says as a call that reads it would: without secrets, and noted whose words they are."""
        if self.provenance is not None:
            effect = Effect("reads", place="path")
            call = CheckedCall("read_file", effect, {}, {"path": str(path)}, session_id, path)
            text = self.provenance.add_result(call, text, ok=True)
        return redactor(text)

    async def call_transcript(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the transcript in the thread that alone writes it."""

        def call() -> Any:
            return getattr(self._opened(), method)(*args, **kwargs)

        return await self._lane.run(call)

    async def write(self, session_id: str, step: SessionCommit) -> None:
        """Store what a step of a turn brings. Raises UserError: the session is somebody else's."""
        await self._writer.write(session_id, step)

    def _opened(self) -> Transcript:
        """Return the transcript. In its thread."""
        if self._transcript is None:
            self._transcript = self.open_transcript()
        return self._transcript

    async def aclose(self) -> None:
        """End every conversation and close the transcript."""
        await self.subagents.aclose()
        for talk in list(self.open_conversations):
            await talk.close("shutdown")
        await self.context_engines.end(self)
        if self.memory is not None:
            await self.memory.close()
        await self.visits.finalize_all()
        if self._transcript is not None:
            await self.call_transcript("close")
            self._transcript = None


def _import_conversation() -> type[Conversation]:
    """Import what a turn needs: a daemon does without it until its first one; in a worker, for it takes 0.1 s."""
    from hermes_agent.agent import compaction, compressor  # noqa: F401 - for the loop, which is not to wait for them
    from hermes_agent.agent.conversation import Conversation
    from hermes_agent.models import client  # noqa: F401 - as these

    return Conversation
