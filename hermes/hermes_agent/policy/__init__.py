"""May this happen: who is asked, and what was answered."""

from hermes_agent.policy.approval import Approvals, Approver, Choice, NobodyThere, Refused

__all__ = ["Approvals", "Approver", "Choice", "NobodyThere", "Refused"]
