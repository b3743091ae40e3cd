"""Commands that run other commands: `sudo rm`, `env A=1 rm`, `bash -c 'rm …'`, `find -exec rm`, `xargs rm`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from hermes_agent.policy.shell.script import UNKNOWN, Command, Word

__all__ = ["INTERPRETERS", "SHELLS", "inner"]

SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh", "mksh", "ash", "fish", "csh", "tcsh", "rbash"})
INTERPRETERS = re.compile(
    r"(?:python[\d.]*|pypy[\d.]*|perl[\d.]*|ruby[\d.]*|node|nodejs|deno|bun|php[\d.]*|lua[\d.]*|Rscript|osascript)$"
)


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
    "env": _Prefix("uCS", ("--unset", "--chdir"), assignments=True),
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
}


def inner(command: Command) -> Iterator[Command | str]:
    """Yield what a command runs: commands, and texts that are scripts."""
    name = command.name
    if name in _PREFIXES:
        yield from _prefixed(command, _PREFIXES[name])
    maker = _OTHERS.get(name)
    if maker is not None:
        yield from maker(command)
    elif name in SHELLS:
        yield from _after_flag(command, "c")
    elif INTERPRETERS.match(name):
        for code in (*_after_flag(command, "cer"), *([command.stdin] if command.heredoc and command.stdin else [])):
            yield from _strings(code)


def _prefixed(command: Command, how: _Prefix) -> Iterator[Command | str]:
    words = list(command.words[1:])
    while words:
        text = words[0].text
        if text == "--":
            words.pop(0)
            break
        if text.startswith("--"):
            words.pop(0)
            if "=" not in text and text in how.valued_long and words:
                words.pop(0)
        elif text.startswith("-") and len(text) > 1:
            words.pop(0)
            if command.name == "env" and "S" in text and words:
                yield words[0].text
            if text[-1] in how.valued and words:
                words.pop(0)
        elif how.assignments and re.match(r"[A-Za-z_]\w*=", text):
            words.pop(0)
        else:
            break
    words = words[how.skip :]
    if command.name in ("watch", "parallel", "flock") and len(words) == 1:
        yield words[0].text
    elif words:
        if command.name == "xargs" and not any("{}" in w.text for w in words):
            given = (command.stdin or "").split()
            words += [Word(part) for part in given] if given and UNKNOWN not in given else [Word(UNKNOWN)]
        yield _run_by(command, words)


def _run_by(command: Command, words: list[Word]) -> Command:
    return replace(command, words=tuple(words), via=(*command.via, command.name))


def _after_flag(command: Command, letters: str) -> Iterator[str]:
    """Yield what follows `-c`, also within a bundle: `-lc`."""
    args = command.args
    for index, arg in enumerate(args[:-1]):
        if re.fullmatch(rf"-[A-Za-z]*[{letters}]", arg):
            yield args[index + 1]
            return


def _find(command: Command) -> Iterator[Command]:
    words = command.words[1:]
    roots = [w for w in _until_option(words)] or [Word(".")]
    for index, word in enumerate(words):
        if word.text in ("-exec", "-execdir", "-ok", "-okdir"):
            rest = list(words[index + 1 :])
            end = next((i for i, w in enumerate(rest) if w.text in (";", "+", "\\;")), len(rest))
            made = [root if w.text == "{}" else w for w in rest[:end] for root in (roots if w.text == "{}" else [w])]
            if made:
                yield replace(_run_by(command, made), via=(*command.via, "find -exec"))


def _until_option(words: tuple[Word, ...]) -> Iterator[Word]:
    for word in words:
        if word.text.startswith(("-", "(", "!")):
            return
        yield word


def _eval(command: Command) -> Iterator[str]:
    yield " ".join(command.args)


def _su(command: Command) -> Iterator[str]:
    yield from _after_flag(command, "c")
    for arg in command.args:
        if arg.startswith("--command="):
            yield arg.partition("=")[2]


def _ssh(command: Command) -> Iterator[str]:
    words, valued = list(command.args), "BbcDEeFIiJLlmOopQRSWw"
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option[-1] in valued and len(option) == 2 and words:
            words.pop(0)
    if len(words) > 1:
        yield " ".join(words[1:])


def _trap(command: Command) -> Iterator[str]:
    if len(command.args) > 1:
        yield command.args[0]


def _script(command: Command) -> Iterator[str]:
    yield from _after_flag(command, "c")


def _scheduled(command: Command) -> Iterator[str]:
    """Yield what `at`, `batch` and `crontab -` are given to run later."""
    if command.stdin:
        yield command.stdin


def _container(command: Command) -> Iterator[Command]:
    """Yield what runs in a container that is given the host's root, as if it ran here."""
    args = command.args
    if args[:1] in (("run",), ("exec",)) and any(re.match(r"(?:--volume=)?/:", arg) for arg in args):
        for index, arg in enumerate(args):
            if index > 0 and not arg.startswith("-") and not re.match(r"/:", arg) and index + 1 < len(args):
                yield _run_by(command, list(command.words[index + 2 :]))
                return


def _strings(code: str) -> Iterator[str]:
    """Yield the strings of a program in another language that go to a shell."""
    calls = r"(?:system|popen|exec\w*|spawn\w*|run|call|check_call|check_output|Popen|getoutput|qx|sh)\s*[\(\[{\s]*"
    for match in re.finditer(calls + r"""(?:[rbf]?)(["'])(.*?)(?<!\\)\1((?:\s*,\s*(["']).*?\4)*)""", code, re.DOTALL):
        more = re.findall(r"""["'](.*?)["']""", match[3])
        yield " ".join([match[2], *(shlex.quote(m) for m in more)])
    for match in re.finditer(r"`([^`]+)`", code):
        yield match[1]
    for match in re.finditer(
        r"""(?:rmtree|removedirs|rm_rf|rmSync|rmdirSync|remove_dir_all)\s*\(?\s*(["'])(.*?)\1""", code
    ):
        yield f"rm -rf {shlex.quote(match[2])}"


_OTHERS: dict[str, Callable[[Command], Iterator[Command | str]]] = {
    "find": _find,
    "fd": _find,
    "eval": _eval,
    "su": _su,
    "runuser": _su,
    "ssh": _ssh,
    "trap": _trap,
    "script": _script,
    "at": _scheduled,
    "batch": _scheduled,
    "docker": _container,
    "podman": _container,
}
