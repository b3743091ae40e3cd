"""May this happen: who is asked, and what was answered."""

from hermes_agent.policy.approval import Approvals, Approver, Choice, Clarifier, NoApprover, Refusal
from hermes_agent.policy.patterns import CommandPatterns
from hermes_agent.policy.smart import SmartApproval
from hermes_agent.policy.telling import ApprovalHooks
from hermes_agent.policy.waiting import QUESTION_PREFIX, PendingQuestion, PendingQuestions, QueuedApprover

__all__ = [
    "QUESTION_PREFIX",
    "Approvals",
    "Approver",
    "Choice",
    "Clarifier",
    "CommandPatterns",
    "NoApprover",
    "PendingQuestion",
    "QueuedApprover",
    "Refusal",
    "SmartApproval",
    "ApprovalHooks",
    "PendingQuestions",
]
