"""Processes that end, the agent's own among them."""

from __future__ import annotations

import itertools
import re

from hermes_agent.policy.shell.output import EVERY_PROCESS, matches_all
from hermes_agent.policy.shell.rules.rule import ShellRule
from hermes_agent.policy.shell.script import ShellCommand

__all__ = ["RULES", "ends_first_process", "kills_all"]

HERMES = re.compile(r"hermes|\bgateway\b")
HARMLESS_SIGNALS = frozenset(("0", "1", "HUP", "10", "USR1", "12", "USR2", "17", "CHLD", "18", "CONT", "19", "STOP"))
"""Signals that process 1 outlives: it reads its settings again, or ignores them."""
BACKGROUND = frozenset({"nohup", "setsid", "disown", "screen", "tmux"})


def kills_all(command: ShellCommand) -> bool:
    """Say whether every process is meant."""
    if command.name == "kill":
        each = any(operand.removeprefix("/proc/") == EVERY_PROCESS for operand in command.operands)
        return each or ("-1" in command.args[1:] and "-l" not in command.args)
    if command.name == "pkill" or (command.name == "killall" and command.has_flag("r", "--regexp")):
        return any(map(matches_all, command.operands))
    if command.name == "fuser" and command.has_flag("k", "--kill"):
        return bool({"/", "/usr", "/etc", "/var"} & set(command.operands))
    return command.name == "killall5"


def ends_first_process(command: ShellCommand) -> bool:
    """Say whether process 1 gets a signal that makes it end, or the machine with it."""
    if command.name != "kill" or command.has_flag("lL", "--list", "--table"):
        return False
    args = [arg for arg in command.args if arg != "--"]
    signal = "TERM"
    if args and (match := re.match(r"-(?:s|n|-signal)$", args[0])) and match:
        signal, args = (args[1] if len(args) > 1 else ""), args[2:]
    elif args and (match := re.match(r"-(?:s|-signal=)?(\w[\w+-]*)$", args[0])):
        signal, args = match[1], args[1:]
    return "1" in args and signal.upper().removeprefix("SIG") not in HARMLESS_SIGNALS


def _kill_signal(command: ShellCommand) -> bool:
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


def _killall_word(command: ShellCommand) -> bool:
    return command.name == "killall" and any(a.upper() in ("-KILL", "-SIGKILL") for a in command.args)


def _killall_s(command: ShellCommand) -> bool:
    return command.name == "killall" and any(a in ("-s", "--signal") for a in command.args) and _kill_signal(command)


def _self(command: ShellCommand) -> bool:
    if command.name == "kill":
        return any(HERMES.search(c.text) and "pgrep" != c.name != "pidof" for w in command.words for c in w.substituted)
    return command.name in ("pkill", "killall") and any(HERMES.search(o) for o in command.args)


def _expanded(command: ShellCommand) -> bool:
    finders = ("pgrep", "pidof")
    made = [c for w in command.words for c in w.substituted]
    return command.name == "kill" and any(c.name in finders for c in made)


def _from_finder(command: ShellCommand) -> bool:
    return (
        command.name == "kill" and "xargs" in command.via and any(c.name in ("pgrep", "pidof") for c in command.before)
    )


def _gateway(command: ShellCommand, *verbs: str) -> bool:
    return (
        command.name == "hermes"
        and command.operands[:1] == ("gateway",)
        and command.operands[1:2] != ()
        and command.operands[1] in verbs
    )


def _launchd(command: ShellCommand) -> bool:
    verbs = ("stop", "kickstart", "unload", "bootout", "kill", "restart", "remove")
    return command.name == "launchctl" and bool({*command.args} & {*verbs}) and "hermes" in command.text


def _outside_systemd(command: ShellCommand) -> bool:
    return _gateway(command, "run", "start") and bool(BACKGROUND & set(command.via))


START = "start gateway outside systemd (use 'systemctl --user restart hermes-gateway')"

RULES = (
    ShellRule("kill all processes", kills_all),
    ShellRule("force kill processes (killall -KILL)", _killall_word),
    ShellRule("force kill processes (killall -s KILL)", _killall_s),
    ShellRule("force kill processes", lambda c: _kill_signal(c) and not _killall_word(c) and not _killall_s(c)),
    ShellRule("kill processes by regex (killall -r)", lambda c: c.name == "killall" and c.has_flag("r", "--regexp")),
    ShellRule("kill hermes/gateway process (self-termination)", _self),
    ShellRule("kill process via pgrep/pidof expansion (self-termination)", lambda c: _expanded(c) or _from_finder(c)),
    ShellRule("stop/restart hermes gateway (kills running agents)", lambda c: _gateway(c, "stop", "restart")),
    ShellRule(
        "hermes update (restarts gateway, kills running agents)",
        lambda c: c.name == "hermes" and c.operands[:1] == ("update",),
    ),
    ShellRule("stop/restart hermes launchd service (kills running agents)", _launchd),
    ShellRule(START, _outside_systemd),
)
