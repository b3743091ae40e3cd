"""What the table marks: programs that are installed, secrets that are shown, data that goes, what runs later."""

from __future__ import annotations

import re

from hermes_agent.policy.shell.paths import is_system, is_temporary, place
from hermes_agent.policy.shell.rules.rule import Rule
from hermes_agent.policy.shell.script import DESTROYS, INSTALLS, LATER, REVEALS, Command

__all__ = ["RULES"]

_DATA = re.compile(r"\.(?:sql|db|sqlite3?|csv|tsv|parquet|json|jsonl|xlsx?|mdb|dump|bak|tar|t?gz|zip|img|qcow2)$")
_MEMORY = re.compile(r"/proc/[^/]+/(?:mem|environ)$")
_NOTHING = ("", ":", "true")
_FLUSHES = re.compile(r"(?:^|[\s/])manage\.py\s+(?:flush|reset_db|reset_schema)\b")
MODES = ("chmod", "chown", "chgrp", "setfacl", "chattr", "chcon")


def _empties(command: Command) -> bool:
    """Say whether a file of data is left with nothing in it."""
    nothing = command.name in _NOTHING or (command.name == "cat" and command.args == ("/dev/null",))
    nothing = nothing and command.stdin is None and not command.before
    nothing = nothing and not any(r.operator == "<" for r in command.redirects)
    emptied = [r.target.text for r in command.redirects if r.operator in (">", ">|", "&>") and nothing]
    if command.name == "truncate" and re.search(r"(?:-s|--size)[= ]?0\b", command.text):
        emptied += command.operands
    if command.name == "cp" and command.operands[:1] == ("/dev/null",):
        emptied += command.operands[1:]
    return any(_DATA.search(path) for path in emptied)


def _flushes(command: Command) -> bool:
    return _FLUSHES.search(command.text) is not None and "--help" not in command.args


def _opens_tree(command: Command) -> bool:
    """Say whether rights or owner change for a tree outside of the working directory, or for the system."""
    if command.name not in MODES:
        return False
    places = [place(command, operand) for operand in command.operands]
    outside = any(path.startswith(("/", "~", "..")) and not is_temporary(path) for path in places)
    return (outside and command.flag("R", "--recursive")) or any(map(is_system, places))


def _reads_memory(command: Command) -> bool:
    named = [place(command, arg.rpartition("=")[2]) for arg in command.args]
    named += [place(command, redirect.target.text) for redirect in command.redirects]
    return any(_MEMORY.search(path) and not path.startswith("/proc/self/") for path in named)


def _mails_file(command: Command) -> bool:
    mails = command.name in ("mail", "mailx", "s-nail", "mutt", "neomutt", "sendmail", "msmtp")
    return mails and any(r.operator == "<" and r.target.text != "/dev/null" for r in command.redirects)


def _signals_others(command: Command) -> bool:
    if command.name == "fuser":
        return command.flag("k", "--kill")
    if command.name in ("pkill", "killall"):
        return command.flag("u", "--user", "--euid", "--uid") and not command.flag("l")
    return command.name == "kill" and "1" in command.operands and bool({"-STOP", "-19", "-SIGSTOP"} & set(command.args))


RULES = (
    Rule("install software from an address or for the machine", lambda c: INSTALLS in c.marks),
    Rule("read secrets that a program keeps", lambda c: REVEALS in c.marks or _reads_memory(c)),
    Rule("destroy or replace data with its own program", lambda c: DESTROYS in c.marks or _empties(c) or _flushes(c)),
    Rule("run something later", lambda c: LATER in c.marks),
    Rule("change rights of a tree outside the working directory", _opens_tree),
    Rule("send a file by mail", _mails_file),
    Rule("stop processes of others", _signals_others),
)
