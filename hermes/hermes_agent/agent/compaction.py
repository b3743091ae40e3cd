"""A session that must not outgrow its model: when its engine is asked, and what becomes of its answer.

Source: plugin contract §8.4.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from hermes_agent.agent.compressor import count_tokens, rough_tokens, text_tokens
from hermes_agent.agent.turn_context import Interrupted
from hermes_agent.contracts import context_engine
from hermes_agent.contracts.context_engine import ContextEngine, Messages
from hermes_agent.core.errors import ContextTooLong, UserError
from hermes_agent.core.messages import Message, Usage
from hermes_agent.runtime.bridge import Bridge

if TYPE_CHECKING:
    from hermes_agent.agent.context_engines import ContextEngines
    from hermes_agent.agent.conversation import Conversation


logger = logging.getLogger(__name__)

T = TypeVar("T")

API_MODE = "chat_completions"
MEMORY_S = 8.0
"""How long a memory may think about what must not be lost."""
UNDERCOUNT_RATIO = 3
"""A reported usage is not believed when the text alone has so many times as many tokens by our rough count."""
DOUBT_RATIO = 1000
"""Tokens below which it does not matter."""
HELD_WINDOWS = 4
"""So many times what it can see is held of a conversation that a model makes fit by itself; then half of that."""


class _Run(Protocol):
    """Awaits work, and gives up when the turn is interrupted."""

    def __call__(self, work: Coroutine[Any, Any, T], /) -> Awaitable[T]: ...


async def _await_plainly(work: Coroutine[Any, Any, T]) -> T:
    return await work


class _TokenCount:
    """Tokens of a history that grows; only what is new is counted."""

    def __init__(self) -> None:
        self.tokens = 0
        self.text = 0
        """Those of text alone."""
        self._count = 0
        self._last: Message | None = None

    def add(self, history: Sequence[Message]) -> bool:
        """Count; false when it is another history than the last time, which is counted from its begin."""
        grew = self._count == 0 or (self._count <= len(history) and history[self._count - 1] == self._last)
        if not grew:
            self.tokens = self.text = self._count = 0
        if new := [message.to_dict() for message in history[self._count :]]:
            self.tokens += rough_tokens(new)
            self.text += text_tokens(new)
            self._count, self._last = len(history), history[-1]
        return grew


class SessionCompaction:
    """The engine of one session, and what is known about its size.

    Args:
        plugin: whose engine it is; empty for the agent's own.
    """

    def __init__(self, engine: ContextEngine, contexts: ContextEngines, *, plugin: str) -> None:
        self.engine = engine
        self.plugin = plugin
        self.last: Messages = []
        """What was said when somebody left."""
        self.current: Callable[[], Messages] = list
        """Returns what is said now, while somebody is here."""
        self._contexts = contexts
        self._model: tuple[str, str, int] | None = None
        self._limits: dict[str, int] = {}
        """Context lengths that providers told when they refused, by model."""
        self._counted = _TokenCount()
        self._size: tuple[int, int] | None = None
        """Tokens of everything that went into a request, and those of the history that were counted then."""
        self._size_is_real = False
        """An answer came with its usage: `_size` began with that, or with our count where the usage cannot be right."""
        self._doubted = False
        """What this model reports is not believed: once it could not be right."""
        self._not_below = 0
        """The engine is asked again from so many tokens on: below it could not help."""

    # -- looking -----------------------------------------------------------------------------------------------

    def size(self, talk: Conversation, tools: Sequence[dict[str, Any]]) -> int:
        """Return about how many tokens the next request has; only what is new is counted."""
        if not self._counted.add(talk.history):
            self._size = None
        if self._size is None:
            of_tools = count_tokens(json.dumps(list(tools), ensure_ascii=False)) if tools else 0
            self._size, self._size_is_real = (count_tokens(talk.system_prompt) + of_tools, 0), False
        tokens, before = self._size
        return tokens + self._counted.tokens - before

    def context_length(self, talk: Conversation) -> int:
        """Return how many tokens the model can see; 0 when nobody knows, or it makes things fit itself."""
        return self._limits.get(talk.model) or talk.chosen.context_length

    # -- around a request --------------------------------------------------------------------------------------

    async def fit(
        self, talk: Conversation, tools: Sequence[dict[str, Any]], run: _Run, begun: Callable[[], int]
    ) -> str:
        """Before a request: make the conversation shorter when it is time; return what the user is told.

        Args:
            begun: returns where the turn that runs begins in the history, or -1 (`TurnState.place`).
        """
        self.current = lambda: [m.to_dict() for m in talk.history]
        length = await self._know_model(talk, run)
        if talk.is_stored and talk.chosen.client.fits_within:
            await self._release(talk, HELD_WINDOWS * talk.chosen.client.fits_within, begun)
        if not (length and talk.is_stored and self._contexts.settings.enabled):
            return ""
        size = self.size(talk, tools)
        if size < self._not_below:
            return ""
        is_full = self._size_is_real and size >= length  # a server that leaves out what is too long says nothing
        try:
            if not (is_full or await self._is_time(talk, size, run)):
                return ""
            return await self._compact(talk, size, run, force=is_full)
        except UserError as exc:
            self._not_below = size + size // 10
            logger.warning("the conversation was not made shorter: %s", exc)
            return f"The conversation gets long, and could not be made shorter: {exc.message}"

    async def shorten_after_overflow(
        self, talk: Conversation, tools: Sequence[dict[str, Any]], error: ContextTooLong, run: _Run
    ) -> str:
        """After the provider found it too long: make it shorter; empty when that cannot be."""
        if not self._contexts.settings.enabled:
            return ""
        size = self.size(talk, tools)
        limit = error.limit_tokens or min(self.context_length(talk) or size, size)
        self._limits[talk.model] = max(int(limit), 1)
        await self._know_model(talk, run)
        return await self._compact(talk, size, run, force=True)

    async def record_usage(self, talk: Conversation, tools: Sequence[dict[str, Any]], usage: Usage) -> None:
        """After an answer: note what the request took."""
        total = self._believed(talk, tools, usage)
        if total:
            if self._not_below and not self._size_is_real:  # it was set by a rough count, which may be far off
                self._not_below = total + total // 10
            self._size, self._size_is_real = (total, self._counted.tokens), True
            counts = {"prompt_tokens": total - usage.output_tokens, "completion_tokens": usage.output_tokens}
            counts["total_tokens"] = total
            if self.plugin:
                await self.notify_engine(talk.agent.bridge, "update_from_response", counts)
            else:
                self.engine.update_from_response(counts)

    def _believed(self, talk: Conversation, tools: Sequence[dict[str, Any]], usage: Usage) -> int:
        """Return how many tokens a request and its answer had: as reported, or as counted where that is far too few.

        Several local servers report a constant.
        """
        counted = self.size(talk, tools)  # first: it counts what is new
        reported, text = usage.total_tokens, count_tokens(talk.system_prompt) + self._counted.text
        if not self._doubted:
            if not reported or text < DOUBT_RATIO or reported * UNDERCOUNT_RATIO >= text:
                return reported
            self._doubted, self._size = True, None  # what was believed until now may be as wrong
            counted = self.size(talk, tools)
            said = "model %s of %s reported %d tokens for a request of about %d; what is counted here is used instead"
            logger.warning(said, talk.model, talk.provider, reported, counted)
        return max(reported, counted)

    async def _release(self, talk: Conversation, most: int, begun: Callable[[], int]) -> None:
        """Hold the newest `most` tokens at most of a conversation that its model makes fit; the store has all of it."""
        if not self._counted.add(talk.history):
            self._size = None
        if self._counted.tokens <= most:
            return
        start, left = len(talk.history), most // 2
        while start > 0 and (left := left - rough_tokens([talk.history[start - 1].to_dict()])) >= 0:
            start -= 1
        begins = (at for at in range(start, len(talk.history)) if talk.history[at].role == "user")
        # the turn that runs is never cut, however long; a message that was said during it is part of it
        latest = begun()
        if latest < 0:
            places = range(len(talk.history) - 1, -1, -1)
            latest = next(at for at in places if at == 0 or talk.history[at].role == "user")
        start = min(next(begins, latest), latest)
        if start:
            before, kept = self._counted.tokens, talk.history[start:]
            origin = {new: new + start for new in range(len(kept))}
            await talk.replace_history(kept, origin, (before, rough_tokens(m.to_dict() for m in kept)))
            logger.info("%d messages are held in memory no more; they are in the store", start)

    async def compress_now(self, talk: Conversation, focus: str = "") -> str:
        """Make the conversation shorter because somebody wants it; return what became of it.

        Raises:
            UserError: no summary can be had.
        """
        self.current = lambda: [m.to_dict() for m in talk.history]
        await self._know_model(talk, _await_plainly)
        size = self.size(talk, await talk.agent.bridge.run(talk.definitions))
        return await self._compact(talk, size, _await_plainly, focus=focus, wanted=True)

    async def describe(self, talk: Conversation) -> str:
        """Return for a person how full the context is."""
        length = await self._know_model(talk, _await_plainly)
        tools = await talk.agent.bridge.run(talk.definitions)
        size, of_tools = self.size(talk, tools), count_tokens(json.dumps(tools, ensure_ascii=False))
        status = self.engine.get_status() or {}
        threshold = int(status.get("threshold_tokens") or 0)
        room = f" of {length} ({100 * size // length} %)" if length else ""
        lines = [
            f"{talk.model}: about {size} tokens{room}",
            f"  system prompt  about {count_tokens(talk.system_prompt)}",
            f"  {len(tools)} tools  about {of_tools}",
            f"  {len(talk.history)} messages  about {rough_tokens(m.to_dict() for m in talk.history)}",
            f"context engine: {self.engine.name}" + (f", of plugin `{self.plugin}`" if self.plugin else ""),
        ]
        if not self._contexts.settings.enabled:
            lines.append("The conversation is not made shorter by itself (compression.enabled is false).")
        elif threshold and length:
            lines.append(
                f"It is made shorter at {threshold} tokens; {status.get('compression_count') or 0} time(s) so far."
            )
        else:
            lines.append("How much the model can see is not known here; `model.context_length` says it.")
        return "\n".join(lines)

    def on_leave(self, messages: Messages) -> None:
        """Nobody is here any more; these were the messages."""
        self.last = messages
        self.current = lambda: self.last

    def fall_back(self, plugin: str, why: str) -> str:
        """Let the agent's own engine take the place of a plugin's; return what the person is told."""
        logger.warning("the context engine of plugin `%s` is not used any more in this session: %s", plugin, why)
        self.engine, self.plugin, self._model = self._contexts.own_engine(), "", None
        return f"The context engine of plugin `{plugin}` is not used in this session: {why}; the agent's own is."

    async def notify_engine(self, bridge: Bridge, method: str, *args: Any, **keywords: Any) -> None:
        """Call a method of the engine whose answer does not matter."""
        try:
            await bridge.run(getattr(self.engine, method), *args, **keywords)
        except Exception as exc:  # noqa: BLE001 - a plugin's engine, and nothing depends on it
            logger.warning("context engine of plugin `%s`: %s() failed: %r", self.plugin, method, exc)

    # -- the engine --------------------------------------------------------------------------------------------

    async def _know_model(self, talk: Conversation, run: _Run) -> int:
        length = self.context_length(talk)
        known = (talk.model, talk.provider, length)
        if known != self._model:
            self._model, self._doubted = known, False
            client = talk.chosen.client
            keywords = {"base_url": client.base_url, "provider": talk.provider, "api_mode": API_MODE}
            await run(self.notify_engine(talk.agent.bridge, "update_model", talk.model, length, **keywords))
        return length

    async def _is_time(self, talk: Conversation, size: int, run: _Run) -> bool:
        if not self.plugin:  # ours is quick, and needs no message for it
            return self.engine.should_compress(size) and self.engine.has_content_to_compress(self.current())
        return await run(talk.agent.bridge.run(self._says_plugin, self.current(), size, talk.model))

    def _says_plugin(self, messages: Messages, size: int, model: str) -> bool:
        """Ask a plugin's engine; in a worker."""
        engine, due = self.engine, False
        try:
            if not self._size_is_real:
                if engine.should_defer_preflight_to_real_usage(size):
                    return False
                due = engine.should_compress_preflight(messages)
            due = due or context_engine.should_compress(engine, prompt_tokens=size, messages=messages, model=model)
            return bool(due and engine.has_content_to_compress(messages))
        except Exception as exc:  # noqa: BLE001 - a plugin's engine; the agent's own goes on
            self.fall_back(self.plugin, f"it could not say whether it is time: {exc!r}")
            return False

    async def _compact(
        self, talk: Conversation, tokens: int, run: _Run, *, focus: str = "", force: bool = False, wanted: bool = False
    ) -> str:
        """Have the engine make the conversation shorter, and keep the result.

        Args:
            force: it must become shorter, at whatever price.
            wanted: somebody asked for it.

        Raises:
            UserError: the agent's own engine found nobody to write a summary.
        """
        before, notice = list(talk.history), ""
        offered: dict[str, Any] = {
            "current_tokens": tokens,
            "focus_topic": focus or None,
            "force": force,
            "model": talk.model,
        }
        if wanted and self.plugin:
            offered["force"] = True
        given = [m.to_dict() for m in before]
        offered["memory_context"] = await self._kept(talk, given, run)
        while True:
            try:
                ask = partial(context_engine.compress, self.engine, list(given), **offered)
                with talk.use_context():
                    after, origin = _match_messages(before, await run(talk.agent.bridge.run(ask)))
                break
            except Interrupted:
                raise
            except Exception as exc:
                if not self.plugin:
                    raise
                notice = self.fall_back(self.plugin, f"compress() failed: {exc!r}") + "\n"
                await self._know_model(talk, run)
        tokens_before, tokens_after = rough_tokens(given), rough_tokens(m.to_dict() for m in after)
        if tokens_after >= tokens_before:
            self._not_below = tokens + tokens // 10
            return (
                notice + "There is nothing in this conversation that could be left out yet."
                if wanted
                else notice.strip()
            )
        await talk.replace_history(after, origin, (tokens_before, tokens_after))
        self._counted, self._size = _TokenCount(), None  # an engine may keep the number of messages, and the last one
        left = max(tokens - tokens_before, 0) + tokens_after
        self._not_below = left + left // 4 if await self._is_time(talk, left, run) else 0
        logger.info("compacted: %d messages became %d", len(before), len(after))
        if self._contexts.on_compacted is not None:
            ids = {"session_id": talk.session_id, "old_session_id": talk.session_id}
            count = {"in_place": True, "compression_count": self.engine.compression_count}
            self._contexts.on_compacted({"platform": talk.platform, **ids, **count})
        return (
            f"{notice}The conversation was made shorter: {len(before)} messages, about {tokens_before} tokens, became"
            f" {len(after)}, about {tokens_after}. What was said stays in the session's transcript."
        )

    async def _kept(self, talk: Conversation, messages: Messages, run: _Run) -> str:
        """Return what a memory wants to be kept; one that does not answer is not waited for."""
        ask = self._contexts.before
        if ask is None:
            return ""
        try:
            return await run(talk.agent.bridge.run(ask, talk.session_id, messages, deadline_s=MEMORY_S))
        except TimeoutError:
            logger.warning("the memory provider did not say within %g seconds what is to be kept", MEMORY_S)
            return ""


def _match_messages(before: Sequence[Message], shorter: Messages) -> tuple[list[Message], dict[int, int]]:
    """Return the messages of a shorter conversation, and where those were that stayed as they are: new place to old.

    The user's latest message is added when it is not there any more.

    Raises:
        ValueError: something in it is no message.
    """
    places: dict[str, deque[int]] = {}
    for index, message in enumerate(before):
        places.setdefault(_message_key(message.to_dict()), deque()).append(index)
    after: list[Message] = []
    origin: dict[int, int] = {}
    for value in shorter:
        found = places.get(_message_key(value))
        if found:
            origin[len(after)] = found[0]
            after.append(before[found.popleft()])
        else:
            after.append(Message.from_dict(value))
    latest = next((m for m in reversed(before) if m.role == "user"), None)
    if latest is not None and not any(m.role == "user" and latest.text in m.text for m in after):
        after.append(latest)
    return after, origin


def _message_key(value: dict[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, default=repr)
