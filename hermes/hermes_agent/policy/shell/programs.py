"""Programs that run commands in a way of their own: `bash -c 'rm …'`, `find -exec rm`, `python -c …`, `ssh host rm`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace

from hermes_agent.policy.shell.script import Command, Word

__all__ = ["INTERPRETERS", "SHELLS", "run_by", "scripts_of"]

SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh", "mksh", "ash", "fish", "csh", "tcsh", "rbash"})
INTERPRETERS = re.compile(
    r"(?:python[\d.]*|pypy[\d.]*|perl[\d.]*|ruby[\d.]*|node|nodejs|deno|bun|php[\d.]*|lua[\d.]*|Rscript|osascript)$"
)


def scripts_of(command: Command) -> Iterator[Command | str]:
    """Yield the commands, and the texts that are scripts, in the arguments or the input of a program."""
    name = command.name
    maker = _OTHERS.get(name)
    if maker is not None:
        yield from maker(command)
    elif name in SHELLS:
        yield from _shell(command)
    elif name in ("awk", "gawk", "mawk", "nawk"):
        code = " ".join(command.operands[:1])
        yield from _strings(code)
        for match in re.finditer(r'"([^"]*)"\s*\|&?\s*getline|\|&?\s*"([^"]*)"', code):
            yield match[1] or match[2] or ""
    elif INTERPRETERS.match(name):
        fed = command.stdin if command.heredoc or not command.operands else None
        for code in (*_after_flag(command, "cer"), *([fed] if fed else [])):
            yield from _strings(code)


def run_by(command: Command, words: list[Word]) -> Command:
    return replace(command, words=tuple(words), via=(*command.via, command.name))


def _after_flag(command: Command, letters: str) -> Iterator[str]:
    """Yield what follows `-c`, also within a bundle: `-lc`."""
    args = command.args
    for index, arg in enumerate(args[:-1]):
        if re.fullmatch(rf"-[A-Za-z]*[{letters}]", arg):
            yield args[index + 1]
            return


def _shell(command: Command) -> Iterator[str]:
    """Yield the script of `sh -c SCRIPT NAME ARGUMENTS`, with the arguments in their places."""
    for script in _after_flag(command, "c"):
        rest = command.args[command.args.index(script) + 2 :]
        yield f"(set -- {shlex.join(rest)}\n{script}\n)" if rest else script


def _find(command: Command) -> Iterator[Command]:
    words = command.words[1:]
    roots = [w for w in _until_option(words)] or [Word(".")]
    for index, word in enumerate(words):
        if word.text in ("-exec", "-execdir", "-ok", "-okdir") or (
            command.name == "fd" and word.text in ("-x", "-X", "--exec", "--exec-batch")
        ):
            rest = list(words[index + 1 :])
            end = next((i for i, w in enumerate(rest) if w.text in (";", "+", "\\;")), len(rest))
            made = rest[:end]
            for place in [i for i, w in enumerate(made) if w.text == "{}"][:1]:  # what else has it gets no other
                made[place : place + 1] = roots
            if made:
                yield replace(run_by(command, made), via=(*command.via, "find -exec"))


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


def _nix(command: Command) -> Iterator[Command | str]:
    """Yield what runs in a shell of nix: `nix develop -c COMMAND`, `nix-shell --run SCRIPT`."""
    for index, arg in enumerate(command.args):
        if command.name == "nix-shell" and arg in ("--run", "--command"):
            yield from command.args[index + 1 : index + 2]
        elif command.name == "nix" and arg in ("-c", "--command"):
            yield run_by(command, list(command.words[index + 2 :]))
            return


def _ssh(command: Command) -> Iterator[Command | str]:
    words, valued = list(command.words[1:]), "BbcDEeFIiJLlmOopQRSWw"
    while words and words[0].text.startswith("-"):
        option = words.pop(0).text
        if option[-1] in valued and len(option) == 2 and words:
            words.pop(0)
    if len(words) > 1 and command.stdin is not None:
        yield run_by(command, words[1:])
    elif len(words) > 1:
        yield " ".join(w.text for w in words[1:])
    yield from _embedded(command)


def _trap(command: Command) -> Iterator[str]:
    if len(command.args) > 1:
        yield command.args[0]


def _script(command: Command) -> Iterator[str]:
    yield from _after_flag(command, "c")


def _sed(command: Command) -> Iterator[str]:
    """Yield what `e` of GNU sed runs."""
    for code in (*command.operands[:1], *_after_flag(command, "e")):
        for match in re.finditer(r"(?m)(?:^|[;}])\s*(?:\d+|\$)?\s*e\s+(.+)$", code):
            yield match[1]


def _tmux(command: Command) -> Iterator[str]:
    """Yield the command of `tmux new -d -s NAME COMMAND`."""
    words = list(command.args[1:])
    while words and words[0].startswith("-"):
        if words.pop(0)[-1] in "ceFflnstxy" and words and not words[0].startswith("-"):
            words.pop(0)
    yield " ".join(words)


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
                yield run_by(command, list(command.words[index + 2 :]))
                return


_EMBEDDED = re.compile(
    r"(?s)(?:alias\.\S+?=!|core\.(?:sshCommand|pager|editor)=|--checkpoint-action=exec=|--to-command="
    r"|--use-compress-program=|(?:Proxy|Local)Command[= ]|:?!)(?P<text>.+)"
)


def _embedded(command: Command) -> Iterator[str]:
    """Yield scripts in the arguments of programs that take some: `git -c alias.x=!…`, `tar --checkpoint-action=…`."""
    for arg in command.args:
        if (match := _EMBEDDED.fullmatch(arg)) is not None:
            yield match["text"]


def _tcl(command: Command) -> Iterator[str]:
    for match in re.finditer(r"(?m)\b(?:spawn|exec)\s+(.+)$", "\n".join([*command.args, command.stdin or ""])):
        yield match[1]


def _make(command: Command) -> Iterator[str]:
    """Yield the recipes of a makefile that is read from standard input."""
    for line in (command.stdin or "").splitlines():
        if line.startswith("\t") or ";" in line:
            yield line.strip() if line.startswith("\t") else line.partition(";")[2]


def _crontab(command: Command) -> Iterator[str]:
    for line in (command.stdin or "").splitlines():
        if match := re.match(r"\s*(?:@\w+|(?:\S+\s+){5})\s*(.+)", line):
            yield match[1]


def _strings(code: str) -> Iterator[str]:
    """Yield the strings of a program in another language that go to a shell."""
    calls = r"(?:system|popen|exec\w*|spawn\w*|run|call|check_call|check_output|Popen|getoutput|qx|sh)\s*[\(\[{\s]*"
    for match in re.finditer(calls + r"""(?:[rbf]?)(["'])(.*?)(?<!\\)\1((?:\s*,\s*(["']).*?\4)*)""", code, re.DOTALL):
        more = re.findall(r"""["'](.*?)["']""", match[3])
        yield " ".join([match[2], *(shlex.quote(m) for m in more)])
    for match in re.finditer(r"`([^`]+)`", code):
        yield match[1]
    for match in re.finditer(
        r"""(?:rmtree|removedirs|rm_rf|rmSync|rmdirSync|remove_dir_all)\s*\(?\s*(?:[\w.]+\(\s*)?(["'])(.*?)\1""", code
    ):
        yield f"rm -rf {shlex.quote(match[2])}"


_OTHERS: dict[str, Callable[[Command], Iterator[Command | str]]] = {
    "find": _find,
    "fd": _find,
    "eval": _eval,
    "su": _su,
    "runuser": _su,
    "sg": _su,
    "nix": _nix,
    "nix-shell": _nix,
    "ssh": _ssh,
    "trap": _trap,
    "script": _script,
    "flock": _script,
    "tmux": _tmux,
    "sed": _sed,
    "gsed": _sed,
    "at": _scheduled,
    "batch": _scheduled,
    "crontab": _crontab,
    "git": _embedded,
    "tar": _embedded,
    "vi": _embedded,
    "vim": _embedded,
    "nvim": _embedded,
    "scp": _embedded,
    "expect": _tcl,
    "tclsh": _tcl,
    "make": _make,
    "docker": _container,
    "podman": _container,
}
