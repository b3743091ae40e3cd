"""Which model is asked beside conversations: the one that judges commands, and the one that MCP servers ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_agent.core.errors import UserError
from hermes_agent.policy import Smart

if TYPE_CHECKING:
    from hermes_agent.host.graph import Host

__all__ = ["sampled", "smart_of"]

TASK = "approval"


def smart_of(host: Host) -> Smart | None:
    """Return who looks at questions before a person does; None in the other modes."""
    if host.config.get("approvals.mode") != "smart":
        return None

    def answer(prompt: str, max_tokens: int) -> str:
        from hermes_agent.plugins.llm.asking import selection_of  # 20 ms that a start does not need
        from hermes_agent.plugins.llm.auxiliary import settings_of

        if selection_of(host, settings_of(host, TASK)).is_embedded:
            raise UserError("the embedded model is too small to judge commands (`auxiliary.approval` names another)")
        return host.side_answer(TASK, prompt, max_tokens)

    return Smart(answer, host.bridge, timeout_s=float(host.config.get("auxiliary.approval.timeout") or 30))


async def sampled(host: Host, messages: list[dict[str, Any]], *, model: str, **more: Any) -> Any:
    """Return what the model of `auxiliary.mcp`, or another, answers (`mcp.asking.Sample`)."""
    from hermes_agent.plugins.llm.auxiliary import SideCall, ask_soon  # as above

    return await ask_soon(host, SideCall("mcp", messages, {"model": model}, **more))
