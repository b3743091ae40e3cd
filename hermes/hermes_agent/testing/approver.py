"""A person who answers from a script."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.policy import Choice, Refused

__all__ = ["ApprovalScript", "ScriptedApprover"]

ApprovalScript = Iterable[Choice] | Callable[[ApprovalRequest], Choice]
"""One answer (`once`, `session`, `deny`) for each question, or a function of the question."""


class ScriptedApprover:
    """Answers one question after another; who is asked more often than the script knows is not there."""

    def __init__(self, script: ApprovalScript = ()) -> None:
        self.requests: list[ApprovalRequest] = []
        """What was asked, in order."""
        self._decide = script if callable(script) else None
        self._left = [] if callable(script) else list(script)

    async def ask(self, request: ApprovalRequest) -> Choice | Refused:
        """Note the question and answer it."""
        self.requests.append(request)
        if self._decide is not None:
            return self._decide(request)
        if self._left:
            return self._left.pop(0)
        return Refused(
            f"{request.tool} needs a person's approval to {request.summary}, and `approvals` of this test has no answer"
        )
