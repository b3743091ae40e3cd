"""`/usage`: what this session and this day cost."""

from __future__ import annotations

from datetime import date
from functools import partial

from hermes_agent.commands import CommandRegistry
from hermes_agent.sessions import Ledger, Spent
from hermes_agent.tools import current_scope

__all__ = ["described", "register"]


def register(registry: CommandRegistry, ledger: Ledger) -> None:
    """Register it."""
    registry.register("usage", partial(_usage, ledger), description="Tokens, cost and time of this session")


def described(spent: Spent) -> str:
    """Return a sum in words: `12,300 in (8,000 cached), 1,200 out, 7 calls, 42 s, $0.12`."""
    cached = f" ({spent.cached_tokens:,} cached)" if spent.cached_tokens else ""
    cost = f", ${spent.cost_usd:.4f}" if spent.requests > spent.unpriced else ""
    unpriced = f", {spent.unpriced} of unknown price" if spent.unpriced else ""
    return (
        f"{spent.input_tokens:,} in{cached}, {spent.output_tokens:,} out, {spent.requests} call(s),"
        f" {spent.seconds:.0f} s{cost}{unpriced}"
    )


def _usage(ledger: Ledger, raw_args: str) -> str:
    scope = current_scope.get()
    session_id = "" if scope is None else scope.session_id
    lines = []
    if session_id:
        lines.append(f"This session: {described(ledger.spent(session_id=session_id))}")
        causes = ledger.by("cause", session_id=session_id)
        if len(causes) > 1:
            lines += [f"  {cause}: {described(spent)}" for cause, spent in causes.items()]
    if scope is None or scope.platform == "cli":  # what others spent is the operator's to see
        lines.append(f"Today, all sessions: {described(ledger.spent(day=date.today().isoformat()))}")
    return "\n".join(lines)
