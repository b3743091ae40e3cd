"""The tool calls of one answer: in order, or in parallel where that is safe (`may_run_in_parallel`)."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from typing import Any

from hermes_agent.agent.turn_context import GRACE_S, Interrupted, TurnState, TurnStopped, changed_path
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.log_context import log_context
from hermes_agent.core.messages import Message, ToolCall, ToolFinished, ToolOutput, ToolStarted, TurnEvent
from hermes_agent.core.redaction import mask_arguments
from hermes_agent.core.registry import BUILTIN
from hermes_agent.sessions import CallRecord
from hermes_agent.tools import CallScope, ToolOutcome, tool_error
from hermes_agent.tools.call_scope import MAX_PARALLEL, batch_limit_s, may_run_in_parallel
from hermes_agent.tools.results import status_of

logger = logging.getLogger(__name__)

INTERRUPTED = tool_error("interrupted by the user")


@lazy_dataclass(slots=True, eq=False)
class _PendingCall:
    """A call that is about to run."""

    call: ToolCall
    name: str
    arguments: dict[str, Any] | None
    count: int
    """Number of identical calls in a row."""
    place: int
    outcome: ToolOutcome | None = None


class ToolStep:
    """The tool calls of one answer. In the end the history has a result for each, in their order.

    Args:
        valid: the tools that the model was shown.
        place: place of the first call in the turn.
    """

    def __init__(self, turn: TurnState, calls: Sequence[ToolCall], valid: list[str], place: int) -> None:
        self._turn = turn
        self._context = turn.context
        self._valid = valid
        scope = turn.context.scope(turn.user_message, api_request_id=turn.request_id)
        self._scope = replace(scope, shown=frozenset(valid))
        self._place = place
        self._calls: list[_PendingCall] = []
        self._outputs: asyncio.Queue[ToolOutput] | None = None
        """Output of commands that run; None if the front end does not ask for it."""
        self._left = list(calls)
        """Calls without a result in the history."""

    async def events(self) -> AsyncGenerator[TurnEvent, None]:
        """Run the calls, and yield their events.

        Raises:
            Interrupted: the turn was interrupted; calls that did not run have a result that says so.
            TurnStopped: the model repeats itself.
        """
        sentence = self._plan()
        registry, cwd = self._context.tools, self._context.session.cwd
        together = may_run_in_parallel(registry, [(c.name, c.arguments) for c in self._calls], cwd)
        groups = [self._calls] if together else [[c] for c in self._calls]
        try:
            if groups:
                self._about_to_run(groups[0])
            for number, group in enumerate(groups):
                self._context.interrupt.check()
                await self._context.history.commit()
                for item in group:
                    yield ToolStarted(item.call.id, item.name, mask_arguments(item.arguments))
                async for done in self._with_output(
                    self._run(group, groups[number + 1] if number + 1 < len(groups) else [])
                ):
                    if isinstance(done, ToolOutput):
                        yield done
                        continue
                    assert done.outcome is not None
                    yield ToolFinished(
                        done.call.id,
                        done.outcome.name,
                        done.outcome.result,
                        done.outcome.status,
                        done.outcome.duration_ms,
                    )
            if sentence:
                raise TurnStopped(sentence)
        except Interrupted:
            async for event in self._close(INTERRUPTED):
                yield event
            raise
        except TurnStopped:
            async for event in self._close(tool_error("not run: the same call was made too often in a row")):
                yield event
            raise

    async def _with_output(
        self, results: AsyncGenerator[_PendingCall, None]
    ) -> AsyncGenerator[_PendingCall | ToolOutput, None]:
        """Yield results and, if the front end asks for it, output of commands between them."""
        async with contextlib.aclosing(results):
            if not self._context.streams_output:
                async for done in results:
                    yield done
                return
            outputs = self._outputs = asyncio.Queue()
            while True:
                result = asyncio.ensure_future(anext(results, None))
                try:
                    while not result.done():
                        output = asyncio.ensure_future(outputs.get())
                        try:
                            await asyncio.wait((result, output), return_when=asyncio.FIRST_COMPLETED)
                        finally:
                            if not output.done():
                                output.cancel()
                        if output.done() and not output.cancelled():
                            yield output.result()
                    found = result.result()
                finally:
                    if not result.done():
                        result.cancel()
                        await asyncio.gather(result, return_exceptions=True)
                while not outputs.empty():
                    yield outputs.get_nowait()
                if found is None:
                    return
                yield found

    def _output_listener(self, call_id: str) -> Callable[[bytes], None] | None:
        """Return the function that takes output of a call's command in a worker, or None."""
        if self._outputs is None:
            return None
        loop, outputs = asyncio.get_running_loop(), self._outputs
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode

        def take(data: bytes) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(outputs.put_nowait, ToolOutput(call_id, decode(data)))

        return take

    def _plan(self) -> str:
        """List the calls to run; return the sentence that ends the turn after them, or ""."""
        repetition = self._turn.repeated_calls
        for place, call in enumerate(self._left, self._place):
            name, arguments = self._context.dispatcher.resolve(call, self._valid)
            count = repetition.count(name, arguments, call.arguments)
            if repetition.ends_turn(count):
                return repetition.end_sentence(name, count)
            self._calls.append(_PendingCall(call, name, arguments, count, place))
        return ""

    def _about_to_run(self, group: list[_PendingCall]) -> None:
        """Record with the next commit that calls are about to run."""
        self._context.history.record.turn_record(self._turn.id).calls.extend(
            CallRecord(item.place, item.name) for item in group
        )

    async def _run(
        self, group: list[_PendingCall], following: list[_PendingCall]
    ) -> AsyncGenerator[_PendingCall, None]:
        """Run calls in parallel and yield each at its end; results are stored in the order of the calls."""
        if len(group) == 1:
            group[0].outcome = await self._outcome(group[0], self._scope)
            await self._keep(group, following)
            yield group[0]
            return
        limit, flags = asyncio.Semaphore(MAX_PARALLEL), {id(c): threading.Event() for c in group}
        self._context.interrupt.set_with(flags.values())

        async def one(item: _PendingCall) -> _PendingCall:
            async with limit:
                self._context.interrupt.check()
                item.outcome = await self._outcome(item, replace(self._scope, cancelled=flags[id(item)]))
            return item

        tasks = {asyncio.ensure_future(one(item)): item for item in group}
        try:
            async for item in self._in_order_of_end(tasks, flags):
                assert item.outcome is not None
                note = CallRecord(item.place, item.name, item.outcome.status, item.outcome.result)
                self._context.history.record.turn_record(self._turn.id).calls.append(note)
                await self._context.history.commit()
                yield item
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._keep(group, following)

    async def _in_order_of_end(
        self, tasks: dict[asyncio.Task[_PendingCall], _PendingCall], flags: dict[int, threading.Event]
    ) -> AsyncGenerator[_PendingCall, None]:
        limit_s = batch_limit_s()
        loop = asyncio.get_running_loop()
        until, pending, interrupted = loop.time() + limit_s, set(tasks), False
        while pending:
            timeout = max(0.0, until - loop.time())
            done, pending = await asyncio.wait(pending, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=list(tasks).index):
                try:
                    yield task.result()
                except Interrupted:  # the other calls have the same grace period
                    interrupted = True
            if not done:
                for task in sorted(pending, key=list(tasks).index):
                    item = tasks[task]
                    flags[id(item)].set()
                    text = tool_error(f"{item.name} did not end within {limit_s:g} s; it was told to stop")
                    item.outcome = ToolOutcome(item.name, item.arguments or {}, text, "timeout", round(limit_s * 1000))
                    yield item
                break
        if interrupted:
            raise Interrupted

    async def _outcome(self, item: _PendingCall, scope: CallScope) -> ToolOutcome:
        if item.place in self._turn.known_results:
            result = self._turn.known_results[item.place]
            return ToolOutcome(item.name, item.arguments or {}, result, status_of(result)[0], 0)
        owner = self._context.tools.owner(item.name)
        with log_context(tool=item.name, plugin=owner if owner != BUILTIN else None):
            if (listener := self._output_listener(item.call.id)) is not None:
                scope = replace(scope, on_output=listener)
            work = self._context.dispatcher.run(item.call.id, item.name, item.arguments, scope, valid=self._valid)
            outcome = await self._context.interrupt.run(work, grace_s=GRACE_S)
            logger.info("%s: %s after %d ms", outcome.name, outcome.status, outcome.duration_ms)
        self._turn.calls += 1
        if path := changed_path(outcome):
            self._turn.changed_files[path] = None
        more = self._turn.repeated_calls.notice(item.name, item.count) + await self._add_folder_instructions(outcome)
        return outcome._replace(result=outcome.result + more) if more else outcome

    async def _add_folder_instructions(self, outcome: ToolOutcome) -> str:
        """Return the instructions of folders that a call is the first to name."""
        context, folders = self._context, self._context.history.folders
        if context.read_filter is None or not (paths := folders.new_paths(outcome.name, outcome.arguments)):
            return ""
        results = [message.text for message in context.history.messages if message.role == "tool"]
        found = await context.bridge.run(folders.load_instructions, paths, results, context.read_filter)
        for notice in found.notices:
            logger.warning("%s", notice)
        context.notices += found.notices
        return found.text

    async def _keep(self, group: list[_PendingCall], following: list[_PendingCall]) -> None:
        """Store the results, in the commit that records which calls run next."""
        note = self._context.history.record.turn_record(self._turn.id)
        for item in group:
            if item.outcome is not None:
                message = Message("tool", item.outcome.result, tool_call_id=item.call.id, tool_name=item.outcome.name)
                self._context.history.add(message)
                note.calls.append(CallRecord(item.place, item.name, item.outcome.status))
                self._left.remove(item.call)
        self._about_to_run(following)
        await self._context.history.commit()

    async def _close(self, result: str) -> AsyncGenerator[TurnEvent, None]:
        """Add a result for the calls that did not run."""
        for call in self._left:
            self._context.history.add(Message("tool", result, tool_call_id=call.id, tool_name=call.name))
            yield ToolFinished(call.id, call.name, result, "cancelled", 0)
        self._left.clear()
