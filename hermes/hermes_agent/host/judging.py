"""Which model is asked beside conversations: the one that judges commands, and the one that MCP servers ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_agent.core.errors import UserError
from hermes_agent.policy import SmartApproval

if TYPE_CHECKING:
    from hermes_agent.host.graph import Host

__all__ = ["sample_for_mcp", "smart_approval"]

APPROVAL_TASK = "approval"


def smart_approval(host: Host) -> SmartApproval | None:
    """Return who looks at questions before a person does; None in the other modes."""
    if host.config.get("approvals.mode") != "smart":
        return None

    def answer(prompt: str, max_tokens: int) -> str:
        from hermes_agent.plugins.llm.asking import task_selection  # 20 ms that a start does not need
        from hermes_agent.plugins.llm.auxiliary import task_settings

        if task_selection(host, task_settings(host, APPROVAL_TASK)).is_embedded:
            raise UserError("the embedded model is too small to judge commands (`auxiliary.approval` names another)")
        return host.side_answer(APPROVAL_TASK, prompt, max_tokens)

    return SmartApproval(answer, host.bridge, timeout_s=float(host.config.get("auxiliary.approval.timeout") or 30))


async def sample_for_mcp(host: Host, messages: list[dict[str, Any]], *, model: str, **more: Any) -> Any:
    """Return what the model of `auxiliary.mcp`, or another, answers (`mcp.asking.Sample`)."""
    from hermes_agent.plugins.llm.auxiliary import AuxiliaryCall, call_auxiliary_async  # as above

    return await call_auxiliary_async(host, AuxiliaryCall("mcp", messages, {"model": model}, **more))
