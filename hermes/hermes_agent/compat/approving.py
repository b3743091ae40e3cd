"""Upstream's `tools.approval`: is a command dangerous, may it run, who answers. Source: plugin contract §10, §11.2."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from hermes_agent.compat.hosting import host, host_or_none
from hermes_agent.compat.settings import load_config_readonly
from hermes_agent.contracts.platform.session_context import get_session_env
from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.policy import Choice, Refusal
from hermes_agent.policy.commands import CommandPolicy
from hermes_agent.policy.shell import ShellVerdict, judge
from hermes_agent.tools import current_scope

__all__ = [
    "approval_mode",
    "check_dangerous_command",
    "detect_dangerous_command",
    "detect_hardline_command",
    "get_current_session_key",
    "has_blocking_approval",
    "request_tool_approval",
    "resolve_gateway_approval",
]

CHOICES: dict[str, Choice] = {"once": "once", "session": "session", "always": "always", "deny": "deny"}
"""What people answer."""


def approval_mode() -> str:
    """Return `approvals.mode`: `manual`, `smart` or `off`."""
    mode = (load_config_readonly().get("approvals") or {}).get("mode")
    return "off" if mode is False else str(mode or "manual")


def detect_dangerous_command(command: str) -> tuple[bool, str | None, str | None]:
    """Return whether a command is dangerous, with the key and the description of the first reason."""
    found = _judge(command)
    if not found.is_dangerous:
        return False, None, None
    reason = found.hardline or found.keys[0]
    return True, reason, reason


def detect_hardline_command(command: str) -> tuple[bool, str | None]:
    """Return whether a command never runs, and why."""
    found = _judge(command)
    return bool(found.hardline), found.hardline or None


def check_dangerous_command(
    command: str, env_type: str = "local", approval_callback: Callable[..., Any] | None = None
) -> dict[str, Any]:
    """Say whether a command may run; somebody is asked when it is dangerous.

    Args:
        env_type: where it is to run; a command that must not run here must not run elsewhere either.
        approval_callback: asked in place of the conversation's person: `callback(command, description) -> choice`.

    Returns:
        `approved` and, when it may not run, `message`; `status` is `approval_required` where nobody can be asked.
    """
    values = load_config_readonly()
    deny, allow = (values.get("approvals") or {}).get("deny") or (), values.get("command_allowlist") or ()
    home = host_or_none(lambda host: host.home)
    rules = CommandPolicy(deny, allow, home, patterns=host_or_none(lambda host: host.patterns))
    review = rules.review(command, confined=True)
    key = review.keys[0] if review.keys else ""
    about = {"pattern_key": key, "description": key, "command": command}
    if review.verdict == "refuse":
        return {"approved": False, "message": review.reason, "hardline": bool(_judge(command).hardline), **about}
    if review.verdict == "allow" or not review.keys or (approval_mode() == "off" and not review.mandatory):
        return {"approved": True, "message": None}
    rule = " + ".join(review.keys)
    summary = f"run a command ({key})"
    request = ApprovalRequest("terminal", summary, command, rule, once=review.once, mandatory=review.mandatory)
    return _ask_approval(request, approval_callback) | about


def request_tool_approval(
    tool_name: str, reason: str, *, rule_key: str = "", approval_callback: Callable[..., Any] | None = None
) -> dict[str, Any]:
    """Ask the person whether a plugin's rule lets a tool call pass. Returns what `check_dangerous_command` does."""
    grain = rule_key or f"{tool_name}:{hashlib.sha256(reason.encode()).hexdigest()[:16]}"
    key = f"plugin_rule:{grain}"
    request = ApprovalRequest(tool_name, f"pass a rule of a plugin on {tool_name}", reason, key)
    return _ask_approval(request, approval_callback) | {"pattern_key": key, "description": reason}


def get_current_session_key(default: str = "default") -> str:
    """Return the conversation that this thread works for: in a chat its session's key, elsewhere the session's id."""
    key = get_session_env("HERMES_SESSION_KEY")
    if key:
        return key
    scope = current_scope.get()
    return scope.session_id if scope is not None and scope.session_id else default


def resolve_gateway_approval(
    session_key: str, choice: str, resolve_all: bool = False, reason: str | None = None
) -> int:
    """Answer a conversation's oldest question, or all of them, and return how many that were.

    Args:
        choice: `once`, `session`, `always` or `deny`; any other word denies.
        reason: why it was denied; the model is told.
    """
    answer: Choice | Refusal = CHOICES.get(choice, "deny")
    if answer == "deny" and reason:
        answer = Refusal(f"BLOCKED: User denied this command. The user has NOT consented: {reason}")
    asked = host().asked
    if answer in CHOICES and answer != "deny" and asked.is_ambiguous(session_key):
        return 0  # it may be meant for another question: its code, or a button with its id, names the open one
    return asked.answer_session(session_key, answer, everything=resolve_all)


def has_blocking_approval(session_key: str) -> bool:
    """Say whether a conversation waits for an answer."""
    return bool(host().asked.questions_for(session_key))


def _judge(command: str) -> ShellVerdict:
    return judge(command, host_or_none(lambda host: host.patterns))


def _ask_approval(request: ApprovalRequest, callback: Callable[..., Any] | None) -> dict[str, Any]:
    if callback is not None:
        allowed = CHOICES.get(str(callback(request.detail, request.summary)), "deny") != "deny"
        message = (
            None if allowed else f"BLOCKED: User denied this command. The user has NOT consented: {request.detail}"
        )
        return {"approved": allowed, "message": message, "user_consent": allowed}
    scope = current_scope.get()
    if scope is None:
        return {
            "approved": False,
            "status": "approval_required",
            "message": f"BLOCKED: {request.tool} needs a person's approval to {request.summary}, and outside a"
            " conversation nobody can be asked.",
            "user_consent": False,
        }
    refused = host().bridge.wait_core(scope.approvals.decide(request))
    if refused is None:
        return {"approved": True, "message": None, "user_approved": True}
    return {"approved": False, "message": f"BLOCKED: {refused.reason}", "outcome": "denied", "user_consent": False}
