"""Files that leave the machine, and files of credentials that are read."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from hermes_agent.policy.shell.output import output_of
from hermes_agent.policy.shell.paths import is_credential, resolve_place
from hermes_agent.policy.shell.rules.rule import ShellRule
from hermes_agent.policy.shell.script import NETWORK, UNKNOWN, ShellCommand
from hermes_agent.policy.shell.table import is_a

__all__ = ["RULES"]

_READERS = frozenset(
    """
    . ack ag awk base32 base64 basenc bat batcat bzip2 cat column cp cut dd diff egrep fgrep fold gawk gcp gpg grep gzip
    head hexdump install jq less ln mapfile more mv nano nl od openssl pandoc paste pr readarray rev rg rsync sed shuf
    sort split strings tac tail tar tee tr tsort uniq vi view vim xclip xsel xxd xz yq zip zstd 7z pbcopy wl-copy
    """.split()  # noqa: SIM905 - a table
) - {"."}
"""Programs that show or copy the content of a file that they are given."""
_COPIERS = frozenset({"cp", "gcp", "mv", "ln", "install", "rsync"})
_UPLOADS = re.compile(r"(?:-T|--upload-file|--post-file|--body-file)(?:=|$)|-T.")
_FORMS = re.compile(r"(?:-F|--form|-d|--data|--data-binary|--data-raw|--data-urlencode|--json)$")
_FORM = re.compile(r"(?:-F|-d|--form=|--data(?:-binary|-urlencode)?=|--json=)(.+)", re.DOTALL)
_REMOTE = re.compile(r"(?!(?:localhost|127\.))(?:[\w.-]+@)?[\w.-]{2,}:(?!//)|rsync://|s3://|gs://|az://")
_DNS = frozenset({"dig", "host", "nslookup", "kdig", "drill", "dog", "doggo", "delv", "ping", "getent", "resolvectl"})


def _reads_credential(command: ShellCommand) -> bool:
    if any(r.operator == "<" and is_credential(resolve_place(command, r.target.text)) for r in command.redirects):
        return True
    if command.name not in _READERS:
        return False
    if command.name == "diff" and any(re.search(r"\.(?:example|sample|template|dist)$", o) for o in command.operands):
        return False  # which settings are missing
    given = command.operands[:-1] if command.name in _COPIERS else command.operands
    if command.name == "dd":
        given = tuple(arg[3:] for arg in command.args if arg.startswith("if="))
    return any(is_credential(resolve_place(command, operand)) for operand in given)


def _fed_from_file(command: ShellCommand) -> bool:
    """Say whether the content of a file comes in."""
    if any(r.operator == "<" and r.target.text != "/dev/null" for r in command.redirects):
        return True
    return bool(command.before) and command.stdin is None and output_of(command.before[-1]) is None


def _bodies(command: ShellCommand) -> Iterator[str]:
    """Yield what the options of an HTTP client give as a body or a part of a form."""
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
    return command.name in ("ssh", "autossh") and _fed_from_file(command)


def _in_name(command: ShellCommand) -> bool:
    """Say whether the content of a file is asked for as the name of a host, or stands in an address."""
    words = command.words[1:] if command.name in _DNS else ()
    if is_a(command.name, "downloader"):
        given = zip(command.words, command.words[1:], strict=False)
        words = tuple(b for a, b in given if "://" in b.text or "?" in b.text or _FORMS.match(a.text))
    made = [c for word in words for c in word.substituted]
    if command.name in _DNS and any(re.search(rf"{UNKNOWN}\.[\w-]+\.\w+", o) for o in command.operands):
        return True
    piped = command.name in _DNS and "xargs" in command.via and bool(command.before)
    return piped or any(c.name in _READERS and (c.operands or c.before or c.redirects) for c in made)


RULES = (
    ShellRule("read a file of credentials", _reads_credential),
    ShellRule("send a file to another machine", lambda c: _uploads(c) or _copies_out(c) or _in_name(c)),
)
