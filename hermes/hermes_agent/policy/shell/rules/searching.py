"""Credentials that are looked for over a home or the machine."""

from __future__ import annotations

import itertools
import re

from hermes_agent.policy.shell.paths import is_temporary, resolve_place
from hermes_agent.policy.shell.rules.rule import ShellRule
from hermes_agent.policy.shell.script import ShellCommand

__all__ = ["SEARCH_RULES"]

_SHAPES = re.compile(
    r"AKIA|ASIA\[|BEGIN .*KEY|BEGIN.{0,20}PRIVATE|PRIVATE KEY|passw|passwd|secret|api.{0,6}key|access.{0,6}key|token"
    r"|gh[pousr]_|github_pat|xox[a-z\[]|sk-|AIza|credential|ssh-rsa|aws_|mnemonic|seed phrase",
    re.IGNORECASE,
)
"""What is searched for in texts by who wants keys."""
_FILES = re.compile(
    r"id_(?:rsa|dsa|ecdsa|ed25519)|\.kdbx?\b|credentials?\b|[._]netrc|wallet|keystore|\.ppk\b|\.p12\b|\.pfx\b|\.jks\b|\.pgpass"
    r"|\.git-credentials|\.htpasswd|authorized_keys|\.gnupg|secring|\.ovpn\b|passwords?\b|secrets?\b|tokens?\b|login.?data|key[34]\.db"
    r"|logins\.json|shadow\b|\.aws\b|\.ssh\b|kubeconfig|\.kube\b|\.pypirc|\.my\.cnf|ssh_host",
    re.IGNORECASE,
)
_MAYBE = re.compile(r"\.pem\b|\.key\b|\.env\b|\.npmrc|\.crt\b|\.asc\b|_history|\.conf\b", re.IGNORECASE)
"""Files that hold keys or not: it counts when they are read."""
_OUTSIDE = re.compile(r"/$|/\*|~|\.\.|/(?:home|root|etc|var|opt|srv|mnt|media|run|Users|proc|data|boot|backup)(?:/|$)")
_ALWAYS = frozenset({"rg", "ag", "ack", "ugrep", "rgrep", "ripgrep"})
_GREPS = frozenset({"grep", "egrep", "fgrep", "zgrep", "pcregrep"})
_FINDS = frozenset({"find", "gfind", "fd", "fdfind", "locate", "mlocate", "plocate", "mdfind"})
_TESTS = frozenset({"-name", "-iname", "-path", "-ipath", "-wholename", "-regex", "-iregex", "-lname"})
_SEARCH_READERS = frozenset(
    """
    cat bat head tail less more strings grep egrep rg cp mv tar zip
    base64 xxd od awk sed rsync scp curl openssl
    """.split()  # noqa: SIM905 - a table
)
_RUNS = ("-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch")


def _outside(command: ShellCommand, path: str) -> bool:
    at = resolve_place(command, path)
    return _OUTSIDE.match(at) is not None and not is_temporary(at)


def _greps(command: ShellCommand) -> bool:
    """Say whether texts outside of the working directory are searched for keys."""
    whole = command.name in _ALWAYS or (command.name in _GREPS and command.has_flag("rR", "--recursive"))
    found = "find -exec" in command.via or "xargs" in command.via
    if not whole and not (found and command.name in _GREPS):
        return False
    given = [b for a, b in itertools.pairwise(command.args) if a in ("-e", "--regexp", "-f")]
    patterns, places = (given, command.operands) if given else (command.operands[:1], command.operands[1:])
    places = places or (".",) if command.cwd else places
    return any(map(_SHAPES.search, patterns)) and any(_outside(command, path) for path in places)


def _named(command: ShellCommand, which: re.Pattern[str]) -> bool:
    """Say whether files of some names are looked for outside of the working directory."""
    if command.name not in _FINDS or "-delete" in command.args:
        return False
    if command.name in ("find", "gfind"):
        roots = list(itertools.takewhile(lambda a: not a.startswith(("-", "(", "!")), command.args)) or ["."]
        names = [b for a, b in itertools.pairwise(command.args) if a in _TESTS]
    else:
        names, roots = list(command.operands), list(command.operands[1:]) or ["/" if "locate" in command.name else "."]
    return any(map(which.search, names)) and any(_outside(command, path) for path in roots)


def _finds(command: ShellCommand) -> bool:
    if _named(command, _FILES):
        return True
    runs = next((i for i, a in enumerate(command.args) if a in _RUNS), None)
    program = command.args[runs + 1 : runs + 2] if runs is not None else ()
    if program and program[0].rpartition("/")[2] in _SEARCH_READERS and _named(command, _MAYBE):
        return True
    read = command.name in _SEARCH_READERS and "xargs" in command.via
    return read and any(_named(c, _FILES) or _named(c, _MAYBE) for c in command.before)


SEARCH_RULES = (ShellRule("search for credentials outside the working directory", lambda c: _greps(c) or _finds(c)),)
