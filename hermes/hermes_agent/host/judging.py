"""Which model judges commands (`approvals.mode: smart`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_agent.core.errors import UserError
from hermes_agent.policy import Smart

if TYPE_CHECKING:
    from hermes_agent.host.graph import Host

__all__ = ["smart_of"]

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
