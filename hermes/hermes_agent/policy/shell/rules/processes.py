"""Processes that end, the agent's own among them."""

from __future__ import annotations

import itertools
import re

from hermes_agent.policy.shell.rules.rule import Rule
from hermes_agent.policy.shell.script import Command

__all__ = ["RULES", "kills_all"]

HERMES = re.compile(r"hermes|\bgateway\b")
BACKGROUND = frozenset({"nohup", "setsid", "disown", "screen", "tmux"})


def kills_all(command: Command) -> bool:
    """Say whether every process is meant."""
    if command.name == "kill":
        return "-1" in command.args[1:] and "-l" not in command.args
    if command.name == "pkill":
        return any(re.fullmatch(r"\^?\.?[*+]?\$?", operand) for operand in command.operands)
    if command.name == "killall" and command.flag("r", "--regexp"):
        return any(re.fullmatch(r"\^?\.?[*+]?\$?", operand) for operand in command.operands)
    return command.name == "killall5"


def _kill_signal(command: Command) -> bool:
    if command.name not in ("kill", "pkill", "skill", "xkill", "killall"):
        return False
    args = command.args
    named = any(
        a in ("-s", "--signal") and b.upper().removeprefix("SIG") in ("KILL", "9") for a, b in itertools.pairwise(args)
    )
    direct = any(
        a.upper() in ("-9", "-KILL", "-SIGKILL", "--SIGNAL=KILL", "--SIGNAL=9", "--SIGNAL=SIGKILL") for a in args
    )
    return named or direct


def _killall_word(command: Command) -> bool:
    return command.name == "killall" and any(a.upper() in ("-KILL", "-SIGKILL") for a in command.args)


def _killall_s(command: Command) -> bool:
    return command.name == "killall" and any(a in ("-s", "--signal") for a in command.args) and _kill_signal(command)


def _self(command: Command) -> bool:
    if command.name == "kill":
        return any(HERMES.search(c.text) and "pgrep" != c.name != "pidof" for w in command.words for c in w.substituted)
    return command.name in ("pkill", "killall") and any(HERMES.search(o) for o in command.args)


def _expanded(command: Command) -> bool:
    finders = ("pgrep", "pidof")
    made = [c for w in command.words for c in w.substituted]
    return command.name == "kill" and any(c.name in finders for c in made)


def _from_finder(command: Command) -> bool:
    return (
        command.name == "kill" and "xargs" in command.via and any(c.name in ("pgrep", "pidof") for c in command.before)
    )


def _gateway(command: Command, *verbs: str) -> bool:
    return (
        command.name == "hermes"
        and command.operands[:1] == ("gateway",)
        and command.operands[1:2] != ()
        and command.operands[1] in verbs
    )


def _launchd(command: Command) -> bool:
    verbs = ("stop", "kickstart", "unload", "bootout", "kill", "restart", "remove")
    return command.name == "launchctl" and bool({*command.args} & {*verbs}) and "hermes" in command.text


def _outside_systemd(command: Command) -> bool:
    return _gateway(command, "run", "start") and bool(BACKGROUND & set(command.via))


START = "start gateway outside systemd (use 'systemctl --user restart hermes-gateway')"

RULES = (
    Rule("kill all processes", kills_all),
    Rule("force kill processes (killall -KILL)", _killall_word),
    Rule("force kill processes (killall -s KILL)", _killall_s),
    Rule("force kill processes", lambda c: _kill_signal(c) and not _killall_word(c) and not _killall_s(c)),
    Rule("kill processes by regex (killall -r)", lambda c: c.name == "killall" and c.flag("r", "--regexp")),
    Rule("kill hermes/gateway process (self-termination)", _self),
    Rule("kill process via pgrep/pidof expansion (self-termination)", lambda c: _expanded(c) or _from_finder(c)),
    Rule("stop/restart hermes gateway (kills running agents)", lambda c: _gateway(c, "stop", "restart")),
    Rule(
        "hermes update (restarts gateway, kills running agents)",
        lambda c: c.name == "hermes" and c.operands[:1] == ("update",),
    ),
    Rule("stop/restart hermes launchd service (kills running agents)", _launchd),
    Rule(START, _outside_systemd),
)
