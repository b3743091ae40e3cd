"""Files that the machine runs by itself, and sources that a script writes and builds: what their text runs."""

from __future__ import annotations

import re

from hermes_agent.policy.shell.script import NestedCode

__all__ = ["build_commands", "autostart_commands"]

_UNIT = re.compile(r"/systemd/.*\.(?:service|timer|socket|mount|conf)$|\.service$")
_TABLE = re.compile(r"/etc/(?:cron\.d/|crontab$)|/var/spool/cron/")
_SCRIPT = re.compile(r"/etc/(?:cron\.(?:hourly|daily|weekly|monthly)/|init\.d/|rc\.local$|profile(?:\.d/|$)|rc\d\.d/)")
_EXEC = re.compile(r"(?m)^\s*Exec\w+\s*=[-@:+!|\s]*(.+)$")
_LINE = re.compile(r"(?m)^\s*(?:@\w+|(?:[-\d*/,A-Za-z]+[ \t]+){5})\s*(.+)$")
_CALL = re.compile(r"\b(?:system|popen|exec\w*)\s*\(\s*\"((?:\\.|[^\"\\])*)\"\s*[,)]")
_LIST = re.compile(r"\b(?:Command(?:::new)?|execl[pe]*|execv[pe]*|ProcessBuilder)\s*\(([^;]*)")


def autostart_commands(path: str, text: str) -> NestedCode:
    """Return what a file that is written to this place runs, by systemd, cron or an init script."""
    if _UNIT.search(path):
        return NestedCode(tuple(_EXEC.findall(text)))
    if _TABLE.match(path):
        lines = _LINE.findall(text)  # the line of a user's own table has no name of a user
        return NestedCode((*lines, *(line.partition(" ")[2] for line in lines if path.startswith("/etc/"))))
    return NestedCode((text,)) if _SCRIPT.match(path) else NestedCode()


def build_commands(text: str) -> NestedCode:
    """Return the commands that the source of a compiled program starts, as far as they stand in it."""
    calls = [call.replace('\\"', '"') for call in _CALL.findall(text)]
    lists = [" ".join(re.findall(r'"((?:\\.|[^"\\])*)"', given)) for given in _LIST.findall(text)]
    return NestedCode((*calls, *filter(None, lists)))
