"""What all conversations of a process share: settings, tools, memory, plugins, and the store.

Waiting commits of all conversations are written together. Each statement and each change of thread releases the
interpreter lock and waits for it again, so their number decides what many parallel turns cost.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.agent.context_engines import ContextEngines
from hermes_agent.agent.context_references import ContextReferences
from hermes_agent.agent.injected_messages import InjectedMessages
from hermes_agent.agent.session_lifecycle import SessionLifecycle, TitleWriter
from hermes_agent.agent.settings import AgentSettings, ChooseModel, RouteModel
from hermes_agent.agent.system_prompt import SystemPromptBuilder
from hermes_agent.contracts.model_client import ModelClient, ToolDefinitions
from hermes_agent.contracts.tool import Effect
from hermes_agent.core.caches import LruDict
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.core.redaction import redactor
from hermes_agent.hooks import HookBus
from hermes_agent.hooks.bus import AnswerSpill
from hermes_agent.memory.manager import MemoryManager
from hermes_agent.policy.taint import TaintTracker
from hermes_agent.policy.taint_rules import CheckedCall
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.runtime.workers import SerialExecutor
from hermes_agent.sessions import Principals, SessionCommit, Transcript, UnfinishedTurn, is_running, this_process
from hermes_agent.tools import Dispatcher, ToolRegistry
from hermes_agent.tools.tool_search import TOOL_CALL, ToolSearch
from hermes_agent.tools.toolsets import Toolsets

if TYPE_CHECKING:
    from hermes_agent.agent.transcript_writer import MessageCache, SentTexts

_PendingCommit = tuple[str, SessionCommit, "asyncio.Future[None]"]


class CommitWriter:
    """Writes commits in the order of `write`. Used on the core loop.

    Args:
        executor: the thread of the transcript.
        transcript: returns the transcript, in that thread.
    """

    def __init__(self, executor: SerialExecutor, transcript: Callable[[], Transcript]) -> None:
        self._executor = executor
        self._transcript = transcript
        self._waiting: deque[_PendingCommit] = deque()
        self._called = False
        """The executor is about to take the waiting commits."""

    async def write(self, session_id: str, step: SessionCommit) -> None:
        """Store a step, also when the caller is cancelled while it waits.

        Raises:
            UserError: the session has another principal, or the store cannot be opened.
            sqlite3.Error: for example because the disk is full.
        """
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((session_id, step, stored))
        if not self._called:
            self._called = True
            taken: list[_PendingCommit] = []
            self._executor.start(functools.partial(self._flush, taken)).add_done_callback(
                functools.partial(_resolve_futures, taken)
            )
        await stored  # a cancelled caller cancels this future, and not the write

    def _flush(self, taken: list[_PendingCommit]) -> list[Exception | None]:
        """Write the waiting commits, in the executor. A later commit schedules another call."""
        self._called = False
        while self._waiting:
            taken.append(self._waiting.popleft())
        return self._transcript().write([(session_id, step) for session_id, step, _ in taken]) if taken else []


def _resolve_futures(taken: list[_PendingCommit], written: asyncio.Future[list[Exception | None]]) -> None:
    """Give each waiting caller its outcome."""
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
"""Sessions with remembered sent texts; a dropped one costs a cache miss at the provider."""

MESSAGE_CACHES = 64
"""Sessions with a `MessageCache`."""
DEFINITION_CACHE = 64
"""Selections of tools with cached definitions."""
DEFINITIONS_FRESH_S = 1.0
"""Seconds for which definitions are reused without a check; check functions of plugins run twice a minute."""


class _OfferedTools(LazyNamedTuple):
    """A selection of tools that a model may be shown."""

    names: tuple[str, ...]
    named: frozenset[str]
    """Tools of toolsets that the config names; empty without tool search."""
    window: int


class _CachedDefinitions(LazyNamedTuple):
    """The definitions of a selection."""

    definitions: list[dict[str, Any]]
    shown_names: ToolDefinitions
    generation: int
    """Generation of the registry at that time."""
    made_at: float = 0.0


def _no_personality(session_id: str) -> str:
    return ""


@lazy_dataclass(kw_only=True, eq=False)
class ConversationServices:
    """What conversations, turns and subagents get from their agent. One object serves the process."""

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
    """Stores long texts of `pre_llm_call`; None keeps them in the message."""
    injected: InjectedMessages = field(default_factory=InjectedMessages)
    principals: Principals = field(default_factory=Principals)
    titles: TitleWriter | None = None
    search: ToolSearch | None = None
    """Hides tools beyond a number and finds them for the model; None shows all of them."""
    provenance: TaintTracker | None = None
    """Tracks untrusted text; None tracks nothing."""
    route_model: RouteModel | None = None
    """Chooses the model of a session that names none; None keeps the configured one."""
    references: ContextReferences | None = None
    """Expands `@prefix:value` in messages of the user."""
    discovered: Callable[[], Awaitable[None]] | None = None
    """Waits shortly for tools that MCP servers bring, before a turn lists its tools."""

    personality: Callable[[str], str] = _no_personality
    """Returns the section of the prompt about how the agent speaks in a session."""

    def __post_init__(self) -> None:
        self.visits = SessionLifecycle(self.hooks, self.bridge)
        self.running_turns: set[str] = set()
        """Ids of the turns that run in conversations that are open."""
        self._transcript: Transcript | None = None
        self._store_thread: SerialExecutor = self.bridge.serial_executor("store")
        self._writer = CommitWriter(self._store_thread, self._opened)
        self._warm: set[int] = set()
        self._definitions: dict[_OfferedTools, _CachedDefinitions] = {}
        self._shown: tuple[Sequence[dict[str, Any]], str, str] | None = None
        """The tools that were shown last, with their digest."""
        self._message_caches: LruDict[str, MessageCache] = LruDict(MESSAGE_CACHES)
        self._sent: LruDict[str, SentTexts] = LruDict(SENT_SESSIONS)
        """By session: the messages that were sent with additions of plugins, for the provider's cached prefix."""

    def tools_digest(self, definitions: Sequence[dict[str, Any]]) -> tuple[str, str]:
        """Return the digest of the tools that the model is shown, and their text if it may not be stored yet."""
        if self._shown is None or definitions != self._shown[0]:
            from hermes_agent.agent.transcript_writer import digest_tools  # not at start: the first turn loads it

            self._shown = (definitions, *digest_tools(definitions))
            return self._shown[1:]
        return self._shown[1], ""

    async def warm_up(self, client: ModelClient) -> None:
        """Let a client import what it needs, in a worker; a second call does nothing."""
        if id(client) not in self._warm:
            await self.bridge.run(client.warm_up)
            self._warm.add(id(client))

    def message_cache(self, session_id: str) -> MessageCache:
        """Return the cache of a session's messages, an empty one for a new session."""
        from hermes_agent.agent.transcript_writer import MessageCache

        return self._message_caches.use(session_id, MessageCache)

    def forget_sent(self, session_id: str) -> None:
        """Drop what `remember_sent` kept, because the indices of the messages change."""
        self._sent.pop(session_id, None)

    def remember_sent(self, session_id: str, sent: SentTexts) -> None:
        """Keep the sent texts of a session in memory, for the next conversation that resumes it."""
        self._sent[session_id] = sent

    def sent_texts(self, session_id: str) -> SentTexts | None:
        """Return the sent texts of a session that are remembered, or None."""
        return self._sent.get(session_id)

    def drop_caches(self) -> None:
        """Drop what is remembered of the messages of sessions."""
        self._sent.clear()
        self._message_caches.clear()

    def definitions(
        self, platform: str, toolsets: Collection[str] | None = None, withheld: Collection[str] = (), window: int = 0
    ) -> ToolDefinitions:
        """Return the tools that a model is shown on a platform, sorted by name.

        It calls check functions of plugins. The same object is returned until something changes.

        Args:
            toolsets: the toolsets that a task is limited to; None allows all that the operator enabled.
            withheld: names of tools that are left out.
            window: the context window in tokens; 0 if unknown.
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
        """Return what `definitions` returned within the last second, or None; calls no check function."""
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
        names = tuple([name for name in self.toolsets.offered_tools(platform, toolsets) if name not in withheld])
        searched = self.search is not None and TOOL_CALL in names
        return _OfferedTools(names, self.toolsets.named_tools(platform, toolsets) if searched else frozenset(), window)

    def mask_and_track(self, session_id: str, path: Path, text: str) -> str:
        """Return the text of a file as a tool call returns it: secrets masked, untrusted text tracked."""
        if self.provenance is not None:
            effect = Effect("reads", place="path")
            call = CheckedCall("read_file", effect, {}, {"path": str(path)}, session_id, path)
            text = self.provenance.add_result(call, text, ok=True)
        return redactor(text)

    async def call_transcript(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the transcript in its thread, the only one that writes it."""

        def call() -> Any:
            return getattr(self._opened(), method)(*args, **kwargs)

        return await self._store_thread.run(call)

    async def write(self, session_id: str, step: SessionCommit) -> None:
        """Store the commit of a step. Raises UserError if the session has another principal."""
        await self._writer.write(session_id, step)

    async def close_transcript(self) -> None:
        """Close the transcript if it is open."""
        if self._transcript is not None:
            await self.call_transcript("close")
            self._transcript = None

    async def unfinished_turns(self, session_id: str | None = None, since: int | None = None) -> list[UnfinishedTurn]:
        """Return the turns that a crash interrupted, oldest first: those of a session, or all.

        A front end calls this at its start, opens each session for its principal and calls
        `Conversation.resume_turn`; a new message to such a session closes its turn instead. Turns that run, here or
        in another process, are left out.
        """
        mine = this_process()
        return [
            turn
            for turn in await self.call_transcript("unfinished", session_id, since)
            if turn.turn_id not in self.running_turns and (turn.process == mine or not is_running(turn.process))
        ]

    def _opened(self) -> Transcript:
        """Return the transcript, in its thread."""
        if self._transcript is None:
            self._transcript = self.open_transcript()
        return self._transcript
