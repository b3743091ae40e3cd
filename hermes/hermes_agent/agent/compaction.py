"""Compaction of a session: when its context engine shortens the history, and how the result is used.

Source: plugin contract §8.4.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from hermes_agent.agent.compressor import TokenCount, match_messages, rough_tokens
from hermes_agent.agent.settings import CompressionSettings
from hermes_agent.agent.turn_context import Interrupted, TurnContext
from hermes_agent.contracts import context_engine
from hermes_agent.contracts.context_engine import ContextEngine, Messages
from hermes_agent.contracts.model_client import ToolDefinitions
from hermes_agent.core.calls import call_supported, overrides
from hermes_agent.core.errors import ContextTooLong, UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.messages import Message, Usage
from hermes_agent.core.text import count_tokens
from hermes_agent.runtime.bridge import Bridge

logger = logging.getLogger(__name__)

API_MODE = "chat_completions"
MEMORY_S = 8.0
"""Time limit for the memory provider to say what must be kept."""
SELECT_S = 5.0
"""Time limit for what the engine of a plugin is asked or notified of besides compactions."""
UNDERCOUNT_RATIO = 3
"""A reported usage is ignored if a rough count of the text alone is this many times higher."""
DOUBT_RATIO = 1000
"""Tokens of text below which the reported usage is not checked."""
HELD_WINDOWS = 4
"""Context windows of messages that are kept in memory for a server that truncates; beyond that, half of them."""


class ContextUsage(LazyNamedTuple):
    """What fills the context of a conversation, in approximate tokens."""

    window: int
    """Context window; 0 if unknown."""
    tokens: int
    """Tokens of the next request."""
    system_prompt: int
    tools: int
    messages: int
    tool_count: int
    message_count: int
    threshold: int
    """Tokens at which the conversation is compacted; 0 if that is off or unknown."""


class SessionCompaction:
    """The context engine of one session, and what is known about its size.

    Args:
        plugin: the plugin of the engine; "" for the built-in one.
        settings: the settings under `compression`.
        own_engine: returns a new built-in engine.
        before: returns what the memory provider wants to keep (`ContextEngines.before`).
        compacted: called after each compaction.
    """

    def __init__(
        self,
        engine: ContextEngine,
        bridge: Bridge,
        settings: CompressionSettings,
        own_engine: Callable[[], ContextEngine],
        *,
        plugin: str,
        before: Callable[[str, Messages], str] | None,
        compacted: Callable[[dict[str, Any]], None],
    ) -> None:
        self.engine = engine
        self.plugin = plugin
        self.last: Messages = []
        """The messages when the last conversation was closed."""
        self.current: Callable[[], Messages] = list
        """Returns the present messages, while a conversation is open."""
        self._bridge = bridge
        self._settings = settings
        self._own_engine = own_engine
        self._before = before
        self._compacted = compacted
        self._model: tuple[str, str, int] | None = None
        self._limits: dict[str, int] = {}
        """Context windows that providers named when they refused a request, by model."""
        self._counted = TokenCount()
        self._size: tuple[int, int] | None = None
        """Tokens of the last request, and those of the history at that time."""
        self._size_is_real = False
        """`_size` is based on the usage of an answer, or on the agent's count where that usage is implausible."""
        self._doubted = False
        """Whether the usage that this model reports is ignored, because it was implausible once."""
        self._not_below = 0
        """Tokens from which on the engine is called again; below that number it could not help."""

    # -- size --------------------------------------------------------------------------------------------------

    def size(self, context: TurnContext, tools: Sequence[dict[str, Any]]) -> int:
        """Return the approximate tokens of the next request; only new messages are counted."""
        if not self._counted.add(context.history.messages):
            self._size = None
        if self._size is None:
            tokens = count_tokens(context.history.system_prompt) + _tool_tokens(tools)
            self._size, self._size_is_real = (tokens, 0), False
        tokens, before = self._size
        return tokens + self._counted.tokens - before

    def context_length(self, context: TurnContext) -> int:
        """Return the context window in tokens; 0 if unknown, or if the server truncates by itself."""
        return self._limits.get(context.model.name) or context.model.chosen.context_length

    # -- around a request --------------------------------------------------------------------------------------

    async def fit(self, context: TurnContext, tools: Sequence[dict[str, Any]], begun: Callable[[], int]) -> str:
        """Shorten the history before a request if it is time; return the notice for the user, or "".

        Args:
            begun: returns where the running turn starts in the history, or -1 (`TurnState.place`).
        """
        self.current = lambda: [m.to_dict() for m in context.history.messages]
        length = await self._know_model(context)
        if context.session.is_stored and context.model.chosen.client.fits_within:
            await self._release(context, HELD_WINDOWS * context.model.chosen.client.fits_within, begun)
        if not (length and context.session.is_stored and self._settings.enabled):
            return ""
        size = self.size(context, tools)
        if size < self._not_below:
            return ""
        is_full = self._size_is_real and size >= length  # a server that truncates reports no error
        try:
            if not (is_full or await self._is_time(context, size)):
                return ""
            if await self._prune(context, size):
                size = self.size(context, tools)
                if not await self._is_time(context, size):
                    return ""
            return await self._status(await self._compact(context, size, force=is_full), size)
        except UserError as exc:
            self._not_below = size + size // 10
            logger.warning("compaction: failed: %s", exc)
            return f"The conversation gets long, and could not be made shorter: {exc.message}"

    async def shorten_after_overflow(
        self, context: TurnContext, tools: Sequence[dict[str, Any]], error: ContextTooLong
    ) -> str:
        """Shorten the history after the provider refused its length; return the notice, or "" if that failed."""
        if not self._settings.enabled:
            return ""
        size = self.size(context, tools)
        limit = error.limit_tokens or min(self.context_length(context) or size, size)
        self._limits[context.model.name] = max(int(limit), 1)
        await self._know_model(context)
        return await self._compact(context, size, force=True)

    async def record_usage(self, context: TurnContext, tools: Sequence[dict[str, Any]], usage: Usage) -> None:
        """Record the usage of an answer."""
        total = self._believed(context, tools, usage)
        if total:
            if self._not_below and not self._size_is_real:  # it was set by a rough count, which may be wrong
                self._not_below = total + total // 10
            self._size, self._size_is_real = (total, self._counted.tokens), True
            counts = {"prompt_tokens": total - usage.output_tokens, "completion_tokens": usage.output_tokens}
            counts["total_tokens"] = total
            if self.plugin:
                await self.notify_engine("update_from_response", counts)
            else:
                self.engine.update_from_response(counts)

    def _believed(self, context: TurnContext, tools: Sequence[dict[str, Any]], usage: Usage) -> int:
        """Return the tokens of a request and its answer: the reported ones if they are plausible.

        Several local servers report a constant.
        """
        counted = self.size(context, tools)  # first: it counts the new messages
        reported, text = usage.total_tokens, count_tokens(context.history.system_prompt) + self._counted.text
        if not self._doubted:
            if not reported or text < DOUBT_RATIO or reported * UNDERCOUNT_RATIO >= text:
                return reported
            self._doubted, self._size = True, None  # earlier reports may be as wrong
            counted = self.size(context, tools)
            message = "model %s of %s: reported %d tokens for a request of about %d; the agent's own count is used"
            logger.warning(message, context.model.name, context.model.provider, reported, counted)
        return max(reported, counted)

    async def _release(self, context: TurnContext, most: int, begun: Callable[[], int]) -> None:
        """Keep at most the newest `most` tokens in memory, because the server truncates.

        The store keeps all messages.
        """
        if not self._counted.add(context.history.messages):
            self._size = None
        if self._counted.tokens <= most:
            return
        start, left = len(context.history.messages), most // 2
        while start > 0 and (left := left - rough_tokens([context.history.messages[start - 1].to_dict()])) >= 0:
            start -= 1
        begins = (
            at for at in range(start, len(context.history.messages)) if context.history.messages[at].role == "user"
        )
        # the running turn is never cut; a message that came during it is part of it
        latest = begun()
        if latest < 0:
            places = range(len(context.history.messages) - 1, -1, -1)
            latest = next(at for at in places if at == 0 or context.history.messages[at].role == "user")
        start = min(next(begins, latest), latest)
        if start:
            before, newest = self._counted.tokens, context.history.messages[start:]
            origin = {new: new + start for new in range(len(newest))}
            await context.history.replace(newest, origin, (before, rough_tokens(m.to_dict() for m in newest)))
            logger.info("history: %d messages released from memory; the store keeps them", start)

    async def compress_now(self, context: TurnContext, focus: str = "") -> str:
        """Shorten the history at the user's request; return the answer for the user.

        Raises:
            UserError: no summary is available.
        """
        self.current = lambda: [m.to_dict() for m in context.history.messages]
        await self._know_model(context)
        size = self.size(context, await context.load_definitions())
        return await self._compact(context, size, focus=focus, wanted=True)

    async def usage(self, context: TurnContext) -> ContextUsage:
        """Return what fills the context window."""
        length = await self._know_model(context)
        tools, messages = await context.load_definitions(), context.history.messages
        threshold = int((self.engine.get_status() or {}).get("threshold_tokens") or 0)
        return ContextUsage(
            length,
            self.size(context, tools),
            count_tokens(context.history.system_prompt),
            count_tokens(json.dumps(tools, ensure_ascii=False)),
            rough_tokens(m.to_dict() for m in messages),
            len(tools),
            len(messages),
            threshold if self._settings.enabled and length else 0,
        )

    async def describe(self, context: TurnContext) -> str:
        """Return for the user how full the context window is."""
        usage = await self.usage(context)
        room = f" of {usage.window} ({100 * usage.tokens // usage.window} %)" if usage.window else ""
        lines = [
            f"{context.model.name}: about {usage.tokens} tokens{room}",
            f"  system prompt  about {usage.system_prompt}",
            f"  {usage.tool_count} tools  about {usage.tools}",
            f"  {usage.message_count} messages  about {usage.messages}",
            f"context engine: {self.engine.name}" + (f", of plugin `{self.plugin}`" if self.plugin else ""),
        ]
        if not self._settings.enabled:
            lines.append("The conversation is not made shorter by itself (`compression.enabled` is false).")
        elif usage.threshold:
            count = (self.engine.get_status() or {}).get("compression_count") or 0
            lines.append(f"It is made shorter at {usage.threshold} tokens; {count} time(s) so far.")
            if why := await self._ask("should_compress_info", usage.tokens, read=_reason):
                lines.append(why)
        else:
            lines.append("The context window of the model is unknown; set `model.context_length`.")
        return "\n".join(lines)

    def on_leave(self, messages: Messages) -> None:
        """Note that the conversation was closed with these messages."""
        self.last = messages
        self.current = lambda: self.last

    def fall_back(self, plugin: str, why: str) -> str:
        """Replace the engine of a plugin by the built-in one; return the notice for the user."""
        logger.warning("context engine of plugin `%s`: not used any more in this session: %s", plugin, why)
        self.engine, self.plugin, self._model = self._own_engine(), "", None
        return f"The context engine of plugin `{plugin}` is not used in this session: {why}. The built-in one is used."

    async def notify_engine(self, method: str, *args: Any, **keywords: Any) -> None:
        """Call a method of the engine and ignore its result."""
        try:
            notify = partial(getattr(self.engine, method), *args, **keywords)
            if self.plugin:
                await self._bridge.run(notify)
            else:  # the built-in engine is quick
                notify()
        except Exception as exc:  # noqa: BLE001 - a plugin's engine, and nothing depends on it
            logger.warning("context engine of plugin `%s`: %s() failed: %r", self.plugin, method, exc)

    # -- the engine --------------------------------------------------------------------------------------------

    async def _know_model(self, context: TurnContext) -> int:
        length = self.context_length(context)
        known = (context.model.name, context.model.provider, length)
        if known != self._model:
            self._model, self._doubted = known, False
            client = context.model.chosen.client
            keywords = {"base_url": client.base_url, "provider": context.model.provider, "api_mode": API_MODE}
            await context.interrupt.run(self.notify_engine("update_model", context.model.name, length, **keywords))
        return length

    async def _is_time(self, context: TurnContext, size: int) -> bool:
        if not self.plugin:  # the built-in engine is quick, and needs no messages
            return self.engine.should_compress(size) and self.engine.has_content_to_compress(self.current())
        work = self._bridge.run(self._is_time_for_plugin, self.current(), size, context.model.name)
        return await context.interrupt.run(work)

    def _is_time_for_plugin(self, messages: Messages, size: int, model: str) -> bool:
        """Call the engine of a plugin, in a worker."""
        engine, due = self.engine, False
        try:
            if not self._size_is_real:
                if engine.should_defer_preflight_to_real_usage(size):
                    return False
                due = engine.should_compress_preflight(messages)
            due = due or context_engine.should_compress(engine, prompt_tokens=size, messages=messages, model=model)
            return bool(due and engine.has_content_to_compress(messages))
        except Exception as exc:  # noqa: BLE001 - a plugin's engine; the built-in one replaces it
            self.fall_back(self.plugin, f"its check whether to compress failed: {exc!r}")
            return False

    async def _compact(
        self, context: TurnContext, tokens: int, *, focus: str = "", force: bool = False, wanted: bool = False
    ) -> str:
        """Have the engine shorten the history, and use the result.

        Args:
            force: the history must become shorter, also without a summary.
            wanted: the user requested it.

        Raises:
            UserError: the built-in engine has no model for a summary.
        """
        before, notice = list(context.history.messages), ""
        offered: dict[str, Any] = {
            "current_tokens": tokens,
            "focus_topic": focus or None,
            "force": force,
            "model": context.model.name,
        }
        if wanted and self.plugin:
            offered["force"] = True
        given = [m.to_dict() for m in before]
        offered["memory_context"] = await self._memory_context(context, given)
        while True:
            try:
                ask = partial(context_engine.compress, self.engine, list(given), **offered)
                with context.use_scope():
                    after, origin = match_messages(before, await context.interrupt.run(self._bridge.run(ask)))
                break
            except Interrupted:
                raise
            except Exception as exc:
                if not self.plugin:
                    raise
                notice = self.fall_back(self.plugin, f"compress() failed: {exc!r}") + "\n"
                await self._know_model(context)
        tokens_before, tokens_after = rough_tokens(given), rough_tokens(m.to_dict() for m in after)
        if tokens_after >= tokens_before:
            self._not_below = tokens + tokens // 10
            return (
                notice + "There is nothing in this conversation that could be left out yet."
                if wanted
                else notice.strip()
            )
        await context.history.replace(after, origin, (tokens_before, tokens_after))
        # not by a new count of the same object: an engine may keep the number of messages and the last one
        self._counted, self._size = TokenCount(), None
        left = max(tokens - tokens_before, 0) + tokens_after
        self._not_below = left + left // 4 if await self._is_time(context, left) else 0
        logger.info("compacted: %d messages became %d", len(before), len(after))
        ids = {"session_id": context.session.id, "old_session_id": context.session.id}
        count = {"in_place": True, "compression_count": self.engine.compression_count}
        self._compacted({"platform": context.session.platform, **ids, **count})
        return (
            f"{notice}The conversation was made shorter: {len(before)} messages, about {tokens_before} tokens, became"
            f" {len(after)}, about {tokens_after}. What was said stays in the session's transcript."
        )

    async def _prune(self, context: TurnContext, tokens: int) -> bool:
        """Let the engine of a plugin shorten results of tools; return whether the history became shorter."""
        if not self._has_own("prune_tool_results_only"):
            return False
        before = list(context.history.messages)
        given = [m.to_dict() for m in before]

        def read(answer: tuple[Messages, int]) -> tuple[list[Message], dict[int, int]] | None:
            return match_messages(before, answer[0]) if answer[1] else None

        ask = self._ask("prune_tool_results_only", given, read=read, limit_s=None, current_tokens=tokens)
        if (shorter := await context.interrupt.run(ask)) is None:
            return False
        after, origin = shorter
        sizes = rough_tokens(given), rough_tokens(m.to_dict() for m in after)
        if sizes[1] >= sizes[0]:
            return False
        await context.history.replace(after, origin, sizes)
        self._counted, self._size = TokenCount(), None
        logger.info("compaction: results of tools shortened by plugin `%s`", self.plugin)
        return True

    async def _status(self, notice: str, tokens: int) -> str:
        """Return the notice after a compaction without a request, as the engine of a plugin words it."""
        if not notice:
            return ""
        offered: dict[str, Any] = {"phase": "compress", "default_message": notice, "approx_tokens": tokens}
        own = await self._ask("get_automatic_compaction_status_message", read=lambda text: str(text or ""), **offered)
        return notice if own is None else own

    async def select(self, context: TurnContext, sent: Sequence[Message]) -> Sequence[Message]:
        """Return the messages of a request: those that the engine of a plugin selects, or `sent`."""
        if not self._has_own("select_context"):
            return sent
        given = [m.to_dict() for m in sent]
        offered: dict[str, Any] = {
            "conversation_messages": self.current(),
            "incoming_message": next((m for m in reversed(given) if m.get("role") == "user"), None),
            "budget_tokens": self.context_length(context),
        }

        def read(answer: Messages | None) -> list[Message] | None:
            return None if answer is None else match_messages(sent, answer)[0]

        chosen = await context.interrupt.run(self._ask("select_context", given, read=read, **offered))
        return sent if chosen is None else chosen

    async def complete_turn(self, usage: Usage, **ids: Any) -> None:
        """Notify the engine of a plugin of the end of a turn."""
        if not self._has_own("on_turn_complete"):
            return
        total = usage.total_tokens
        counts = {"prompt_tokens": total - usage.output_tokens, "completion_tokens": usage.output_tokens}
        counts["total_tokens"] = total
        await self._ask("on_turn_complete", self.current(), usage=counts if total else None, **ids)

    def _has_own(self, method: str) -> bool:
        """Return whether the engine is that of a plugin and has an optional method of its own."""
        return bool(self.plugin) and overrides(self.engine, ContextEngine, method)

    async def _ask(
        self,
        method: str,
        *positional: Any,
        read: Callable[[Any], Any] | None = None,
        limit_s: float | None = SELECT_S,
        **offered: Any,
    ) -> Any:
        """Return the answer of an optional method of a plugin's engine; None without one, and after a failure.

        Args:
            read: returns what the answer means; its failure counts as that of the method.
            offered: arguments by name, given if the method takes them.
        """
        if not self._has_own(method):
            return None
        ask = partial(call_supported, getattr(self.engine, method), [("", value) for value in positional], offered)
        try:
            answer = await self._bridge.run(ask, deadline_s=limit_s)
            return answer if read is None else read(answer)
        except Exception as exc:  # noqa: BLE001 - a plugin's engine; the agent goes on as without the method
            logger.warning("context engine of plugin `%s`: %s failed: %r", self.plugin, method, exc)
            return None

    async def _memory_context(self, context: TurnContext, messages: Messages) -> str:
        """Return what the memory provider wants to keep, or "" after a time limit."""
        ask = self._before
        if ask is None:
            return ""
        try:
            return await context.interrupt.run(self._bridge.run(ask, context.session.id, messages, deadline_s=MEMORY_S))
        except TimeoutError:
            logger.warning("memory provider: no answer within %g s to what a compaction must keep", MEMORY_S)
            return ""


def _tool_tokens(tools: Sequence[dict[str, Any]]) -> int:
    """Return the approximate tokens of tools, counted once for all sessions with the same ones."""
    if isinstance(tools, ToolDefinitions) and tools.tokens is not None:
        return tools.tokens
    tokens = count_tokens(json.dumps(list(tools), ensure_ascii=False)) if tools else 0
    if isinstance(tools, ToolDefinitions):
        tools.tokens = tokens
    return tokens


def _reason(answer: tuple[bool, str]) -> str:
    due, why = answer
    return f"{'Due now' if due else 'Not due now'}: {why}" if why else ""
