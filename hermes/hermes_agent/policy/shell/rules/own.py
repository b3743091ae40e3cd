"""The agent's own command line and state: what would change the rules that it works under."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hermes_agent.policy.shell.paths import resolve_place
from hermes_agent.policy.shell.rules.rule import ShellRule
from hermes_agent.policy.shell.script import ShellCommand
from hermes_agent.policy.shell.spelling import subcommand_args
from hermes_agent.policy.shell.table import is_a

__all__ = ["OWN", "OWN_RULES"]

OWN = "change the agent's own settings, permissions or state"
"""Key of such a command; the user is asked about each."""

_READS: dict[str, frozenset[str]] = {
    "config": frozenset({"check", "show", "get", "path"}),
    "pairing": frozenset({"list"}),
    "plugins": frozenset({"list", "info", "check", "doctor", "explain", "new", "index"}),
    "cron": frozenset({"list", "runs"}),
    "auth": frozenset({"list", "status"}),
    "mcp": frozenset({"list", "ls"}),
    "skills": frozenset({"list", "show"}),
    "model": frozenset({"pull", "list", "info", "path", "status"}),
    "memory": frozenset({"status"}),
    "sessions": frozenset({"list", "show", "replay", "search", "export"}),
    "gateway": frozenset({"status"}),
    "profile": frozenset({"list"}),
    "tools": frozenset({"list", "ls", "explain", "info"}),
    "rollback": frozenset({"list", "diff"}),
    "state": frozenset({"check", "restore-points"}),
}
"""Subcommands of `hermes` that change nothing; an action that is not listed counts as a change."""
_READ_ALL = frozenset({"completion", "doctor", "insights", "logs", "send"})
_PROGRAMS = frozenset({"hermes", ".hermes-wrapped", "hermes_agent"})
_STATE = re.compile(
    r"(?:^|[/\"'(=,:@\s])\.hermes(?:/profiles/[^/]+)?(?:/?$|/?[\"'*]|/(?:config\.yaml|\.env|auth\.json|api_server\.key"
    r"|plugins_trust\.json|state\.db|pairing|cron|hooks|plugins|scripts|profiles|restore-points)(?![\w-]))"
)
_READERS = frozenset(
    """
    basename cat cd cmp cut diff dirname du echo egrep fgrep file grep head jq ls md5sum nl popd printf pushd readlink
    realpath rg sha256sum stat strings tail test tree wc yq [
    """.split()  # noqa: SIM905 - a table
)
"""Programs that change no file that they are given."""
_FIND_ACTIONS = ("-delete", "-exec", "-ok", "-fprint", "-fls")


def _changes(args: Sequence[str]) -> bool:
    """Say whether `hermes` with these arguments may change something: it does so unless it is known to read."""
    if args[:1] in (["--version"], ["--help"], ["-h"]) or (args[-1:] in (["--help"], ["-h"]) and "--" not in args):
        return False
    group = args[0] if args else ""
    return group not in _READ_ALL and (len(args) < 2 or args[1] not in _READS.get(group, ()))


def _runs_itself(command: ShellCommand) -> bool:
    if command.name in _PROGRAMS:
        return _changes(list(subcommand_args(command)) or list(command.args))
    if command.name in _READERS:
        return False
    args = list(command.args)
    for index, arg in enumerate(args):
        module = arg.removeprefix("-m").partition(".")
        if module[0] == "hermes_agent" and is_a(command.name, "interpreter"):
            return bool(module[2]) or _changes(_after_options(args[index + 1 :]))
        if arg.rpartition("/")[2] in _PROGRAMS and is_a(command.name, "interpreter"):
            return _changes(_after_options(args[index + 1 :]))
        rest = _after_options(args[index + 1 :])
        if arg.rpartition("/")[2] in _PROGRAMS and rest and rest[0] in _READS:
            return _changes(rest)
    code = " ".join([*args, command.stdin or ""]) if is_a(command.name, "interpreter") else ""
    return re.search(r"\b(?:import|from|import_module\(.|run_module\(.)\s*hermes_agent\b", code) is not None


def _after_options(args: list[str]) -> list[str]:
    """Return the arguments without the profile before the subcommand."""
    while args and args[0].startswith("-p"):
        args = args[2:] if args[0] == "-p" else args[1:]
    return args


def _changes_state(command: ShellCommand) -> bool:
    written = [resolve_place(command, r.target.text) for r in command.redirects if r.writes]
    finds = command.name == "find" and not any(arg.startswith(_FIND_ACTIONS) for arg in command.args)
    if command.name not in _READERS and not finds:
        written += [resolve_place(command, arg) for arg in command.args]
        written += [arg for arg in command.args if "/" in arg]
        if is_a(command.name, "interpreter") or command.heredoc:
            written.append(command.stdin or "")
    return any(_STATE.search(text) for text in written)


OWN_RULES = (ShellRule(OWN, lambda c: _runs_itself(c) or _changes_state(c)),)
