"""Every attack on a running daemon that is data."""

from __future__ import annotations

from attack import rule_attempts as rules
from attack import sandbox_attempts as sandbox
from attack.attempt import Attempt

__all__ = ["ATTEMPTS"]

MAKERS = (
    *(sandbox.leaving, sandbox.reading, sandbox.sockets, sandbox.planting, sandbox.races, sandbox.limits),
    *(sandbox.egress, rules.addresses, rules.taint, rules.hard_line, rules.dangerous, rules.secrets),
)
ATTEMPTS: tuple[Attempt, ...] = tuple(attempt for make in MAKERS for attempt in make())
