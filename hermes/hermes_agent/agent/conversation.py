"""Conversations: a session loaded in memory, with its history, its model and its approver."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping
from dataclasses import InitVar, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from hermes_agent.agent.compaction import ContextUsage
from hermes_agent.agent.context_references import ExpandedReference
from hermes_agent.agent.services import ConversationServices
from hermes_agent.agent.session_lifecycle import BOUNDARY
from hermes_agent.agent.settings import JOB_PLATFORM, SubagentPolicy
from hermes_agent.agent.system_prompt import FolderInstructions
from hermes_agent.agent.transcript_writer import History, MessageCache, SentTexts, TurnRecorder
from hermes_agent.agent.turn import run_turn
from hermes_agent.agent.turn_context import ConversationModel, RepeatedCalls, SessionRef, TurnContext, TurnState
from hermes_agent.agent.turn_start import InterruptedTurn, check_results, load_interrupted_turn, user_message_of
from hermes_agent.contracts.model_client import NO_OPTIONS, RequestOptions, ToolDefinitions
from hermes_agent.core.errors import UnsupportedOption
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.messages import Content, Message, Notice, TurnEvent, TurnFinished, Usage, assistant_text, new_id
from hermes_agent.core.redaction import mask_content
from hermes_agent.hooks import HookResult
from hermes_agent.models.client_pool import ChosenModel
from hermes_agent.models.model_routes import CONVERSATION, JOB, RouteQuestion
from hermes_agent.models.request_options import change_model_text
from hermes_agent.policy import ApprovalHooks, Approvals, Approver
from hermes_agent.sessions import NewSession, StoredSession, UnfinishedTurn, bound_chat
from hermes_agent.tools import CallScope
from hermes_agent.tools.call_scope import StepBudget

REOPEN_LIMIT_S = 1.0
"""Time after opening a session in which its unfinished turns are not searched again."""


class _OnClose(Protocol):
    def __call__(self, conversation: Conversation, /, *, is_final: bool) -> None: ...


@lazy_dataclass(kw_only=True, eq=False)
class Conversation:
    """One session in use. `turn` is its only way to act; one turn runs at a time."""

    services: ConversationServices
    on_close: _OnClose
    """Called when the conversation is closed; `is_final`: its session is not resumed soon."""
    session_id: str
    chosen: InitVar[ChosenModel]
    requested_model: InitVar[str | None]
    """The model that was asked for; None takes the configured one."""
    platform: str
    approver: InitVar[Approver]
    cwd: Path
    is_stored: bool
    """Whether messages are stored; otherwise the caller brings the history."""
    principal: str
    parent: str
    toolsets: Collection[str] | None
    """Toolsets that the model is shown; None allows all that the operator enabled."""
    subagent_policy: SubagentPolicy | None
    """Limits of a subagent."""
    subagents: set[Conversation] = field(default_factory=set)
    """Subagents that work for the running turn; they stop with it."""
    is_cancelled_early: Callable[[], bool] = lambda: False
    """Returns whether the turn was interrupted before it started; its message is stored all the same."""
    streams_output: bool = False
    """Whether turns yield output of commands and reasoning as they come (`ToolOutput`, `ReasoningDelta`)."""
    notices: list[str] = field(default_factory=list)
    """Notices for the user that come with the next request."""

    def __post_init__(self, chosen: ChosenModel, requested_model: str | None, approver: Approver) -> None:
        services, session_id, settings = self.services, self.session_id, self.services.settings
        surface = "cli" if self.platform == "cli" else "gateway"
        self.model_state = ConversationModel(chosen, requested_model)
        self.approvals = Approvals(
            approver,
            timeout_s=settings.approval_timeout_s,
            hooks=ApprovalHooks(
                services.hooks, services.bridge, surface=surface, session_key=session_id, platform=self.platform
            ),
            off=settings.approvals_off,
            smart=settings.smart,
            transport=settings.transport,
        )
        self._is_resumed, self._started_at = False, time.time()
        self._rule = ""
        """Id of the rule that chose the model (`models.model_routes`), or ""."""
        self._is_complete_until = 0.0
        """Until this time the session has no unfinished turns: there were none when it was opened."""
        cache = services.message_cache(session_id) if self.is_stored else MessageCache()
        write = partial(services.write, session_id)
        digests = cache.digest, cache.sent_digest
        self._history = History(
            session_id,
            TurnRecorder(write, services.tools_digest, self.principal, *digests, keep=self.is_stored),
            cache,
            FolderInstructions(self.cwd),
            services.call_transcript if self.is_stored else None,
            services.remember_sent,
        )
        account = session_id if self.is_stored else ""
        if self.subagent_policy is not None:
            account = self.subagent_policy.account
        self._session = SessionRef(
            session_id,
            self.platform,
            self.principal,
            self.parent,
            account,
            self.cwd,
            self.is_stored,
            self.subagent_policy is not None,
        )
        self._turn_lock = asyncio.Lock()
        self._turn: TurnState | None = None
        """The running turn."""

    @property
    def model(self) -> str:
        """Name of the model."""
        return self.model_state.name

    @property
    def provider(self) -> str:
        """Provider of the model."""
        return self.model_state.provider

    @property
    def history(self) -> list[Message]:
        """The messages of the conversation."""
        return self._history.messages

    @history.setter
    def history(self, messages: list[Message]) -> None:
        self._history.messages = messages

    @property
    def system_prompt(self) -> str:
        return self._history.system_prompt

    @system_prompt.setter
    def system_prompt(self, text: str) -> None:
        self._history.system_prompt = text

    @property
    def folders(self) -> FolderInstructions:
        """Instruction files of folders, as far as the history has them."""
        return self._history.folders

    @property
    def running_turn(self) -> str:
        """Id of the running turn, or ""."""
        return "" if self._turn is None else self._turn.id

    @property
    def max_turns(self) -> int:
        """Model steps of one turn."""
        return self.services.settings.max_turns if self.subagent_policy is None else self.subagent_policy.max_turns

    def resume(self, stored: StoredSession, sent: SentTexts | None) -> None:
        """Continue a stored session. `sent`: the sent texts that the agent remembers of it."""
        history = self._history
        history.system_prompt, history.messages = stored.system_prompt, stored.messages
        history.sent_texts = sent or SentTexts()
        history.is_started, self._is_resumed, self._started_at = True, True, stored.started_at
        self._is_complete_until = 0.0 if stored.is_cut else time.monotonic() + REOPEN_LIMIT_S
        self._rule = stored.rule
        if stored.rule:  # a turn that a crash interrupted continues with the same model
            self._route()

    async def turn(
        self, content: Content, *, known: Mapping[int, str] | None = None, options: RequestOptions = NO_OPTIONS
    ) -> AsyncGenerator[TurnEvent, None]:
        """Run a turn for a user message and yield its events; a second turn waits until the first has ended.

        Args:
            known: for a replay: results by number of the call, from 0; those calls do not run.
            options: what the caller sets for the model requests of this turn.

        Raises:
            UnsupportedOption: an option names a tool that is not offered, or results belong to no call; the turn did
                not start. What a model does not take is left out with a notice.
            ModelError: the model could not answer.
        """
        async with self._turn_lock:
            self._route(Message("user", content))
            options = options.over(self.model_state.chosen.options)
            await self._check(options)
            if options.continuation and self.is_stored:
                content = user_message_of(self._history.messages)
            references = self.services.references
            expanded: list[ExpandedReference] = []
            if references is not None and references.providers.entries:
                content, expanded = await references.expand(content)
            turn = self._new_turn(mask_content(content), options)
            turn.expanded = expanded
            turn.known_results = known or {}
            with self._running(turn):  # from here on it can be interrupted
                for left in await self._unfinished_turns():
                    await self._close_unfinished(await self._load_unfinished(left))
                turn.session_hook = self._start_session()
                async with contextlib.aclosing(run_turn(turn, self.services.context_engines, None)) as events:
                    async for event in events:
                        yield event

    async def turn_once(
        self, content: Content, *, since: int, options: RequestOptions = NO_OPTIONS
    ) -> AsyncGenerator[TurnEvent, None]:
        """Run the turn of a message, or resume it if it started before a crash or an error.

        A turn that was answered yields only `TurnFinished`, with the text since then.

        Args:
            content: "" only resumes an unfinished turn.
            since: number of the session's last message before the first attempt.
            options: what the caller sets for the model requests of the turn.

        Raises:
            UnsupportedOption: as `turn`.
            ModelError: the model could not answer.
        """
        call_transcript, resumed = self.services.call_transcript, False
        async with contextlib.aclosing(self.resume_turn(since=since, options=options)) as events:
            async for event in events:
                resumed = resumed or isinstance(event, TurnFinished)
                yield event
        if resumed:
            return
        # a message alone proves no turn: a scheduled job may have added it
        has_turn = await call_transcript("has_turn", self.session_id, since=since)
        if has_turn and (text := assistant_text(await call_transcript("messages", self.session_id, after=since))):
            yield TurnFinished(text, "answered", Usage(), self.model)
        elif content or options.continuation:
            async with contextlib.aclosing(self.turn(content, options=options)) as events:
                async for event in events:
                    yield event

    async def resume_turn(
        self, *, since: int | None = None, options: RequestOptions = NO_OPTIONS
    ) -> AsyncGenerator[TurnEvent, None]:
        """Resume the turn that a crash interrupted, at its step; without one the stream is empty.

        A tool call with an unknown result does not run again, unless its tool is declared idempotent. The model and the
        user learn of it, the user by a `Notice`. If the answer was complete, only `TurnFinished` comes, with its text.

        Args:
            since: number of a message: a turn after it is resumed also if an error ended it; the text is all since.
            options: what the caller sets for the remaining model requests.

        Raises:
            ModelError: the model could not answer.
        """
        services = self.services
        async with self._turn_lock:
            options = options.over(self.model_state.chosen.options)
            await self._check(options)
            for left in await services.unfinished_turns(self.session_id, since) if self.is_stored else ():
                if not await services.call_transcript("claim", left):
                    continue
                cut = await self._load_unfinished(left)
                if not cut.content:  # it stopped before its message was stored
                    await self._close_unfinished(cut)
                    continue
                if since is not None:
                    messages = await services.call_transcript("messages", self.session_id, after=since)
                    cut.text = assistant_text(messages)
                steps = max(0, self.max_turns - cut.answers)
                turn = self._new_turn(cut.content, options, left.turn_id, steps)
                turn.text, turn.requests, turn.known_results = cut.text, cut.requests, cut.known_results
                turn.answers = cut.answers
                turn.places = cut.first_place + len(cut.calls)
                turn.usage = Usage(cut.usage.input_tokens, cut.usage.output_tokens, cut.usage.cached_tokens)
                for text in cut.notices():  # first: once its result is stored, a call is not unknown any more
                    yield Notice(text, "warning")
                with self._running(turn):
                    turn.session_hook = self._start_session()
                    async with contextlib.aclosing(run_turn(turn, services.context_engines, cut)) as events:
                        async for event in events:
                            yield event

    def _route(self, *new: Message) -> None:
        """Continue with the model of a rule, where the session names none (`models.model_routes`)."""
        route = self.services.route_model
        if route is None or self.model_state.requested or self.subagent_policy is not None:
            return
        task = JOB if self.platform == JOB_PLATFORM else CONVERSATION
        rule, chosen = route(RouteQuestion(task, self.principal, self._rule, self.history, new))
        if rule and rule != self._rule:
            self._rule = self._history.record.rule = rule
        if chosen is not None:
            self.model_state.chosen = chosen

    async def _check(self, options: RequestOptions) -> None:
        """Raise UnsupportedOption for an option that the turn cannot use: an absent tool, results of no call."""
        wanted = options.tool_name
        if options.continuation and self.is_stored:
            check_results(self._history.messages, options.continuation)
        if wanted and not any(t["function"]["name"] == wanted for t in options.with_tools(await self.tools())):
            why = f"it is offered no tool {wanted!r}"
            raise UnsupportedOption(
                "tool_choice", f"tool_choice is not supported by {self.model} of {self.provider}: {why}"
            )

    def _new_turn(
        self, content: Content, options: RequestOptions, turn_id: str = "", steps: int | None = None
    ) -> TurnState:
        settings, context = self.services.settings, self._new_context()
        context.turn_id = turn_id or new_id("turn")
        context.budget = budget = StepBudget(context.max_turns if steps is None else steps)
        repeated_calls = RepeatedCalls(settings.notice_after, settings.end_after)
        return TurnState(context, content, budget, repeated_calls, options=options)

    def _new_context(self) -> TurnContext:
        """Return the context of a turn, or of work between turns."""
        services = self.services
        read_filter = partial(services.mask_and_track, self.session_id)
        return TurnContext(
            session=self._session,
            model=self.model_state,
            history=self._history,
            notices=self.notices,
            settings=services.settings,
            max_turns=self.max_turns,
            approvals=self.approvals,
            tools=services.tools,
            dispatcher=services.dispatcher,
            load_definitions=self.tools,
            discovered=services.discovered,
            hooks=services.hooks,
            bridge=services.bridge,
            call_transcript=services.call_transcript,
            warm_up=services.warm_up,
            memory=services.memory,
            injected=services.injected,
            taint=services.provenance,
            titles=services.titles,
            spill=services.spill,
            streams_output=self.streams_output,
            read_filter=read_filter if services.prompt_builder.reads_files else None,
        )

    @contextlib.contextmanager
    def _running(self, turn: TurnState) -> Iterator[None]:
        self._turn = turn
        self.services.running_turns.add(turn.id)
        if self.is_cancelled_early():
            turn.context.interrupt.set()
        try:
            yield
        finally:
            self._turn = None
            self.services.running_turns.discard(turn.id)

    def _start_session(self) -> str:
        """Store the session with its first turn; return the hook that the turn calls first, or ""."""
        history = self._history
        if not history.is_started:
            seen, prompt = self.services.principals.visible_to(self.principal), history.system_message().text
            about = (self.platform, self.model, prompt, str(self.cwd), self.principal, self.parent, seen, bound_chat())
            history.start(NewSession(*about))
            return "on_session_start"
        is_first, self._is_resumed = self._is_resumed, False
        return "on_session_resume" if is_first and not self.services.visits.was_left(self.session_id) else ""

    async def _unfinished_turns(self) -> list[UnfinishedTurn]:
        """Return the turns that a crash interrupted; right after opening the session none is searched."""
        is_complete, self._is_complete_until = time.monotonic() < self._is_complete_until, 0.0
        if is_complete or not (self._history.is_started and self.is_stored):
            return []
        return await self.services.unfinished_turns(self.session_id)

    async def _load_unfinished(self, left: UnfinishedTurn) -> InterruptedTurn:
        return await load_interrupted_turn(self.services.call_transcript, self.services.tools, left)

    async def _close_unfinished(self, cut: InterruptedTurn) -> None:
        """Close a turn that a crash interrupted, because the user continues with another message."""
        for message in cut.closing_messages():
            self._history.add(message)
        self._history.record.turn_record(cut.unfinished.turn_id).end = "given_up"
        self.notices += cut.notices()
        await self._history.commit()

    def between_turns(self) -> asyncio.Lock:
        """Return the lock that is held while a turn runs."""
        return self._turn_lock

    async def tools(self) -> ToolDefinitions:
        """Return the tools that the model is shown, sorted by name; those of the last second are reused."""
        known = self.services.recent_definitions(*self._tool_selection)
        return await self.services.bridge.run(self.definitions) if known is None else known

    def definitions(self) -> ToolDefinitions:
        """Return the tools that the model is shown, in a worker: calls check functions of plugins."""
        return self.services.definitions(*self._tool_selection)

    @property
    def _tool_selection(self) -> tuple[str, Collection[str] | None, Collection[str], int]:
        policy, held = self.subagent_policy, self.services.tools.held_back(self._started_at)
        withheld = held if policy is None else (*policy.withheld, *held)
        return self.platform, self.toolsets, withheld, self.model_state.chosen.context_length

    def interrupt(self, why: str = "interrupted") -> None:
        """Interrupt the running turn at the next safe point, and cancel its approvals. `why` is for hooks."""
        if self._turn is not None:
            if not self._turn.context.interrupt.flag.is_set():
                given = {"platform": self.platform, "reason": why, "invalidation_reason": why if why == "new" else ""}
                self.services.hooks.post("agent_loop_stopped", session_key=self.session_id, **given)
            self._turn.context.interrupt.set()
            self.approvals.cancel_turn(self._turn.id)
            for subagent in self.subagents:
                subagent.interrupt()

    def use_model(self, name: str) -> None:
        """Continue with another model, or with other options: `NAME key=value …`; without a name it stays.

        Raises:
            UserError: it is not available, or an option is unknown; the present model stays.
        """
        text = change_model_text(self.model_state.requested or "", name)
        self.model_state.chosen = self.services.choose_model(text or None)
        self.model_state.requested = text or None

    async def compact(self, focus: str) -> str:
        """Shorten the history now, between two turns; return the answer for the user.

        Raises:
            UserError: no summary is available.
        """
        context = self._new_context()
        compaction = await self.services.context_engines.for_session(context)
        async with self._turn_lock:
            return await compaction.compress_now(context, focus)

    async def describe_context(self) -> str:
        """Return for the user how full the context window is."""
        context = self._new_context()
        compaction = await self.services.context_engines.for_session(context)
        return await compaction.describe(context)

    async def context_usage(self) -> ContextUsage:
        """Return what fills the context window."""
        context = self._new_context()
        compaction = await self.services.context_engines.for_session(context)
        return await compaction.usage(context)

    async def close(self, reason: str, *, successor: str = "") -> None:
        """End the conversation: `on_session_finalize`, and the end in the transcript.

        Args:
            reason: `session_boundary` with a stored session means that its caller may come back: it is finalized
                when the process ends, or after many other sessions.
            successor: id of the session that replaces it.
        """
        services, is_final = self.services, not self.is_stored or reason != BOUNDARY
        self.on_close(self, is_final=is_final)
        self.interrupt()
        if not self.is_stored:
            services.injected.close(self.session_id)
        if services.memory is not None and services.memory.provider_of(self.session_id) is not None:
            services.memory.on_leave(self.session_id, [m.to_dict() for m in self.history], is_final=is_final)
        if not self._history.is_started:
            return
        await services.context_engines.leave(self.session_id, self.history, is_final=is_final)
        if not is_final:
            await services.visits.leave(self.session_id, self.platform)
            return
        if self.is_stored:
            await services.call_transcript("end", self.session_id, reason)
        await services.visits.finalize(self.session_id, self.platform, reason, successor)

    async def replace(self, old: Conversation) -> None:
        """Take the place of another conversation, which is closed: `/new`."""
        await old.close("new_session", successor=self.session_id)
        await self.services.visits.reset(self.session_id, self.platform, old.session_id)

    async def reload_history(self) -> None:
        """Read the stored transcript again after a change from outside."""
        self._history.reload(await self.services.call_transcript("history", self.session_id))

    def accepted_history(self) -> list[Message]:
        """Return the history as a provider accepts it, without the additions of plugins."""
        return list(self._history.accepted())

    def scope(self, turn_id: str = "") -> CallScope:
        """Return the scope of a tool call or command outside a turn."""
        context = self._new_context()
        context.turn_id = turn_id
        return context.scope()

    async def call_hook(self, hook: str, **payload: Any) -> list[HookResult]:
        """Call the listeners of a hook outside a turn, in a worker."""
        return await self._new_context().call_hook(hook, **payload)
