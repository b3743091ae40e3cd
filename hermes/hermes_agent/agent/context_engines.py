"""The context engines of the sessions: each session has its own, for as long as somebody comes back to it.

Source: plugin contract §8.4.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes_agent.agent.settings import CompressionSettings
from hermes_agent.contracts.context_engine import CONTEXT_ENGINE, ContextEngine, Messages, copy_engine
from hermes_agent.core.errors import UserError
from hermes_agent.core.registry import Owner
from hermes_agent.tools import tool_error

if TYPE_CHECKING:
    from hermes_agent.agent.agent import Agent
    from hermes_agent.agent.compaction import SessionCompaction
    from hermes_agent.agent.compressor import Summarise
    from hermes_agent.agent.conversation import Conversation


logger = logging.getLogger(__name__)

TOOLSET = "context_engine"
MAX_SESSIONS_KEPT = 64
"""Sessions whose engines are kept between two visits."""


class SelectedEngine(NamedTuple):
    """What the config selects."""

    engine: ContextEngine | None = None
    """A plugin's; None for the agent's own."""
    plugin: str = ""
    """Whose it is."""
    notice: str = ""
    """What the person is told when it is not what the config names."""


def _no_summary(prompt: str, max_tokens: int) -> str:
    raise UserError("there is no auxiliary model to ask for a summary")


@dataclass(kw_only=True, eq=False)
class ContextEngines:
    """On the core loop; the engines are called in workers.

    Attributes:
        choose: says which engine the config selects.
        before: returns what a memory wants to be kept of messages that are about to be left out; in a worker.
        on_compacted: told of each conversation that was made shorter, with the keys of the gateway's
            `session:compress` (§9.3).
    """

    home: Path | None = None
    settings: CompressionSettings = field(default_factory=CompressionSettings)
    summarise: Summarise = _no_summary
    choose: Callable[[], SelectedEngine] = SelectedEngine
    before: Callable[[str, Messages], str] | None = None
    on_compacted: Callable[[dict[str, Any]], None] | None = None
    _contexts: OrderedDict[str, SessionCompaction] = field(default_factory=OrderedDict, init=False)
    _offered: ContextEngine | None = field(default=None, init=False)

    def own_engine(self) -> ContextEngine:
        """Return a fresh engine of the agent's own."""
        from hermes_agent.agent.compressor import Compressor  # a conversation needs it, and a start does not

        return Compressor(self.summarise, self.settings)

    def offer_tools(self, agent: Agent) -> None:
        """Register the tools of the selected engine, for the plugin that brought it; in a worker."""
        chosen = self.choose()
        if chosen.engine is None or chosen.engine is self._offered:
            return
        self._offered = chosen.engine
        try:
            schemas = [_function(schema) for schema in chosen.engine.get_tool_schemas()]
        except Exception as exc:  # noqa: BLE001 - a plugin's engine; it goes without tools
            logger.warning("context engine of plugin `%s`: get_tool_schemas() failed: %r", chosen.plugin, exc)
            return
        for schema in schemas:
            name = str(schema.get("name"))
            agent.tools.register(name, TOOLSET, schema, partial(self._call, name), owner=Owner(chosen.plugin))

    async def for_session(self, talk: Conversation) -> SessionCompaction:
        """Return the session's context."""
        found = self._contexts.get(talk.session_id)
        if found is None:
            found = self._contexts[talk.session_id] = await self._made(talk)
        self._contexts.move_to_end(talk.session_id)
        while len(self._contexts) > MAX_SESSIONS_KEPT:
            oldest, gone = self._contexts.popitem(last=False)
            await self._end(talk.agent, oldest, gone)
        return found

    async def end_idle(self, agent: Agent, busy: Collection[str]) -> None:
        """End the contexts of all sessions but the busy ones; who comes back gets another."""
        for session_id in [one for one in self._contexts if one not in busy]:
            await self._end(agent, session_id, self._contexts.pop(session_id))

    async def leave(self, talk: Conversation, *, for_good: bool) -> None:
        """A conversation is closed. `for_good`: nobody comes back to its session soon."""
        context = self._contexts.get(talk.session_id)
        if context is not None:
            context.on_leave([message.to_dict() for message in talk.history] if context.plugin else [])
            if for_good:
                del self._contexts[talk.session_id]
                await self._end(talk.agent, talk.session_id, context)

    async def end(self, agent: Agent) -> None:
        """Every session ends."""
        while self._contexts:
            session_id, context = self._contexts.popitem()
            await self._end(agent, session_id, context)

    async def _made(self, talk: Conversation) -> SessionCompaction:
        from hermes_agent.agent.compaction import SessionCompaction  # as Compressor

        bridge, chosen = talk.agent.bridge, self.choose()
        copied = None if chosen.engine is None else await bridge.run(copy_engine, chosen.engine)
        context = SessionCompaction(copied or self.own_engine(), self, plugin=chosen.plugin if copied else "")
        if chosen.notice:
            talk.notices = (*talk.notices, chosen.notice)
        elif copied is None and chosen.engine is not None:
            talk.notices = (*talk.notices, context.fall_back(chosen.plugin, "it cannot be copied"))
        if copied is not None:
            keywords = {"platform": talk.platform, "model": talk.model, "hermes_home": str(self.home or "")}
            await context.notify_engine(bridge, "on_session_start", talk.session_id, **keywords)
        return context

    async def _end(self, agent: Agent, session_id: str, context: SessionCompaction) -> None:
        if context.plugin:
            await context.notify_engine(agent.bridge, "on_session_end", session_id, context.last)

    def _call(self, name: str, args: dict[str, Any], **keywords: Any) -> str:
        """Route a call of one of the engine's tools to the session's copy; in a worker."""
        context = self._contexts.get(str(keywords.get("session_id") or ""))
        if context is None or not context.plugin:
            return tool_error(f"the {CONTEXT_ENGINE.label} that has the tool {name} is not used in this session")
        return context.engine.handle_tool_call(name, args, messages=context.current(), **keywords)


def _function(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the function itself of a schema, which may be wrapped."""
    inner = schema.get("function")
    return inner if isinstance(inner, dict) else schema
