"""What a command does by the table: what it runs in its turn, and what cannot be told from its text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase

from hermes_agent.policy.shell import code, lines, python, special, streams
from hermes_agent.policy.shell.known import is_installed, is_known, is_project
from hermes_agent.policy.shell.paths import place
from hermes_agent.policy.shell.script import (
    CHANGES,
    DESTROYS,
    INSTALLS,
    LATER,
    LIBRARY,
    NETWORK,
    REVEALS,
    SENDS,
    UNKNOWN,
    UNLISTED,
    UNTOLD,
    Command,
    Found,
    Guess,
    Word,
)
from hermes_agent.policy.shell.table import Arguments, Effect, Program, arguments, entry, is_a, subcommand, variable

__all__ = ["assigned", "effects", "meant", "read_code"]

Written = Callable[[Command, str], str | None]
"""Returns the text of a file that the script itself wrote, as far as known."""
_PLAIN = frozenset({"data", "is", "device", "assign", "sub", "special", "writes", "into", "chdir", "values", ""})
_MARKS = {"unknown": UNTOLD, "library": LIBRARY, "network": NETWORK, "changes": CHANGES} | {
    mark: mark for mark in (INSTALLS, REVEALS, DESTROYS, LATER, SENDS)
}
_ASKS_HELP = (("--help",), ("--version",), ("-version",), ("-V",))
_QUIET = frozenset({"sql", "make", "ftp", "vim", "gdb", "ed", "mongo", "redis"})
"""Languages of programs that are started without any code in everyday work: what they read has no terminal."""
_SHELL_PATH = re.compile(r"(?:/usr(?:/local)?)?/bin/(?:ba|da|z|k|c|tc|a|fi)?sh$")
_GLOB = re.compile(r"[*?]|\[.+\]")
_PROGRAMS_AT = ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin")
_DESTROYERS = (
    *("rm", "dd", "mv", "find", "shred", "mkfs", "mkfs.ext4", "mkfs.xfs", "mke2fs", "wipefs", "blkdiscard", "sgdisk"),
    *("kill", "pkill", "killall", "killall5", "shutdown", "reboot", "halt", "poweroff", "init", "telinit", "kexec"),
    *(
        "systemctl",
        "loginctl",
        "cp",
        "tee",
        "sh",
        "bash",
        "dash",
        "zsh",
        "env",
        "sudo",
        "python3",
        "perl",
        "eval",
        "xargs",
    ),
)
_HARD = re.compile(
    r"(?:^|/)(?:rm|mkfs(?:\.\w+)?|mke2fs|dd|shutdown|reboot|halt|poweroff|kill|pkill|killall5|init|telinit|systemctl|shred"
    r"|wipefs|blkdiscard|sgdisk|find)$"
)
_HARD_TEXT = re.compile(
    r"(?:^|[\s;&|'\"`(=/])(?:rm\s+-|mkfs|mke2fs\s|dd\s+\w+=|shutdown\s|reboot\b|halt\b|poweroff\b|kill\s+-|pkill\s|init\s+[06]"
    r"|telinit\s|systemctl\s|shred\s|wipefs\s|blkdiscard\s|find\s+/|:\(\)|\bfork\b)|>\s*/dev/"
)


def effects(command: Command, written: Written) -> Found:
    """Return the commands and scripts that a command runs, and what of it cannot be told."""
    unknown = not is_known(command)
    program = entry(command.name)
    if program is None:
        suspected = Found.of(_suspected(command)) if unknown or _is_path(command) else Found()
        return suspected + Found(marks=frozenset({UNLISTED}) if unknown else frozenset())
    found = Found(marks=frozenset({UNLISTED}) if unknown else frozenset())
    found += Found.of(special.parts(command)) if program.has("special") else Found()
    found += _of(command, program, arguments(command, program), written)
    if program.has("assign"):
        for word in command.words[1:]:
            name, equals, value = word.text.partition("=")
            if not equals and not word.text.startswith("-"):
                break
            found += assigned(command, name, value, written) if equals else Found()
    if program.has("sub"):
        rest, _ = subcommand(command)
        below = entry(f"{command.name}|{rest[0].text}") if rest else None
        if below is not None:
            found += _of(command, below, arguments(command, below, rest[1:]), written)
            if below.has("special"):
                found += Found.of(special.parts(command, rest))
    return found


def _of(command: Command, program: Program, args: Arguments, written: Written) -> Found:
    found = Found()
    own = command.words[0].text.startswith(("./", "../")) if command.words else False  # a project's, of that name
    helps = command.args[-1:] in _ASKS_HELP or own
    for effect in program.effects:
        if effect.kind in _PLAIN or any(_given(slot, args, command) for slot in effect.unless):
            continue
        if effect.kind in _MARKS:
            if not helps and (not effect.slots or any(_given(slot, args, command) for slot in effect.slots)):
                found += Found(marks=frozenset({_MARKS[effect.kind]}))
        else:
            found += _slots(command, effect, args, written, helps=helps)
    return found


def _given(slot: str, args: Arguments, command: Command) -> bool:
    return command.fed if slot == "stdin" else args.given(slot)


def _slots(command: Command, effect: Effect, args: Arguments, written: Written, *, helps: bool) -> Found:
    found = Found()
    for slot in effect.slots:
        if slot == "stdin":
            if command.stdin is not None:
                found += read_code(effect.kind, command.stdin)
            elif not command.fed and not helps and effect.kind not in _QUIET:
                found += Found(marks=frozenset({UNTOLD}))
        elif effect.kind == "argv":
            words = args.rest(slot)
            if len(words) == 1 and " " in words[0].text:  # `xterm -e 'ls -l'`
                found += Found((words[0].text,))
            elif words:
                found += Found((_from_directory(special.run_by(command, words), args),))
        elif effect.kind == "setting":
            outside = any(_elsewhere(command, value) for value in args.values(slot))
            found += Found(marks=frozenset({UNTOLD}) if outside else frozenset())
        elif effect.kind.startswith("file "):
            for name in args.values(slot):
                text = written(command, name)
                found += Found() if text is None else read_code(effect.kind[5:], text)
        else:
            for text in args.values(slot):
                found += read_code(effect.kind, text)
    return found


def _from_directory(command: Command, args: Arguments) -> Command:
    """Return a command as it runs where `env -C`, `sudo -D` and the like put it."""
    program = entry(command.via[-1])
    slots = [slot for e in program.effects if e.kind == "chdir" for slot in e.slots] if program is not None else []
    there = next((value for slot in slots for value in args.values(slot)), "")
    return replace(command, cwd=place(command, there)) if there else command


def meant(command: Command) -> Iterator[str]:
    """Yield the programs that a name may be with a glob in it, or with variables that may be empty."""
    name = command.name
    bare = name.replace(UNKNOWN, "")
    if bare != name and bare:
        yield bare
    elif _GLOB.search(name) and name.strip("*?") and any(fnmatchcase(at, _directory(command)) for at in _PROGRAMS_AT):
        yield from (program for program in _DESTROYERS if fnmatchcase(program, name))


def _directory(command: Command) -> str:
    return place(command, command.words[0].text.rpartition("/")[0])


def read_code(language: str, text: str) -> Found:
    """Return what a text in a language runs, as far as it can be told."""
    if language in ("shell", "powershell"):
        unknown = UNKNOWN in text and not text.replace(UNKNOWN, "").strip()
        return Found((text,), frozenset({UNTOLD}) if unknown or language == "powershell" else frozenset())
    if language == "python":
        return python.read(text)
    if language in streams.READERS:
        return streams.READERS[language](text)
    if language in lines.known():
        return lines.read(language, text)
    return code.read(language, text)


def assigned(command: Command, name: str, value: str, written: Written) -> Found:
    """Return what is run because a variable has a value."""
    if name == "PATH" and re.match(r"/(?:var/)?tmp\b|/dev/shm\b", value):
        return Found(marks=frozenset({UNTOLD}))  # programs of the usual names may lie there
    program = variable(name)
    if name.startswith(("BASH_ALIASES[", "BASH_CMDS[")):
        return Found((value,), frozenset({UNTOLD}))  # another program has a name from here on
    if name.endswith("SHELL") and is_a(value.rpartition("/")[2], "shell"):
        return Found()  # one shell in the place of another
    if program is None or not value.replace(UNKNOWN, "").strip():
        return Found()
    whole = Arguments((), ((Word(value), 0),), (Word(value),))
    script = program.has("shell") and _elsewhere(command, value)
    found = Found(marks=frozenset({UNTOLD}) if script else frozenset())
    for effect in program.effects:
        found += _of(replace(command, stdin=""), Program((effect._replace(slots=("0",)),)), whole, written)
    return found


def _elsewhere(command: Command, text: str) -> bool:
    """Say whether a text names a program neither of the working directory nor of where programs are installed."""
    words = text.strip("\"'|! ").split()
    runs = bool(words) and (
        is_a(words[0].rpartition("/")[2], "shell") or is_a(words[0].rpartition("/")[2], "interpreter")
    )
    script = next((w for w in words[1:] if not w.startswith("-")), "") if runs and "-c" not in words else ""
    names = [place(command, word.strip("\"'")) for word in (*words[:1], script) if word]
    return any(name.startswith(("/", "~", "../")) and not is_installed(name) for name in names)


def _is_path(command: Command) -> bool:
    return bool(command.words) and "/" in command.words[0].text


def _suspected(command: Command) -> Iterator[Command | str | Found]:
    """Look at the arguments of a program that the table does not know: it may run them."""
    project = is_project(command)
    for index, word in enumerate(command.words[1:], 1):
        if _SHELL_PATH.match(word.text):
            yield Found(marks=frozenset({UNTOLD}))
        if _HARD.search(word.text) and index + 1 < len(command.words):
            yield special.run_by(command, command.words[index:])
        elif not project and any(c.isspace() for c in word.text) and _HARD_TEXT.search(word.text):
            yield Guess(word.text)
