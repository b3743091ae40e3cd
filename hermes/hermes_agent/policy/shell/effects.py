"""Effects of a command by the table of programs: the code that it runs, and its marks."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from hermes_agent.policy.shell import code, nested_commands, python, small_languages
from hermes_agent.policy.shell.paths import resolve_place
from hermes_agent.policy.shell.programs import (
    Arguments,
    Program,
    ProgramEffect,
    find_program,
    find_variable,
    is_a,
    is_installed,
    is_known,
    is_project,
    parse_arguments,
    split_subcommand,
)
from hermes_agent.policy.shell.rules import HARDLINE
from hermes_agent.policy.shell.script import (
    CHANGES,
    DESTROYS,
    INSTALLS,
    LATER,
    LIBRARY,
    MOST_PARTS,
    NETWORK,
    REVEALS,
    SENDS,
    UNDETERMINED,
    UNKNOWN,
    UNLISTED,
    NestedCode,
    PossibleScript,
    ShellCommand,
    ShellWord,
    has_glob,
    matches_glob,
    word_list,
    word_set,
)

ReadText = Callable[[ShellCommand, str], str | None]
"""Returns the text of a file that the script itself wrote, or None."""
_PLAIN = frozenset({"data", "is", "device", "assign", "sub", "special", "writes", "into", "chdir", "values", ""})
_MARKS = {"unknown": UNDETERMINED, "library": LIBRARY, "network": NETWORK, "changes": CHANGES} | {
    mark: mark for mark in (INSTALLS, REVEALS, DESTROYS, LATER, SENDS)
}
_ASKS_HELP = (("--help",), ("--version",), ("-version",), ("-V",))
_QUIET = frozenset({"sql", "make", "ftp", "vim", "gdb", "ed", "mongo", "redis"})
"""Languages of programs that are often started without code: without input they get no mark."""
_VALUE = re.compile(r"^--?[\w-]+=")
_SHELL_PATH = re.compile(r"(?:/usr(?:/local)?)?/bin/(?:ba|da|z|k|c|tc|a|fi)?sh$")
_PROGRAMS_AT = ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin")
_FROM_FILES = word_set("from-files")
"""Programs that print the content of files, or a part of it."""
_DESTROYERS = word_list("destroyers")
_HARD = re.compile(
    r"(?:^|/)(?:rm|mkfs(?:\.\w+)?|mke2fs|dd|shutdown|reboot|halt|poweroff|kill|pkill|killall5|init|telinit|systemctl|shred"
    r"|wipefs|blkdiscard|sgdisk|find|chmod|chown|chgrp|mv|cp|tee|rsync|truncate|parted|sfdisk|mkswap|cryptsetup|loginctl"
    r"|busctl|xargs)$"
)
_HARD_TEXT = re.compile(
    r"(?:^|[\s;&|'\"`(=/])(?:rm\s+-|mkfs|mke2fs\s|dd\s+\w+=|shutdown\s|reboot\b|halt\b|poweroff\b|kill\s+-|pkill\s|init\s+[06]"
    r"|telinit\s|systemctl\s|shred\s|wipefs\s|blkdiscard\s|find\s+/|ch(?:mod|own|grp)\s|mv\s|truncate\s|rsync\s|sgdisk\s|parted\s"
    r"|:\(\)|\bfork\b)|>\s*/dev/"
)


def find_effects(command: ShellCommand, written: ReadText) -> NestedCode:
    """Return the commands and scripts that a command runs, and its marks."""
    unknown = not is_known(command)
    program = find_program(command.name)
    if program is None:
        suspected = NestedCode.of(_suspected(command)) if unknown or _is_path(command) else NestedCode()
        return suspected + NestedCode(marks=frozenset({UNLISTED}) if unknown else frozenset())
    found = NestedCode(marks=frozenset({UNLISTED}) if unknown else frozenset())
    found += NestedCode.of(nested_commands.nested_parts(command)) if program.has("special") else NestedCode()
    found += _of(command, program, parse_arguments(command, program), written)
    if program.has("assign"):
        for word in command.words[1:]:
            name, equals, value = word.text.partition("=")
            if not equals and not word.text.startswith("-"):
                break
            found += assignment_effects(command, name, value, written) if equals else NestedCode()
    if program.has("sub"):
        rest, _ = split_subcommand(command)
        below = find_program(f"{command.name}|{rest[0].text}") if rest else None
        if below is not None:
            found += _of(command, below, parse_arguments(command, below, rest[1:]), written)
            if below.has("special"):
                found += NestedCode.of(nested_commands.nested_parts(command, rest))
    return found


def _of(command: ShellCommand, program: Program, args: Arguments, written: ReadText) -> NestedCode:
    found = NestedCode()
    own = command.words[0].text.startswith(("./", "../")) if command.words else False  # a project's program
    helps = command.args[-1:] in _ASKS_HELP or own
    for effect in program.effects:
        if effect.kind in _PLAIN or any(_given(slot, args, command) for slot in effect.unless):
            continue
        if effect.kind in _MARKS:
            if not helps and (not effect.slots or any(_given(slot, args, command) for slot in effect.slots)):
                found += NestedCode(marks=frozenset({_MARKS[effect.kind]}))
        else:
            found += _slots(command, effect, args, written, helps=helps)
    return found


def _given(slot: str, args: Arguments, command: ShellCommand) -> bool:
    return command.has_input if slot == "stdin" else args.has(slot)


def _slots(
    command: ShellCommand, effect: ProgramEffect, args: Arguments, written: ReadText, *, helps: bool
) -> NestedCode:
    found = NestedCode()
    for slot in effect.slots:
        if slot == "stdin":
            if command.stdin is not None:
                found += read_code(effect.kind, command.stdin)
            elif not helps and (_is_fed_unknown(command) or (not command.has_input and effect.kind not in _QUIET)):
                found += NestedCode(marks=frozenset({UNDETERMINED}))
        elif effect.kind == "argv":
            words = args.rest(slot)
            if len(words) == 1 and " " in words[0].text:  # `xterm -e 'ls -l'`
                found += NestedCode((words[0].text,))
            elif words:
                found += NestedCode((_from_directory(nested_commands.inner_command(command, words), args),))
        elif effect.kind == "setting":
            outside = any(_is_foreign_program(command, value) for value in args.values(slot))
            found += NestedCode(marks=frozenset({UNDETERMINED}) if outside else frozenset())
        elif effect.kind.startswith("file "):
            for name in args.values(slot):
                text = written(command, name)
                found += NestedCode() if text is None else read_code(effect.kind[5:], text)
        else:
            for text in args.values(slot):
                found += read_code(effect.kind, text)
    return found


def _is_fed_unknown(command: ShellCommand) -> bool:
    """Return whether the input is what other programs make, and not the content of files."""
    made = [*command.before, *(c for r in command.redirects if r.operator == "<" for c in r.target.sources)]
    return command.stdin is None and any(c.name not in _FROM_FILES for c in made)


def _from_directory(command: ShellCommand, args: Arguments) -> ShellCommand:
    """Return a command with the directory that `env -C`, `sudo -D` and the like set."""
    program = find_program(command.via[-1])
    slots = [slot for e in program.effects if e.kind == "chdir" for slot in e.slots] if program is not None else []
    directory = next((value for slot in slots for value in args.values(slot)), "")
    return replace(command, cwd=resolve_place(command, directory)) if directory else command


_UNKNOWNS = re.compile(f"{UNKNOWN}+")
_KNOWN_PLACE = re.compile(rf"(?:(?:[^/{UNKNOWN}]*|{UNKNOWN}+)/)*")
"""Directories before a name, each known or unknown as a whole."""
_EMPTY = re.compile(
    rf"(?<=[\w-]){UNKNOWN}+(?=[\w-])|^{UNKNOWN}+(?=[A-Za-z]|--[a-z]|-[A-Za-z]{{1,2}}$)|^(-[\w-]+){UNKNOWN}+$"
)
"""Unknown parts that may be empty: within a name, before it, before an option, and behind one.

