"""Policy: approvals, taint, verdicts on shell commands, network hosts, rules of the operator."""

from hermes_agent.policy.approvals import (
    ApprovalHooks,
    Approvals,
    Approver,
    Choice,
    Clarifier,
    NoApprover,
    Refusal,
    SmartApproval,
)
from hermes_agent.policy.command_patterns import CommandPatterns
from hermes_agent.policy.pending_questions import QUESTION_PREFIX, PendingQuestion, PendingQuestions, QueuedApprover

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
