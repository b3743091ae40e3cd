"""Rules about secrets: searches for credentials, reads of credential files, uploads of files."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from hermes_agent.policy.shell.outputs import output_of
from hermes_agent.policy.shell.paths import is_credential, is_temporary, resolve_place
from hermes_agent.policy.shell.programs import is_a
from hermes_agent.policy.shell.script import NETWORK, SENDS, UNKNOWN, ShellCommand, ShellRule, word_set

_SHAPES = re.compile(
    r"AKIA|ASIA\[|BEGIN .*KEY|BEGIN.{0,20}PRIVATE|PRIVATE KEY|passw|passwd|secret|api.{0,6}key|access.{0,6}key|token"
    r"|gh[pousr]_|github_pat|xox[a-z\[]|sk-|AIza|credential|ssh-rsa|aws_|mnemonic|seed phrase",
    re.IGNORECASE,
)
"""Patterns of a search for keys in texts."""
_FILES = re.compile(
    r"id_(?:rsa|dsa|ecdsa|ed25519)|\.kdbx?\b|credentials?\b|[._]netrc|wallet|keystore|\.ppk\b|\.p12\b|\.pfx\b|\.jks\b|\.pgpass"
    r"|\.git-credentials|\.htpasswd|authorized_keys|\.gnupg|secring|\.ovpn\b|passwords?\b|secrets?\b|tokens?\b|login.?data|key[34]\.db"
    r"|logins\.json|shadow\b|\.aws\b|\.ssh\b|kubeconfig|\.kube\b|\.pypirc|\.my\.cnf|ssh_host",
    re.IGNORECASE,
)
_MAYBE = re.compile(r"\.pem\b|\.key\b|\.env\b|\.npmrc|\.crt\b|\.asc\b|_history|\.conf\b", re.IGNORECASE)
"""Files that may hold keys: a search counts when it also reads them."""
_OUTSIDE = re.compile(r"/$|/\*|~|\.\.|/(?:home|root|etc|var|opt|srv|mnt|media|run|Users|proc|data|boot|backup)(?:/|$)")
_ALWAYS = frozenset({"rg", "ag", "ack", "ugrep", "rgrep", "ripgrep"})
_GREPS = frozenset({"grep", "egrep", "fgrep", "zgrep", "pcregrep"})
_FINDS = frozenset({"find", "gfind", "fd", "fdfind", "locate", "mlocate", "plocate", "mdfind"})
_TESTS = frozenset({"-name", "-iname", "-path", "-ipath", "-wholename", "-regex", "-iregex", "-lname"})
_SEARCH_READERS = word_set("search-readers")
_RUNS = ("-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch")


def _outside(command: ShellCommand, path: str) -> bool:
    at = resolve_place(command, path)
    return _OUTSIDE.match(at) is not None and not is_temporary(at)


def _greps(command: ShellCommand) -> bool:
    """Return whether texts outside the working directory are searched for keys."""
    whole = command.name in _ALWAYS or (command.name in _GREPS and command.has_flag("rR", "--recursive"))
    found = "find -exec" in command.via or "xargs" in command.via
    if not whole and not (found and command.name in _GREPS):
        return False
    given = [b for a, b in itertools.pairwise(command.args) if a in ("-e", "--regexp", "-f")]
    patterns, places = (given, command.operands) if given else (command.operands[:1], command.operands[1:])
    places = places or (".",) if command.cwd else places
    return any(map(_SHAPES.search, patterns)) and any(_outside(command, path) for path in places)


def _named(command: ShellCommand, which: re.Pattern[str]) -> bool:
    """Return whether files with certain names are searched outside the working directory."""
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


_READERS = word_set("file-readers")
"""Programs that print or copy the content of a file."""
_COPIERS = frozenset({"cp", "gcp", "mv", "ln", "install", "rsync"})
_UPLOADS = re.compile(r"(?:-T|--upload-file|--post-file|--body-file)(?:=|$)|-T.")
_FORMS = re.compile(r"(?:-F|--form|-d|--data|--data-binary|--data-raw|--data-urlencode|--json)$")
_FORM = re.compile(r"(?:-F|-d|--form=|--data(?:-binary|-urlencode)?=|--json=)(.+)", re.DOTALL)
_REMOTE = re.compile(r"(?!(?:localhost|127\.))(?:[\w.-]+@[\w.-]+|[\w.-]{2,}):(?!//)|rsync://|s3://|gs://|az://")
_PUTS = re.compile(r"(?m)(?:^|;)\s*(?:m?put|mirror\s+(?:-\S+\s+)*(?:-R|--reverse))\b")
_DNS = frozenset({"dig", "host", "nslookup", "kdig", "drill", "dog", "doggo", "delv", "ping", "getent", "resolvectl"})


def _reads_credential(command: ShellCommand) -> bool:
    if any(r.operator == "<" and is_credential(resolve_place(command, r.target.text)) for r in command.redirects):
        return True
    if command.name not in _READERS:
        return False
    if command.name == "diff" and any(re.search(r"\.(?:example|sample|template|dist)$", o) for o in command.operands):
        return False  # it shows which settings are missing
    given = command.operands[:-1] if command.name in _COPIERS else command.operands
    if command.name == "dd":
        given = tuple(arg[3:] for arg in command.args if arg.startswith("if="))
    return any(is_credential(resolve_place(command, operand)) for operand in given)


def _fed_from_file(command: ShellCommand) -> bool:
    """Return whether the input is the content of a file."""
    if any(r.operator == "<" and r.target.text != "/dev/null" for r in command.redirects):
        return True
    return bool(command.before) and command.stdin is None and output_of(command.before[-1]) is None


def _bodies(command: ShellCommand) -> Iterator[str]:
    """Yield the bodies and form parts in the options of an HTTP client."""
    yield from (b for a, b in itertools.pairwise(command.args) if _FORMS.match(a))
    yield from (match[1] for arg in command.args if (match := _FORM.match(arg)))


def _uploads(command: ShellCommand) -> bool:
    if command.name in ("http", "https", "xh", "httpie"):
        return any(re.match(r"[\w.-]+:?=?@.", o) for o in command.operands) or _fed_from_file(command)
    if not is_a(command.name, "downloader") or NETWORK not in command.marks:
        return False
    if any(map(_UPLOADS.match, command.args)) and command.name in ("curl", "wget", "wget2"):
        return True
    given = [match[1] for body in _bodies(command) if (match := re.match(r"(?:[\w-]+=)?[@<](.+)", body))]
    return any(path != "-" for path in given) or (bool(given) and _fed_from_file(command))


def _copies_out(command: ShellCommand) -> bool:
    operands = command.operands
    verbs = {"cp", "copy", "copyto", "mv", "move", "moveto", "rsync", "sync"}
    if command.name in ("gsutil", "s5cmd", "rclone") and not verbs & set(operands[:1]):
        return False
    if command.name in ("scp", "pscp", "rsync", "rcp", "gsutil", "s5cmd", "rclone") and len(operands) > 1:
        valued = {b for a, b in itertools.pairwise(command.args) if a in ("-e", "-i", "-F", "-P", "-o", "--rsh")}
        named = [operand for operand in operands if operand not in valued]
        dry = command.name == "rsync" and command.has_flag("n", "--dry-run")
        return len(named) > 1 and _REMOTE.match(named[-1]) is not None and not dry
    if command.name == "aws" and operands[:1] == ("s3",) and operands[1:2] in (("cp",), ("sync",), ("mv",)):
        return operands[-1].startswith("s3://") and not operands[2:3][0].startswith("s3://")
    if command.name in ("nc", "ncat", "netcat", "socat", "nc.openbsd", "nc.traditional"):
        return _fed_from_file(command) and not command.has_flag("lz")
    if command.name in ("sftp", "ftp", "lftp", "smbclient", "ncftp"):
        return SENDS in command.marks or _PUTS.search(command.stdin or "") is not None
    return command.name in ("ssh", "autossh") and _fed_from_file(command)


def _in_name(command: ShellCommand) -> bool:
    """Return whether the content of a file becomes part of a host name or an address."""
    words = command.words[1:] if command.name in _DNS else ()
    if is_a(command.name, "downloader"):
        given = zip(command.words, command.words[1:], strict=False)
        words = tuple(b for a, b in given if "://" in b.text or "?" in b.text or _FORMS.match(a.text))
    substituted = [c for word in words for c in word.substituted]
    if command.name in _DNS and any(re.search(rf"{UNKNOWN}\.[\w-]+\.\w+", o) for o in command.operands):
        return True
    piped = command.name in _DNS and "xargs" in command.via and bool(command.before)
    return piped or any(c.name in _READERS and (c.operands or c.before or c.redirects) for c in substituted)


RULES = (
    ShellRule("read a file of credentials", _reads_credential),
    ShellRule("send a file to another machine", lambda c: _uploads(c) or _copies_out(c) or _in_name(c)),
)