A word such as `$DIR/` or `/opt/$NAME` has none: its variable has a value in all but broken scripts.
"""
_WHITE = re.compile(rf"^(-[A-Za-z]{{1,4}}){UNKNOWN}+(?=[/~.])|{UNKNOWN}+(?=--[a-z]|-[A-Za-z0-9]{{1,2}}$|of=/)")
"""Unknown parts outside quotes that may be white space: before an option, and between one and a path."""


def _possible_programs(command: ShellCommand) -> Iterator[str]:
    """Yield the programs that a name with a glob may mean."""
    name = command.name
    if has_glob(name) and name.strip("*?") and any(matches_glob(at, _directory(command)) for at in _PROGRAMS_AT):
        yield from (program for program in _DESTROYERS if matches_glob(program, name))


def possible_commands(command: ShellCommand) -> Iterator[ShellCommand]:
    """Yield what a command may be by a glob in its name, or with unknown parts empty or white space."""
    redirects = tuple(r._replace(target=next(_emptied((r.target,)), r.target)) for r in command.redirects)
    for name in _possible_programs(command):
        yield replace(command, words=(ShellWord(name), *command.words[1:]), marks=frozenset())
    if not any(UNKNOWN in word.text for word in (*command.words, *(r.target for r in command.redirects))):
        return
    heads, rest = [command.words[:1]], command.words[1:]
    if heads[0] and not heads[0][0].is_known:
        heads = list(_possible_names(heads[0][0]))
    known = {(command.text, tuple(r.target.text for r in command.redirects))}
    for words in ((*head, *args) for head in heads for args in (_emptied(rest), _spaced(rest))):
        found = replace(command, words=words, redirects=redirects, marks=frozenset())
        which = (found.text, tuple(r.target.text for r in redirects))
        if words and which not in known:
            known.add(which)
            yield found
    vanished = replace(command, words=tuple(w for w in command.words if w.text != UNKNOWN or not w.splits))
    if any(rule.test(vanished) for rule in HARDLINE):  # other programs take a word there: `python $SCRIPT`
        yield vanished


def _possible_names(word: ShellWord) -> Iterator[tuple[ShellWord, ...]]:
    """Yield the words that a name may be: each unknown part is empty or, outside quotes, white space."""
    place = _KNOWN_PLACE.match(word.text)[0]  # type: ignore[index]
    parts = _UNKNOWNS.split(word.text[len(place) :])
    count = len(parts) - 1
    every = itertools.product(("", " "), repeat=count) if count <= MOST_PARTS else (("",) * count, (" ",) * count)
    for signs in every if word.splits else (("",) * count,):
        text = place + "".join(itertools.chain(*zip(parts, (*signs, ""), strict=True)))
        if text or word.splits:
            yield tuple(ShellWord(name, word.sources, word.substituted) for name in text.split())


def _emptied(words: Iterable[ShellWord]) -> Iterator[ShellWord]:
    for word in words:
        text = word.text.replace(UNKNOWN, "") if word.parted else _EMPTY.sub(r"\1", word.text)
        if text or not word.text:
            yield word._replace(text=text)


def _spaced(words: Iterable[ShellWord]) -> Iterator[ShellWord]:
    for word in words:
        if word.splits:
            yield from (word._replace(text=text) for text in _WHITE.sub(r"\1 ", word.text).split())
        else:
            yield word


def _directory(command: ShellCommand) -> str:
    return resolve_place(command, command.words[0].text.rpartition("/")[0])


_FOR_EACH = re.compile(
    r"(?i)\b(?:get-childitem|gci|get-item|gi|ls|dir)\s+(?:-\w+\s+)*([^\s|;{}-][^\s|;{}]*)[^|;{}]*"
    r"\|\s*(?:foreach-object|foreach|%)\s*\{([^{}]*)\}"
)
"""A listing of a directory, and the code that PowerShell runs for each entry."""


def _powershell(text: str) -> NestedCode:
    """Return code of PowerShell and that of its loops, with the directory in place of each entry."""
    loops = (re.sub(r"(?i)\$(?:_|psitem)(?:\.\w+)?", lambda _, at=m[1]: at, m[2]) for m in _FOR_EACH.finditer(text))
    return NestedCode((text, *loops), frozenset({UNDETERMINED}))


def read_code(language: str, text: str) -> NestedCode:
    """Return the commands that code in a language runs, as far as known."""
    if language == "powershell":
        return _powershell(text)
    if language == "shell":
        unknown = UNKNOWN in text and not text.replace(UNKNOWN, "").strip()
        return NestedCode((text,), frozenset({UNDETERMINED}) if unknown else frozenset())
    if language == "python":
        return python.read(text)
    if language in small_languages.READERS:
        return small_languages.READERS[language](text)
    if language in small_languages.line_languages():
        return small_languages.read_line_language(language, text)
    return code.read(language, text)


def assignment_effects(command: ShellCommand, name: str, value: str, written: ReadText) -> NestedCode:
    """Return the code that programs run because a variable has a value."""
    if name == "PATH" and re.match(r"/(?:var/)?tmp\b|/dev/shm\b", value):
        return NestedCode(marks=frozenset({UNDETERMINED}))  # programs with usual names may be there
    program = find_variable(name)
    if name.startswith(("BASH_ALIASES[", "BASH_CMDS[")):
        return NestedCode((value,), frozenset({UNDETERMINED}))  # a name means another program from here on
    if name.endswith("SHELL") and is_a(value.rpartition("/")[2], "shell"):
        return NestedCode()  # replaces a shell by a shell
    if program is None or not value.replace(UNKNOWN, "").strip():
        return NestedCode()
    whole = Arguments((), ((ShellWord(value), 0),), (ShellWord(value),))
    script = program.has("shell") and _is_foreign_program(command, value)
    found = NestedCode(marks=frozenset({UNDETERMINED}) if script else frozenset())
    for effect in program.effects:
        found += _of(replace(command, stdin=""), Program((effect._replace(slots=("0",)),)), whole, written)
    return found


def _is_foreign_program(command: ShellCommand, text: str) -> bool:
    """Return whether a text names a program that is neither in the project nor installed."""
    words = text.strip("\"'|! ").split()
    runs = bool(words) and (
        is_a(words[0].rpartition("/")[2], "shell") or is_a(words[0].rpartition("/")[2], "interpreter")
    )
    script = next((w for w in words[1:] if not w.startswith("-")), "") if runs and "-c" not in words else ""
    names = [resolve_place(command, word.strip("\"'")) for word in (*words[:1], script) if word]
    return any(name.startswith(("/", "~", "../")) and not is_installed(name) for name in names)


def _is_path(command: ShellCommand) -> bool:
    return bool(command.words) and "/" in command.words[0].text


def _suspected(command: ShellCommand) -> Iterator[ShellCommand | str | NestedCode]:
    """Yield the arguments of an unknown program that are hard-line commands: it may run them."""
    project = is_project(command)
    for index, word in enumerate(command.words[1:], 1):
        if _SHELL_PATH.match(word.text):
            yield NestedCode(marks=frozenset({UNDETERMINED}))
        if _HARD.search(word.text) and index + 1 < len(command.words):
            yield nested_commands.inner_command(command, command.words[index:])
        elif not project and any(c.isspace() for c in word.text) and _HARD_TEXT.search(word.text):
            yield PossibleScript(_VALUE.sub("", word.text))
        elif not project and any(c.isspace() for c in word.text):
            yield from (PossibleScript(f"rm -rf {shlex.quote(path)}") for path in code.emptied(word.text))
    if not project and command.stdin and _HARD_TEXT.search(command.stdin):
        yield PossibleScript(command.stdin)
