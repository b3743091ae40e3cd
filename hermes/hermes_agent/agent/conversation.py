"""Conversations: a session with its transcript, its model and the person who may be asked."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.agent.session_lifecycle import BOUNDARY
from hermes_agent.agent.system_prompt import FolderInstructions
from hermes_agent.agent.transcript_writer import MessageCache, SentTexts, TurnRecorder
from hermes_agent.agent.turn import run_turn
from hermes_agent.agent.turn_context import GRACE_S, Interrupt, Interrupted, RepeatedCalls, TurnState
from hermes_agent.agent.turn_start import InterruptedTurn, load_interrupted_turn
from hermes_agent.core.errors import UnsupportedOption, UserError
from hermes_agent.core.messages import Content, Event, Message, Notice, TurnFinished, Usage, assistant_text, new_id
from hermes_agent.core.redaction import mask_content, mask_message, redactor
from hermes_agent.hooks import HookResult
from hermes_agent.models.client_pool import ChosenModel
from hermes_agent.models.fallback import find_unsupported_option
from hermes_agent.models.request import NO_OPTIONS, RequestOptions, ToolDefinitions
from hermes_agent.policy import ApprovalHooks, Approvals, Approver
from hermes_agent.sessions import NewSession, StoredSession, UnfinishedTurn
from hermes_agent.tools import CallScope, current_scope
from hermes_agent.tools.call_scope import StepBudget

if TYPE_CHECKING:
    from hermes_agent.agent.agent import Agent
    from hermes_agent.agent.subagents import SubagentPolicy


CLOSE_LIMIT_S = 1.0
"""For how long nothing is thought to have happened to a session that was opened."""


@dataclass(kw_only=True, eq=False)
class Conversation:
    """One session in use. `turn` is its only way to act; one turn runs at a time."""

    agent: Agent
    session_id: str
    chosen: ChosenModel
    requested_model: str | None
    """The model that was asked for; None: the configured one."""
    platform: str
    approver: InitVar[Approver]
    cwd: Path
    is_stored: bool
    """Whether what is said is stored; otherwise whoever opened it brings the history along."""
    principal: str
    """Who speaks here."""
    parent: str
    toolsets: Collection[str] | None
    """Those that the model is shown; None means all that the operator left."""
    subagent_policy: SubagentPolicy | None
    """What it may do when it is a sub-agent's."""
    subagents: set[Conversation] = field(default_factory=set)
    """Sub-agents that work for the running turn; they stop with it."""
    is_cancelled_early: Callable[[], bool] = lambda: False
    """Asked when a turn has begun: whether it was stopped before that. What was said stays said."""
    model_calls: int = 0
    uncounted_model: tuple[str, str] = ("", "")
    """Provider and model of which it was told that no cap in dollars counts them."""
    announced_fallback: tuple[ChosenModel, ChosenModel] | None = None
    """Of whom it was told last that the second stands in for the first."""
    system_prompt: str = ""
    notices: tuple[str, ...] = ()
    """What the person is told when the first turn begins."""
    history: list[Message] = field(default_factory=list)

    def __post_init__(self, approver: Approver) -> None:
        agent, session_id, settings = self.agent, self.session_id, self.agent.settings
        surface = "cli" if self.platform == "cli" else "gateway"
        self.approvals = Approvals(
            approver,
            timeout_s=settings.approval_timeout_s,
            told=ApprovalHooks(agent.hooks, agent.bridge, surface=surface, session_key=session_id),
            off=settings.approvals_off,
            smart=settings.smart,
        )
        self.folders = FolderInstructions(self.cwd)
        """What the project's folders say, as far as it was told."""
        self._started = False
        self._resumed = False
        self._whole_until = 0.0
        """No turn of the session was cut off when it was opened, a moment ago."""
        self._sent = SentTexts()
        self._system = Message("system")
        self._grown = agent.message_cache(session_id) if self.is_stored else MessageCache()
        self._turn_lock = asyncio.Lock()
        self._turn: TurnState | None = None
        """The one that runs."""
        self.record = TurnRecorder(
            agent, session_id, self.principal, self._grown.digest, self._grown.sent_digest, keep=self.is_stored
        )

    @property
    def model(self) -> str:
        """The name of the model that answers."""
        return self.chosen.name

    @property
    def running_turn(self) -> str:
        """Id of the turn that runs; empty when none does."""
        return "" if self._turn is None else self._turn.id

    @property
    def max_turns(self) -> int:
        """Model steps of one turn."""
        return self.agent.settings.max_turns if self.subagent_policy is None else self.subagent_policy.max_turns

    @property
    def account(self) -> str:
        """The session on whose account models are asked; empty where nothing is stored."""
        if self.subagent_policy is not None:
            return self.subagent_policy.account
        return self.session_id if self.is_stored else ""

    @property
    def provider(self) -> str:
        """Who is asked."""
        return self.chosen.client.provider

    def resume(self, kept: StoredSession, sent: SentTexts | None) -> None:
        """Take up a stored session. `sent`: what `Agent.remember_sent` kept of it."""
        self.system_prompt = kept.system_prompt
        self.history = kept.messages
        self._sent = sent or SentTexts()
        self._started = self._resumed = True
        self._whole_until = 0.0 if kept.is_cut else time.monotonic() + CLOSE_LIMIT_S

    async def turn(
        self, content: Content, *, known: Mapping[int, str] | None = None, options: RequestOptions = NO_OPTIONS
    ) -> AsyncGenerator[Event, None]:
        """Say `content` and yield what happens; a second turn waits until the first has ended.

        Args:
            known: for a replay: results by number of the call, from 0; those calls are not run.
            options: what the caller sets for the model requests of this turn.

        Raises:
            UnsupportedOption: the model cannot be asked with one of them; nothing was said.
            ModelError: the model could not answer.
        """
        async with self._turn_lock:
            await self._check(options)
            turn = self._new_turn(mask_content(content), options)
            turn.known_results = known or {}
            with self._running(turn):  # from here on it can be interrupted
                for left in await self._abandon_turn():
                    await self._cancel_turn(await load_interrupted_turn(self.agent, left))
                async with contextlib.aclosing(run_turn(turn, None)) as events:
                    async for event in events:
                        yield event

    async def turn_once(
        self, content: Content, *, since: int, options: RequestOptions = NO_OPTIONS
    ) -> AsyncGenerator[Event, None]:
        """Say `content`, which may have been said before a crash or an error: its turn goes on then, where it stopped.

        When it has its answer only `TurnFinished` comes, with what was said since.

        Args:
            content: empty for nothing to say: only what was begun goes on.
            since: number of the session's last message before it was said the first time.
            options: what the caller sets for the model requests of the turn.

        Raises:
            UnsupportedOption: as `turn`.
            ModelError: the model could not answer.
        """
        resumed = False
        async with contextlib.aclosing(self.resume_turn(since=since, options=options)) as events:
            async for event in events:
                resumed = resumed or isinstance(event, TurnFinished)
                yield event
        if resumed:
            return
        begun = await self.agent.call_transcript(
            "has_turn", self.session_id, since=since
        )  # a job may have told something
        if begun and (
            text := assistant_text(await self.agent.call_transcript("messages", self.session_id, after=since))
        ):
            yield TurnFinished(text, "answered", Usage(), self.model)
        elif content:
            async with contextlib.aclosing(self.turn(content, options=options)) as events:
                async for event in events:
                    yield event

    async def resume_turn(
        self, *, since: int | None = None, options: RequestOptions = NO_OPTIONS
    ) -> AsyncGenerator[Event, None]:
        """Go on with the turn that a crash cut off, at its step; without one (`Agent.unfinished`) nothing happens.

        A call of unknown end is not run again, unless its tool is declared idempotent: the model is told, and the
        person by a `Notice`. When the answer was there already only `TurnFinished` comes, with the whole text.

        Args:
            since: number of a message: after it, go on with a turn that an error ended, too; the text is all since.
            options: what the caller sets for the model requests that are left.

        Raises:
            ModelError: the model could not answer.
        """
        async with self._turn_lock:
            await self._check(options)
            for left in await self.agent.unfinished_turns(self.session_id, since) if self.is_stored else ():
                if not await self.agent.call_transcript("claim", left):
                    continue
                cut = await load_interrupted_turn(self.agent, left)
                if not cut.content:  # it stopped before anything was said
                    await self._cancel_turn(cut)
                    continue
                if since is not None:
                    cut.text = assistant_text(
                        await self.agent.call_transcript("messages", self.session_id, after=since)
                    )
                turn = self._new_turn(cut.content, options, left.turn_id)
                turn.text, turn.requests, turn.known_results = cut.text, cut.requests, cut.known_results
                turn.answers = cut.answers
                turn.places = cut.first_place + len(cut.calls)
                turn.usage = Usage(cut.usage.input_tokens, cut.usage.output_tokens, cut.usage.cached_tokens)
                turn.budget = StepBudget(max(0, self.max_turns - cut.answers))
                for text in cut.notices():  # first: once its result is stored, a call is not unknown any more
                    yield Notice(text, "warning")
                with self._running(turn):
                    async with contextlib.aclosing(run_turn(turn, cut)) as events:
                        async for event in events:
                            yield event

    async def _check(self, options: RequestOptions) -> None:
        """Raises UnsupportedOption: the model cannot be asked with one of them."""
        found = find_unsupported_option(self.chosen, options)
        wanted = options.tool_name
        if found is None and wanted and all(t["function"]["name"] != wanted for t in await self.tools()):
            found = "tool_choice", f"it is offered no tool {wanted!r}"
        if found is not None:
            name, why = found
            raise UnsupportedOption(name, f"{name} is not supported by {self.model} of {self.provider}: {why}")

    def _new_turn(self, content: Content, options: RequestOptions, turn_id: str = "") -> TurnState:
        settings = self.agent.settings
        return TurnState(
            self,
            content,
            Interrupt(),
            StepBudget(self.max_turns),
            RepeatedCalls(settings.notice_after, settings.end_after),
            id=turn_id or new_id("turn"),
            options=options,
        )

    @contextlib.contextmanager
    def _running(self, turn: TurnState) -> Iterator[None]:
        self._turn = turn
        if self.is_cancelled_early():
            turn.interrupt.set()
        try:
            yield
        finally:
            self._turn = None

    async def _cancel_turn(self, cut: InterruptedTurn) -> None:
        """Close a turn that was cut off, because the person goes on with something else."""
        for message in cut.closing_messages():
            await self.add(message)
        self.record.turn_record(cut.unfinished.turn_id).end = "given_up"
        self.notices += tuple(cut.notices())
        await self.commit()

    async def _abandon_turn(self) -> list[UnfinishedTurn]:
        """Return the turns that a crash cut off; right after the session was opened nobody is asked again."""
        whole, self._whole_until = time.monotonic() < self._whole_until, 0.0
        return (
            []
            if whole or not (self._started and self.is_stored)
            else await self.agent.unfinished_turns(self.session_id)
        )

    def between_turns(self) -> asyncio.Lock:
        """Return what is held while a turn runs."""
        return self._turn_lock

    async def tools(self) -> ToolDefinitions:
        """Return the tools that the model is shown, sorted by name; those of a moment ago where there are any."""
        known = self.agent.recent_definitions(*self._cached_definitions)
        return await self.agent.bridge.run(self.definitions) if known is None else known

    def definitions(self) -> ToolDefinitions:
        """As `tools`, as they are now; in a worker: asks check functions of plugins."""
        return self.agent.definitions(*self._cached_definitions)

    @property
    def _cached_definitions(self) -> tuple[str, Collection[str] | None, Collection[str], int]:
        """What decides which tools those are."""
        withheld = () if self.subagent_policy is None else self.subagent_policy.withheld
        return self.platform, self.toolsets, withheld, self.chosen.context_length

    def scope(
        self,
        turn_id: str = "",
        user_task: str = "",
        cancelled: threading.Event | None = None,
        *,
        api_request_id: str = "",
        budget: StepBudget | None = None,
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
            principal=self.principal,
            api_request_id=api_request_id,
            cancelled=cancelled or threading.Event(),
            budget=budget,
            account=self.account,
        )

    def interrupt(self) -> None:
        """Stop the running turn at the next safe point, and close its questions; without one nothing happens."""
        if self._turn is not None:
            self._turn.interrupt.set()
            self.approvals.cancel_turn(self._turn.id)
            for child in self.subagents:
                child.interrupt()

    def use_model(self, wish: str) -> None:
        """Go on with another model. Raises UserError: it cannot be had; the present one stays."""
        self.chosen = self.agent.choose_model(wish)
        self.requested_model = wish

    async def close(self, reason: str, *, successor: str = "") -> None:
        """End the conversation: `on_session_finalize`, and the end in the transcript.

        Args:
            reason: `session_boundary` with a stored session means that its caller may come back: it is finalized
                when the process ends, or when many others came since.
            successor: id of the session that takes its place.
        """
        self.agent.open_conversations.discard(self)
        self.interrupt()
        if not self.is_stored or reason != BOUNDARY:
            self.agent.subagents.cancel_background(self.session_id)
        if not self.is_stored:
            self.agent.injected.close(self.session_id)
        if self.agent.memory is not None and self.agent.memory.provider_of(self.session_id) is not None:
            said = [m.to_dict() for m in self.history]
            self.agent.memory.on_leave(self.session_id, said, for_good=not self.is_stored or reason != BOUNDARY)
        if not self._started:
            return
        await self.agent.context_engines.leave(self, for_good=not self.is_stored or reason != BOUNDARY)
        if self.is_stored and reason == BOUNDARY:
            await self.agent.visits.leave(self.session_id, self.platform)
            return
        if self.is_stored:
            await self.agent.call_transcript("end", self.session_id, reason)
        await self.agent.visits.finalize(self.session_id, self.platform, reason, successor)

    async def replace(self, old: Conversation) -> None:
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
        return first and not self.agent.visits.was_left(self.session_id)

    async def ensure_started(self) -> bool:
        """Store the session when this is its first turn; true when it is."""
        if self._started:
            return False
        seen = self.agent.principals.visible_to(self.principal)
        row = NewSession(
            self.platform, self.model, self.system_message().text, str(self.cwd), self.principal, self.parent, seen
        )
        self.record.add_session(row)
        self._started = True
        return True

    async def add(self, message: Message, usage: Usage | None = None) -> None:
        """Append a message to the history; it is stored with the next commit, outside a turn at once."""
        message = mask_message(message)
        self.history.append(message)
        self.record.add_message(message, usage)
        if self._turn is None:
            await self.commit()

    async def commit(self) -> None:
        """Store what waits: before other code runs, before the model is asked, and at the end of the turn.

        Raises:
            UserError: somebody else was first with the id of this new session.
        """
        try:
            await self.record.commit()
        except UserError:
            self._started = bool(self.history[:-1])
            raise

    async def replace_history(self, messages: list[Message], origin: dict[int, int], tokens: tuple[int, int]) -> None:
        """Go on with a shorter history; what it stands for stays in the stored transcript.

        Args:
            origin: where those were that stayed as they are: new place to old.
            tokens: about how long it was, and is.
        """
        await self.commit()
        if self.is_stored:
            await self.agent.call_transcript("compact", self.session_id, messages, tokens)
        self.history = messages
        self.folders = FolderInstructions(self.cwd)  # what was told may be gone
        self._sent = self._sent.move(origin)
        if self.is_stored:
            self.agent.remember_sent(self.session_id, self._sent)

    async def reload_history(self) -> None:
        """Take over the stored transcript, which somebody made shorter."""
        self.history = await self.agent.call_transcript("history", self.session_id)
        self.folders = FolderInstructions(self.cwd)  # what was told may be gone
        self._sent = SentTexts()

    def set_sent_text(self, index: int, text: str, by: Iterable[str]) -> None:
        """Send `text` in place of the content of message `index`; kept in memory only, for as long as we live.

        Args:
            by: the plugins that it is of.
        """
        self._sent.add(index, redactor.mask_known(text), by)
        if self.is_stored:
            self.agent.remember_sent(self.session_id, self._sent)

    @property
    def added_by(self) -> Mapping[str, None]:
        """The plugins that added to messages which are in the history."""
        return self._sent.plugins

    def system_message(self) -> Message:
        """Return the system prompt as a message; the same one as long as it stays the same."""
        if self._system.content != self.system_prompt:
            self.system_prompt = redactor.mask_known(self.system_prompt)
            self._system = Message("system", self.system_prompt)
        return self._system

    def history_messages(self) -> list[Message]:
        """Return the history as a provider accepts it, without what plugins added to messages."""
        return self._grown.history.repair(self.history)

    def messages_to_send(self) -> list[Message]:
        """Return the history as the model is shown it."""
        if not self._sent:
            return self.history_messages()
        return self._grown.messages_to_send(self.history, self._sent)

    async def call_hook(self, hook: str, **payload: Any) -> list[HookResult]:
        """Call the listeners of a hook in a worker.

        An interrupted turn waits for them no longer than for a tool; then they end on their own, unanswered.
        """
        hooks = self.agent.hooks
        if not hooks.has(hook):
            return []
        await self.commit()
        turn = self._turn
        with self.use_context(str(payload.get("turn_id") or "")):
            try:
                work = self.agent.bridge.run_steps(hooks.steps(hook, payload), shortest_s=hooks.shortest_s(hook))
                if turn is None:
                    return await work
                return await turn.interrupt.run(work, grace_s=GRACE_S)
            except Interrupted:
                return []

    @contextlib.contextmanager
    def use_context(self, turn_id: str = "") -> Iterator[None]:
        """Do in this conversation, and on its account, what is called meanwhile: tools, messages, models."""
        turn = self._turn
        scope = self.scope(
            turn_id or self.running_turn,
            cancelled=None if turn is None else turn.interrupt.flag,
            budget=None if turn is None else turn.budget,
        )
        token = current_scope.set(scope)
        try:
            yield
        finally:
            current_scope.reset(token)
