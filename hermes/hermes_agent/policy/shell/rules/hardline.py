"""What never happens, whatever anybody allowed. Source: plugin contract §10.3."""

from __future__ import annotations

import re
from collections.abc import Callable

from hermes_agent.policy.shell.paths import is_block_device, is_home, is_root, is_system_directory, place
from hermes_agent.policy.shell.rules.files import overwrites_disk, teed, written
from hermes_agent.policy.shell.rules.processes import kills_all
from hermes_agent.policy.shell.rules.rule import Rule
from hermes_agent.policy.shell.script import Command
from hermes_agent.policy.shell.table import is_a

__all__ = ["FORK_BOMB", "RULES"]

FORK_BOMB = "fork bomb"
STOPS = frozenset({"poweroff", "reboot", "halt", "kexec", "soft-reboot", "emergency", "rescue"})


def _removed(command: Command, which: Callable[[str], bool]) -> bool:
    """Say whether a whole tree of that kind goes."""
    if command.name in ("rm", "grm", "srm", "shred"):
        whole = command.flag("rR", "--recursive", "--no-preserve-root") or (
            command.name == "shred" and "find -exec" in command.via
        )
        return whole and any(which(place(command, operand)) for operand in command.operands)
    if command.name == "find" and ("-delete" in command.args or any(a == "rm" for a in command.args)):
        narrowed = any(
            a in ("-name", "-iname", "-path", "-regex", "-newer", "-mtime", "-size", "-empty") for a in command.args
        )
        roots = [o for o in command.operands[:1]]
        return not narrowed and any(which(place(command, root)) for root in roots)
    if command.name == "rsync" and any(a.startswith("--del") for a in command.args):
        return not command.flag("n", "--dry-run") and any(which(place(command, o)) for o in command.operands[-1:])
    if command.name.lower() in ("remove-item", "ri") and re.search(r"(?i)\s-r", command.text):
        return any(which(place(command, operand)) for operand in command.operands)
    return False


def _system(path: str) -> bool:
    return is_system_directory(path) and not is_home(path)


def _mkfs(command: Command) -> bool:
    formats = command.name.startswith("mkfs") or command.name in ("mke2fs", "mkdosfs", "mkntfs", "newfs")
    return formats and any(is_block_device(place(command, operand)) for operand in command.operands)


def _dd(command: Command) -> bool:
    targets = [a.partition("=")[2] for a in command.args if a.startswith("of=")]
    return command.name in ("dd", "dcfldd") and any(is_block_device(t) for t in targets)


def _bomb(command: Command) -> bool:
    """Say whether a program in another language forks for ever."""
    loops = r"fork\s*(?:\(\))?\s*while|while\s*\(?\s*(?:1|True|true)\s*\)?.*\bfork\b|loop\s*\{\s*fork"
    return is_a(command.name, "interpreter") and bool(re.search(loops, command.text, re.DOTALL))


def _redirect(command: Command) -> bool:
    return any(map(is_block_device, written(command)))


def _shutdown(command: Command) -> bool:
    if command.name in ("dbus-send", "busctl", "gdbus"):
        return bool(re.search(r"login1.*\b(?:Reboot|PowerOff|Halt|KExec)\b", command.text))
    if command.name == "loginctl":
        return bool(STOPS & set(command.operands[:1]))
    if any(place(command, path) == "/proc/sysrq-trigger" for path in (*written(command), *teed(command))):
        return True
    harmless = {"--help", "--show", "-c"} if command.name == "shutdown" else {"--help"}
    return command.name in ("shutdown", "reboot", "halt", "poweroff", "openrc-shutdown") and not harmless & set(
        command.args
    )


def _systemctl(command: Command) -> bool:
    operands = command.operands if command.name == "systemctl" else ()
    if operands[:1] in (("start",), ("isolate",)):
        return any(operand.removesuffix(".target") in STOPS for operand in operands[1:])
    return bool(STOPS & set(operands[:1]))


def _runlevel(command: Command, name: str) -> bool:
    return command.name == name and command.operands[:1] in (("0",), ("6",))


RULES = (
    Rule("recursive delete of root filesystem", lambda c: _removed(c, is_root)),
    Rule("recursive delete of system directory", lambda c: _removed(c, _system)),
    Rule("recursive delete of home directory", lambda c: _removed(c, is_home)),
    Rule("format filesystem (mkfs)", _mkfs),
    Rule("dd to raw block device", _dd),
    Rule("redirect to raw block device", _redirect),
    Rule("write to raw block device", overwrites_disk),
    Rule(FORK_BOMB, _bomb),
    Rule("kill all processes", kills_all),
    Rule("system shutdown/reboot", _shutdown),
    Rule("init 0/6 (shutdown/reboot)", lambda c: _runlevel(c, "init") or _runlevel(c, "runit-init")),
    Rule("systemctl poweroff/reboot", _systemctl),
    Rule("telinit 0/6 (shutdown/reboot)", lambda c: _runlevel(c, "telinit")),
)
