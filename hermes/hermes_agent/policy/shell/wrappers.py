"""Commands before other commands: `sudo rm`, `env A=1 rm`, `timeout 5 rm`, `xargs rm`; and what they run."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from hermes_agent.policy.shell.programs import INTERPRETERS, SHELLS, run_by, scripts_of
from hermes_agent.policy.shell.script import UNKNOWN, Command, Word
from hermes_agent.policy.shell.words import MOST

__all__ = ["INTERPRETERS", "SHELLS", "inner"]

LONGEST = 100_000
"""Characters of an argument that `xargs` fills in."""


class _Prefix(NamedTuple):
    """How to skip the options of a command whose operands are another command."""

    valued: str = ""
    """Short options that take the next argument."""
    valued_long: tuple[str, ...] = ()
    skip: int = 0
    """Operands of its own before the command."""
    assignments: bool = False


_PREFIXES: dict[str, _Prefix] = {
    "sudo": _Prefix(
        "ugpCDhrtTUR", ("--user", "--group", "--prompt", "--chdir", "--host", "--role", "--type"), assignments=True
    ),
    "doas": _Prefix("uC"),
    "run0": _Prefix("", ("--user", "--unit", "--property")),
    "pkexec": _Prefix("", ("--user",)),
    "env": _Prefix("uCS", ("--unset", "--chdir", "--split-string"), assignments=True),
    "nice": _Prefix("n", ("--adjustment",)),
    "ionice": _Prefix("cnpPu", ("--class", "--classdata")),
    "chrt": _Prefix("", skip=1),
    "taskset": _Prefix("", skip=1),
    "nohup": _Prefix(),
    "setsid": _Prefix(),
    "time": _Prefix("fo"),
    "timeout": _Prefix("ks", ("--signal", "--kill-after"), skip=1),
    "stdbuf": _Prefix("ioe"),
    "unbuffer": _Prefix(),
    "command": _Prefix(),
    "builtin": _Prefix(),
    "exec": _Prefix("a"),
    "coproc": _Prefix(),
    "busybox": _Prefix(),
    "toybox": _Prefix(),
    "xargs": _Prefix("InLPsadE", ("--max-args", "--max-procs", "--replace", "--delimiter", "--arg-file")),
    "parallel": _Prefix("jI", ("--jobs",)),
    "chroot": _Prefix("", ("--userspec", "--groups"), skip=1),
    "flock": _Prefix("wE", ("--timeout",), skip=1),
    "strace": _Prefix("eopsuE"),
    "ltrace": _Prefix("eopsu"),
    "screen": _Prefix("SeTcspth"),
    "watch": _Prefix("nd", ("--interval",)),
    "unshare": _Prefix("", ("--map-user",)),
    "nsenter": _Prefix("tSGr", ("--target",)),
    "fakeroot": _Prefix("lfsib"),
    "proot": _Prefix("rbwq"),
    "systemd-run": _Prefix(
        "putMHE", ("--property", "--unit", "--slice", "--uid", "--gid", "--setenv", "--description")
    ),
    "systemd-inhibit": _Prefix("", ("--what", "--who", "--why")),
    "caffeinate": _Prefix("tw"),
    "gosu": _Prefix("", skip=1),
    "su-exec": _Prefix("", skip=1),
    "setpriv": _Prefix("", ("--reuid", "--regid")),
    "dbus-run-session": _Prefix(),
    "xvfb-run": _Prefix("nse"),
    "prlimit": _Prefix("", ("--pid", "--output")),
    "numactl": _Prefix("CNmip"),
    "rlwrap": _Prefix("afHs"),
    "torsocks": _Prefix(),
    "torify": _Prefix(),
    "proxychains": _Prefix("f"),
    "proxychains4": _Prefix("f"),
    "firejail": _Prefix(),
    "pipenv": _Prefix(skip=1),
    "poetry": _Prefix(skip=1),
    "uv": _Prefix(skip=1),
}


def inner(command: Command) -> Iterator[Command | str]:
    """Yield what a command runs: commands, and texts that are scripts."""
    name = command.name
    if name in _PREFIXES and not (name == "command" and command.flag("vV")):
        yield from _prefixed(command, _PREFIXES[name])
    yield from scripts_of(command)


def _prefixed(command: Command, how: _Prefix) -> Iterator[Command | str]:
    words = list(command.words[1:])
    while words:
        text = words[0].text
        if text == "--":
            words.pop(0)
            break
        if text.startswith("--"):
            words.pop(0)
            given = text.partition("=")[2]
            if "=" not in text and text in how.valued_long and words:
                given = words.pop(0).text
            if command.name == "env" and text.startswith("--s"):  # --split-string
                yield given
        elif text.startswith("-") and len(text) > 1:
            words.pop(0)
            if command.name == "env" and "S" in text:
                yield text.partition("S")[2] or " ".join(w.text for w in words[:1])
            if text[-1] in how.valued and words:
                words.pop(0)
        elif how.assignments and re.match(r"[A-Za-z_]\w*=", text):
            words.pop(0)
        else:
            break
    yield from _run(command, words[how.skip :])


def _run(command: Command, words: list[Word]) -> Iterator[Command | str]:
    """Yield what a prefix runs, given the words after its own."""
    if command.name == "coproc" and any(w.text == "{" for w in words[:2]):
        words = words[2 if words[0].text != "{" else 1 :]
    if command.name in ("watch", "parallel", "flock", "screen") and len(words) == 1:
        yield words[0].text
    elif words and command.name == "xargs":
        yield from (run_by(command, line) for line in _xargs(command, words))
    elif words:
        yield run_by(command, [w for w in words if w.text != ":::"])  # parallel's way to give the arguments


def _xargs(command: Command, words: list[Word]) -> Iterator[list[Word]]:
    """Yield the command lines that `xargs` makes of what it reads; `UNKNOWN` stands for what cannot be told."""
    stdin = command.stdin or ""
    own = replace(command, words=command.words[: -len(words)])
    given = (
        stdin.split("\0") if own.flag("0", "--null") else stdin.split("\n" if own.flag("d", "--delimiter") else None)
    )
    known = [part.strip("\n") for part in given if part.strip()] if UNKNOWN not in stdin else []
    args = [*own.args, ""]
    mark = next((b if a == "-I" else a[2:] for a, b in itertools.pairwise(args) if a.startswith("-I")), "")
    if mark or own.flag("i", "--replace") or any("{}" in w.text for w in words):
        for part in known[:MOST] or [UNKNOWN]:
            yield [w._replace(text=_filled(w.text, mark or "{}", part)) for w in words]
    else:
        yield [*words, *map(Word, known or [UNKNOWN])]


def _filled(text: str, mark: str, part: str) -> str:
    return text.replace(mark, part) if text.count(mark) * len(part) <= LONGEST else UNKNOWN
