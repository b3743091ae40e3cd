"""What the answers of `pre_tool_call` mean: go on, ask a person, or do not run the tool.

A guard that fails blocks (docs/architecture.md, decisions): a raising callback, or one that says `block` without a
message, blocks that call with a text that names the plugin, unless the operator relaxed it for that plugin.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hermes_agent.hooks.listener import HookResult

__all__ = ["ALLOW", "GuardAllow", "GuardAsk", "GuardBlock", "GuardVerdict", "decide_verdict"]


@dataclass(frozen=True, slots=True)
class GuardAllow:
    """Run the tool."""


@dataclass(frozen=True, slots=True)
class GuardAsk:
    """Ask a person first."""

    plugin: str
    message: str
    rule_key: str


@dataclass(frozen=True, slots=True)
class GuardBlock:
    """Do not run the tool; `message` is its result."""

    plugin: str
    message: str


GuardVerdict = GuardAllow | GuardAsk | GuardBlock
ALLOW = GuardAllow()


def decide_verdict(results: Iterable[HookResult], tool: str, *, fails_open: Callable[[str], bool]) -> GuardVerdict:
    """Return the first answer that counts.

    Args:
        fails_open: whether the operator lets a failing guard of this plugin pass.
    """
    for result in results:
        found = _read_answer(result, tool, fails_open)
        if found is not None:
            return found
    return ALLOW


def _rule_of(plugin: str, tool: str, reason: str) -> str:
    """Return what a "for this session" covers where the guard does not say it: this tool for this reason."""
    return f"{plugin}:{tool}:{hashlib.sha256(reason.encode()).hexdigest()[:12]}"


def _read_answer(result: HookResult, tool: str, fails_open: Callable[[str], bool]) -> GuardVerdict | None:
    plugin = result.plugin
    if result.error is not None:
        if fails_open(plugin):
            return None
        return GuardBlock(plugin, f"BLOCKED: the guard of plugin `{plugin}` failed for {tool}: {result.error!r}")
    value = result.value
    if not isinstance(value, dict):
        return None
    message = value.get("message")
    has_message = isinstance(message, str) and message.strip() != ""
    match value.get("action"):
        case "block" if has_message:
            return GuardBlock(plugin, str(message))
        case "block":
            if fails_open(plugin):
                return None
            return GuardBlock(plugin, f"BLOCKED: plugin `{plugin}` blocks {tool} and gives no message")
        case "approve":
            text = str(message) if has_message else f"Plugin requires approval for {tool}"
            rule = value.get("rule_key")
            return GuardAsk(plugin, text, rule if isinstance(rule, str) and rule else _rule_of(plugin, tool, text))
        case _:
            return None
