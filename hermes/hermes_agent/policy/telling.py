"""Who listens to questions and answers: `pre_approval_request` and `post_approval_response`. Source: contract §3.7."""

from __future__ import annotations

from typing import Any

from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.hooks import HookBus
from hermes_agent.io.bridge import Bridge

__all__ = ["ApprovalHooks"]


class ApprovalHooks:
    """Tells the observers of one conversation.

    Args:
        surface: `cli`, or `gateway` for everything that is no terminal.
        session_key: which conversation it is.
    """

    def __init__(self, hooks: HookBus, bridge: Bridge, *, surface: str, session_key: str) -> None:
        self._hooks = hooks
        self._bridge = bridge
        self._surface = surface
        self._session_key = session_key

    async def notify_request(
        self, request: ApprovalRequest, turn_id: str, tool_call_id: str, *, smart: bool = False
    ) -> None:
        """Somebody is about to be asked; a model, if `smart`."""
        await self._fire("pre_approval_request", self._keywords(request, turn_id, tool_call_id, smart))

    async def notify_answer(
        self, request: ApprovalRequest, turn_id: str, tool_call_id: str, choice: str, *, smart: bool = False
    ) -> None:
        """Somebody answered, or did not: `once`, `session`, `always`, `deny` or `timeout`; a model `smart_approve`…"""
        keywords = {**self._keywords(request, turn_id, tool_call_id, smart), "choice": choice}
        await self._fire("post_approval_response", keywords | ({"decided_by": "aux_llm"} if smart else {}))

    async def _fire(self, hook: str, keywords: dict[str, Any]) -> None:
        if self._hooks.has(hook):
            await self._bridge.run_steps(self._hooks.steps(hook, keywords), shortest_s=self._hooks.shortest_s(hook))

    def _keywords(self, request: ApprovalRequest, turn_id: str, tool_call_id: str, smart: bool) -> dict[str, Any]:
        return {
            "command": request.detail,
            "description": request.summary,
            "pattern_key": request.rule_key,
            "pattern_keys": [request.rule_key],
            "session_key": self._session_key,
            "surface": "smart" if smart else self._surface,
            "turn_id": turn_id,
            "tool_call_id": tool_call_id,
        }
