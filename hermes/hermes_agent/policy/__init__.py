"""May this happen: who is asked, and what was answered."""

from hermes_agent.policy.approval import Approvals, Approver, Choice, Clarifier, NobodyThere, Refused
from hermes_agent.policy.patterns import CommandPatterns
from hermes_agent.policy.smart import Smart
from hermes_agent.policy.telling import Told
from hermes_agent.policy.waiting import QUESTION, Question, QueuedApprover, Waiting

__all__ = [
    "QUESTION",
    "Approvals",
    "Approver",
    "Choice",
    "Clarifier",
    "CommandPatterns",
    "NobodyThere",
    "Question",
    "QueuedApprover",
    "Refused",
    "Smart",
    "Told",
    "Waiting",
]
