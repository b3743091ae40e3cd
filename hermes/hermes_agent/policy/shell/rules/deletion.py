"""Things that are gone afterwards."""

from __future__ import annotations

import re

from hermes_agent.policy.shell.paths import is_sensitive, is_temporary, resolve_place
from hermes_agent.policy.shell.rules.rule import ShellRule
from hermes_agent.policy.shell.script import ShellCommand
from hermes_agent.policy.shell.table import is_a

__all__ = ["DELETION_RULES", "deletes"]

REMOVERS = frozenset({"rm", "unlink", "shred", "srm", "grm", "wipe"})
WINDOWS = re.compile(r"(?i)(?:cmd(?:\.exe)?)$")


def deletes(command: ShellCommand) -> bool:
    """Say whether the command removes files."""
    return command.name in REMOVERS


def _recursive(command: ShellCommand) -> bool:
    return command.name in ("rm", "grm", "srm") and command.has_flag("rR")


def _recursive_long(command: ShellCommand) -> bool:
    return command.name in ("rm", "grm", "srm") and command.has_flag("", "--recursive") and not command.has_flag("rR")


def _in_root_path(command: ShellCommand) -> bool:
    places = [resolve_place(command, operand) for operand in command.operands]
    return deletes(command) and any(p.startswith("/") and not is_temporary(p) for p in places)


def _windows(command: ShellCommand) -> bool:
    text = command.text.lower()
    return command.name.lower() in ("del", "erase", "rd", "rmdir", "cmd", "cmd.exe") and bool(
        re.search(r"\b(?:del|erase|rd|rmdir)\b.*\s/[sqf]\b", text)
    )


def _powershell(command: ShellCommand) -> bool:
    text = command.text.lower()
    known = command.name.lower() in ("remove-item", "ri", "powershell", "powershell.exe", "pwsh")
    return known and bool(re.search(r"\b(?:remove-item|ri|rm|del)\b.*-(?:recurse|r|force|fo)\b", text))


def _credentials(command: ShellCommand) -> bool:
    return deletes(command) and any(is_sensitive(resolve_place(command, operand)) for operand in command.operands)


def _mirrors(command: ShellCommand) -> bool:
    return (
        command.name == "rsync"
        and any(a.startswith("--del") for a in command.args)
        and not command.has_flag("n", "--dry-run")
    )


def _to_nowhere(command: ShellCommand) -> bool:
    return command.name in ("mv", "gmv") and command.operands[-1:] == ("/dev/null",)


def _find_delete(command: ShellCommand) -> bool:
    return command.name in ("find", "fd") and "-delete" in command.args


def _statements(command: ShellCommand) -> str:
    """Return what an SQL client is given."""
    if not is_a(command.name, "sql"):
        return ""
    return " ".join([command.text, command.stdin or ""])


def _drop(command: ShellCommand) -> bool:
    pattern = r"(?is)\bdrop\s+(?:table|database|schema|view|index|user|role|column|materialized|keyspace|tablespace)\b"
    if command.name in ("dropdb", "dropuser") or (command.name == "mysqladmin" and "drop" in command.operands):
        return True
    if command.name == "redis-cli":
        return bool(
            re.search(
                r"(?i)\bflush(?:all|db)\b|\bconfig\s+set\b|\b(?:shutdown|swapdb|replicaof|slaveof)\b",
                " ".join([command.text, command.stdin or ""]),
            )
        )
    if command.name in ("mongo", "mongosh"):
        return bool(
            re.search(r"\.(?:dropDatabase|drop|(?:deleteMany|remove)\(\s*\{\s*\})", f"{command.text} {command.stdin}")
        )
    return bool(re.search(pattern, _without_literals(_statements(command))))


def _without_literals(text: str) -> str:
    """Return statements without what stands in quotes, where none of them runs that."""
    runs = re.search(r"(?i)\b(?:execute|exec|do|prepare|call)\b", text)
    return text if runs or text.count("'") % 2 else re.sub(r"'[^']*'", "''", text)


def _delete_all(command: ShellCommand) -> bool:
    found = re.findall(r"(?is)\bdelete\s+from\s+[^;]*", _without_literals(_statements(command)))
    return any(not re.search(r"(?i)\bwhere\b", statement) for statement in found)


def _update_all(command: ShellCommand) -> bool:
    found = re.findall(r"(?is)\bupdate\s+[\w.\"`]+\s+set\s+[^;]*", _without_literals(_statements(command)))
    return any(not re.search(r"(?i)\b(?:where|from|returning)\b", statement) for statement in found)


def _wipes_traces(command: ShellCommand) -> bool:
    """Say whether the history of a shell or a log of the system is emptied."""
    if command.name == "history":
        return command.has_flag("c")
    if command.name == "unset":
        return any(operand.startswith("HISTFILE") for operand in command.operands)
    emptied = [resolve_place(command, r.target.text) for r in command.redirects if r.operator in (">", ">|", "&>")]
    emptied += (
        [resolve_place(command, o) for o in command.operands] if deletes(command) or command.name == "truncate" else []
    )
    return any(re.match(r"/var/log/", path) or re.search(r"/\.\w*_history$", path) for path in emptied)


def _truncate(command: ShellCommand) -> bool:
    return bool(re.search(r"(?is)\btruncate\s+(?:table\s+)?\w", _without_literals(_statements(command))))


DELETION_RULES = (
    ShellRule("xargs with rm", lambda c: deletes(c) and "xargs" in c.via),
    ShellRule("find -exec/-execdir rm", lambda c: deletes(c) and "find -exec" in c.via),
    ShellRule("find -delete", _find_delete),
    ShellRule("recursive delete", _recursive),
    ShellRule("recursive delete (long flag)", _recursive_long),
    ShellRule("delete in root path", _in_root_path),
    ShellRule("delete of credentials or shell start files", _credentials),
    ShellRule("delete beyond recovery (shred)", lambda c: c.name in ("shred", "srm", "wipe") and bool(c.operands)),
    ShellRule("delete what the source lacks (rsync --delete)", _mirrors),
    ShellRule("move to /dev/null", _to_nowhere),
    ShellRule("Windows cmd destructive delete", _windows),
    ShellRule("Windows PowerShell destructive delete", _powershell),
    ShellRule("SQL DROP", _drop),
    ShellRule("SQL DELETE without WHERE", _delete_all),
    ShellRule("SQL TRUNCATE", _truncate),
    ShellRule("SQL UPDATE without WHERE", _update_all),
    ShellRule("wipe a history or a log of the system", _wipes_traces),
)
