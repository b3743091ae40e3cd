"""The context engines of sessions: each session has one until it ends or is idle for long.

Source: plugin contract §8.4.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.agent.settings import CompressionSettings
from hermes_agent.contracts.context_engine import CONTEXT_ENGINE, ContextEngine, Messages, copy_engine
from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.core.messages import Message, Usage
from hermes_agent.core.registry import Owner
from hermes_agent.tools import ToolRegistry, tool_error

if TYPE_CHECKING:
    from hermes_agent.agent.compaction import SessionCompaction
    from hermes_agent.agent.compressor import Summarise
    from hermes_agent.agent.turn_context import TurnContext


logger = logging.getLogger(__name__)

TOOLSET = "context_engine"
MAX_SESSIONS_KEPT = 64
"""Sessions that keep their engines between two conversations."""


class SelectedEngine(LazyNamedTuple):
    """The engine that the config selects."""

    engine: ContextEngine | None = None
    """The engine of a plugin; None for the built-in one."""
    plugin: str = ""
    notice: str = ""
    """For the user: why it is not the engine that the config names."""


def _no_summary(prompt: str, max_tokens: int) -> str:
    raise UserError("there is no auxiliary model to ask for a summary")


@lazy_dataclass(kw_only=True, eq=False)
class ContextEngines:
    """The context engines of all sessions. Used on the core loop; engines are called in workers.

    Attributes:
        choose: returns the engine that the config selects.
        before: returns what the memory provider wants to keep of messages that are about to be dropped; in a worker.
        on_compacted: called after each compaction, with the keys of the gateway's `session:compress` (§9.3).
    """

    home: Path | None = None
    settings: CompressionSettings = field(default_factory=CompressionSettings)
    summarise: Summarise = _no_summary
    choose: Callable[[], SelectedEngine] = SelectedEngine
    before: Callable[[str, Messages], str] | None = None
    on_compacted: Callable[[dict[str, Any]], None] | None = None
    _compactions: OrderedDict[str, SessionCompaction] = field(default_factory=OrderedDict, init=False)
    _offered: ContextEngine | None = field(default=None, init=False)

    def own_engine(self) -> ContextEngine:
        """Return a new built-in engine."""
        from hermes_agent.agent.compressor import Compressor  # not at start: the first turn loads it

        return Compressor(self.summarise, self.settings)

    def offer_tools(self, tools: ToolRegistry) -> None:
        """Register the tools of the selected engine for its plugin, in a worker."""
        chosen = self.choose()
        if chosen.engine is None or chosen.engine is self._offered:
            return
        self._offered = chosen.engine
        try:
            schemas = [_function(schema) for schema in chosen.engine.get_tool_schemas()]
        except Exception as exc:  # noqa: BLE001 - a plugin's engine, which is used without tools
            logger.warning("context engine of plugin `%s`: `get_tool_schemas` failed: %r", chosen.plugin, exc)
            return
        for schema in schemas:
            name = str(schema.get("name"))
            tools.register(name, TOOLSET, schema, partial(self._call, name), owner=Owner(chosen.plugin))

    async def for_session(self, context: TurnContext) -> SessionCompaction:
        """Return the compaction of the session of a turn."""
        session_id = context.session.id
        found = self._compactions.get(session_id)
        if found is None:
            found = self._compactions[session_id] = await self._start(context)
        self._compactions.move_to_end(session_id)
        while len(self._compactions) > MAX_SESSIONS_KEPT:
            await self._end(*self._compactions.popitem(last=False))
        return found

    async def end_idle(self, busy: Collection[str]) -> None:
        """End the engines of all sessions but the busy ones; a session that continues gets another engine."""
        for session_id in [each for each in self._compactions if each not in busy]:
            await self._end(session_id, self._compactions.pop(session_id))

    async def leave(self, session_id: str, history: Sequence[Message], *, is_final: bool) -> None:
        """Note that a conversation is closed. `is_final`: its session is not resumed soon."""
        compaction = self._compactions.get(session_id)
        if compaction is not None:
            compaction.on_leave([message.to_dict() for message in history] if compaction.plugin else [])
            if is_final:
                del self._compactions[session_id]
                await self._end(session_id, compaction)

    async def complete_turn(self, session_id: str, usage: Usage, **ids: Any) -> None:
        """Notify the engine of a session of the end of a turn."""
        if (compaction := self._compactions.get(session_id)) is not None:
            await compaction.complete_turn(usage, session_id=session_id, **ids)

    async def end(self) -> None:
        """End the engines of all sessions."""
        while self._compactions:
            await self._end(*self._compactions.popitem())

    async def _start(self, context: TurnContext) -> SessionCompaction:
        from hermes_agent.agent.compaction import SessionCompaction  # as Compressor

        session, chosen = context.session, self.choose()
        copied = None if chosen.engine is None else await context.bridge.run(copy_engine, chosen.engine)
        compaction = SessionCompaction(
            copied or self.own_engine(),
            context.bridge,
            self.settings,
            self.own_engine,
            plugin=chosen.plugin if copied else "",
            before=self.before,
            compacted=self._notify_compacted,
        )
        if chosen.notice:
            context.notices.append(chosen.notice)
        elif copied is None and chosen.engine is not None:
            context.notices.append(compaction.fall_back(chosen.plugin, "it cannot be copied"))
        if copied is not None:
            keywords = {"platform": session.platform, "model": context.model.name, "hermes_home": str(self.home or "")}
            await compaction.notify_engine("on_session_start", session.id, **keywords)
        return compaction

    def _notify_compacted(self, payload: dict[str, Any]) -> None:
        if self.on_compacted is not None:
            self.on_compacted(payload)

    async def _end(self, session_id: str, compaction: SessionCompaction) -> None:
        if compaction.plugin:
            await compaction.notify_engine("on_session_end", session_id, compaction.last)

    def _call(self, name: str, args: dict[str, Any], **keywords: Any) -> str:
        """Route a call of a tool of the engine to the copy of the session, in a worker."""
        compaction = self._compactions.get(str(keywords.get("session_id") or ""))
        if compaction is None or not compaction.plugin:
            return tool_error(f"the {CONTEXT_ENGINE.label} that has the tool {name} is not used in this session")
        return compaction.engine.handle_tool_call(name, args, messages=compaction.current(), **keywords)


def _function(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the function of a schema, which may be wrapped."""
    inner = schema.get("function")
    return inner if isinstance(inner, dict) else schema
