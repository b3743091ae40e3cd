"""The tables of programs: effects of their arguments, and which programs and words are known.

`programs.txt` describes effects. `known.txt` lists the programs that are known; the user is asked about
any other. `parse_arguments` splits the arguments of a command by what the table says of its program.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.policy.shell.paths import is_temporary, resolve_place
from hermes_agent.policy.shell.script import UNKNOWN, ShellCommand, ShellWord


class ProgramEffect(LazyNamedTuple):
    """An effect of a program, with the slots of the arguments that it concerns."""

    kind: str
    slots: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    """Slots that exclude the effect when they are given."""


class Program(LazyNamedTuple):
    """The rows of a program or of a subcommand in the table."""

    effects: tuple[ProgramEffect, ...] = ()
    valued: frozenset[str] = frozenset()
    """Options that take the next argument."""
    known: frozenset[str] = frozenset()
    """Options that an effect names: they are not bundles of letters."""
    own: float = float("inf")
    """Number of operands before the command that the program runs."""

    def has(self, kind: str) -> bool:
        """Return whether the program has an effect of a kind."""
        return any(effect.kind == kind for effect in self.effects)


class Arguments(LazyNamedTuple):
    """The arguments of a command, split into options and operands by the table."""

    options: tuple[tuple[str, str | None, int], ...]
    """Name, value, and index of the next word, of each option."""
    operands: tuple[tuple[ShellWord, int], ...]
    """Operands and their indexes."""
    words: tuple[ShellWord, ...]

    def option(self, name: str) -> Iterator[tuple[str | None, int]]:
        """Yield value and index of an option; a long option may be abbreviated."""
        for given, value, index in self.options:
            if given == name or (len(given) > 5 and given.startswith("--") and name.startswith(given)):
                yield value, index

    def values(self, slot: str) -> Iterator[str]:
        """Yield the texts in a slot."""
        if slot.isdigit():
            yield from (word.text for word, _ in self.operands[int(slot) : int(slot) + 1])
        elif slot[:-1].isdigit():
            rest = self.rest(slot)
            if rest:
                yield " ".join(word.text for word in rest)
        elif slot.startswith("/"):
            pattern = _regex(slot[1:-1])
            for word in self.words:
                if match := pattern.search(word.text):
                    yield next((group for group in match.groups() if group is not None), word.text)
        elif slot.startswith("="):
            yield slot[1:]
        elif slot.startswith(("-", "+")):
            yield from (value for value, _ in self.option(slot.removesuffix("+")) if value is not None)

    def rest(self, slot: str) -> tuple[ShellWord, ...]:
        """Return the words of a slot `3+` or `-x+`."""
        if slot[:-1].isdigit():
            place = int(slot[:-1])
            return self.words[self.operands[place][1] :] if place < len(self.operands) else ()
        for _, index in self.option(slot.removesuffix("+")):
            words = self.words[index:]
            return words[: next((i for i, word in enumerate(words) if word.text in (";", "\\;")), len(words))]
        return ()

    def has(self, slot: str) -> bool:
        """Return whether a slot is given."""
        if slot.startswith(("-", "+")):
            return any(True for _ in self.option(slot.removesuffix("+")))
        if slot.startswith("/") or slot[0].isdigit():
            return any(value not in ("-", "/dev/stdin") for value in self.values(slot))
        return any(word.text == slot for word, _ in self.operands)


@functools.cache
def _lines() -> dict[str, list[str]]:
    """Return the rows of each name as text; they are parsed on demand."""
    found: dict[str, list[str]] = {}
    for line in Path(__file__).with_name("programs.txt").read_text("utf-8").splitlines():
        names, separator, effects = line.partition(" | ")
        if separator and not line.startswith("#"):
            for name in names.split():
                found.setdefault(name, []).append(effects)
    return found


@functools.cache
def find_program(name: str) -> Program | None:
    """Return the entry of a program, a `program|subcommand` or a `$VARIABLE`, or None."""
    lines = _lines()
    known = lines.get(name) or lines.get(name.lower().removesuffix(".exe"))
    if known is None and "|" not in name and not name.startswith("$"):
        known = lines.get(re.sub(r"[-.\d]+$", "", name))
    if known is None:
        return None
    effects = [_effect(part) for line in known for part in line.split(" ; ")]
    plain = [effect for effect in effects if effect.kind != "values"]
    places = [int(s[:-1]) for e in plain if e.kind == "argv" for s in e.slots if s.endswith("+") and s[:-1].isdigit()]
    return Program(
        tuple(plain),
        frozenset(slot for effect in effects if effect.kind == "values" for slot in effect.slots),
        frozenset(slot.removesuffix("+") for e in plain for slot in (*e.slots, *e.unless) if slot.startswith("-")),
        min(places, default=float("inf")),
    )


def _effect(text: str) -> ProgramEffect:
    kind, _, rest = text.strip().partition(" ")
    slots, _, unless = f" {rest} ".partition(" unless ")
    if kind == "file":
        language, _, slots = slots.strip().partition(" ")
        kind = f"file {language}"
    return ProgramEffect(kind, tuple(slots.split()), tuple(unless.split()))


@functools.cache
def _regex(text: str) -> re.Pattern[str]:
    return re.compile(text, re.DOTALL)


def find_variable(name: str) -> Program | None:
    """Return what programs do with the value of an environment variable, or None."""
    return find_program(f"${name}")


def is_a(name: str, kind: str) -> bool:
    """Return whether a program is of a kind: `shell`, `interpreter`, `sql`, `downloader`, `editor`."""
    found = find_program(name)
    return found is not None and any(effect.kind == "is" and kind in effect.slots for effect in found.effects)


def parse_arguments(command: ShellCommand, program: Program, words: tuple[ShellWord, ...] | None = None) -> Arguments:
    """Split arguments into options with their values, and operands."""
    given = command.words[1:] if words is None else words
    if words is None and command.name in ("tar", "gtar", "bsdtar"):
        given = _dashed(given, program.valued)
    assigns = program.has("assign")
    options: list[tuple[str, str | None, int]] = []
    operands: list[tuple[ShellWord, int]] = []
    index, ended = 0, False
    while index < len(given):
        text = given[index].text
        index += 1
        if ended or not text.startswith(("-", "+")) or text in ("-", "+"):
            if assigns and not ended and not operands and re.match(r"[A-Za-z_]\w*=", text):
                continue
            operands.append((given[index - 1], index - 1))
            ended = ended or len(operands) > program.own
        elif text == "--":
            ended = True
            if "--" in program.valued or any("--+" in effect.slots for effect in program.effects):
                options.append(("--", None, index))
        else:
            following = given[index].text if index < len(given) else None
            known = text in program.known - program.valued
            taken, found = (0, [(text, None)]) if known else _options(text, following, program.valued)
            index += taken
            options += [(name, value, index - taken) for name, value in found]
    return Arguments(tuple(options), tuple(operands), given)


def _dashed(given: tuple[ShellWord, ...], valued: frozenset[str]) -> tuple[ShellWord, ...]:
    """Return the arguments of `tar` with a first word of letters (`cfI x.tar`) as separate options."""
    if not given or not re.fullmatch(r"[A-Za-z]+", given[0].text):
        return given
    rest, dashed = list(given[1:]), list[ShellWord]()
    for letter in given[0].text:
        dashed.append(ShellWord(f"-{letter}"))
        if f"-{letter}" in valued and rest:
            dashed.append(rest.pop(0))
    return (*dashed, *rest)


def _options(text: str, following: str | None, valued: frozenset[str]) -> tuple[int, list[tuple[str, str | None]]]:
    """Return the number of further arguments that an option takes, and the options with values."""
    name, equals, value = text.partition("=")
    if text in valued:
        return (0 if following is None else 1), [(text, following)]
    if equals and (text.startswith("--") or name in valued):
        return 0, [(name, value)]
    if text.startswith("--"):
        cut = len(text) > 5 and any(option.startswith(text) for option in valued)
        return (1, [(text, following)]) if cut and following is not None else (0, [(text, None)])
    found: list[tuple[str, str | None]] = [(text, None)]
    worded = any(len(option) > 2 and option[0] == "-" != option[1] for option in valued)  # `-ex`, `-engine`: no bundles
    for place, letter in enumerate(text[1:2] if worded else text[1:], 1):
        option = text[0] + letter
        if option in valued:
            attached = text[place + 1 :]
            if attached:
                return 0, [*found, (option, attached)]
            return (0 if following is None else 1), [*found, (option, following)]
        found.append((option, None))
    return 0, found


def split_subcommand(command: ShellCommand) -> tuple[tuple[ShellWord, ...], dict[str, str]]:
    """Return the words from the subcommand on, and the aliases of git (`-c alias.x=…`)."""
    words = list(command.words[1:])
    program = find_program(command.name)
    valued = frozenset[str]() if program is None else program.valued
    aliases: dict[str, str] = {}
    while words and words[0].text.startswith(("-", "+")):
        option = words.pop(0).text
        if option == "--":
            break
        value = ""
        if option in valued and words:
            value = words.pop(0).text
        elif option.startswith("-c") and command.name == "git":
            value = option[2:]
        name, given, meaning = value.partition("=")
        if command.name == "git" and given and name.lower().startswith("alias."):
            aliases[name[len("alias.") :]] = meaning
    return tuple(words), aliases


def subcommand_args(command: ShellCommand) -> tuple[str, ...]:
    """Return the arguments from the subcommand on; aliases of git are replaced."""
    words, aliases = split_subcommand(command)
    args = [word.text for word in words]
    if args and args[0] in aliases:
        args[:1] = aliases[args[0]].split()
    return tuple(args)


def spellings(command: ShellCommand) -> Iterator[str]:
    """Yield the command as written, without the directory, and without options before the subcommand."""
    yield command.text
    if command.name:
        yield " ".join((command.name, *command.args))
        yield " ".join((command.name, *subcommand_args(command)))


_INSTALLED = re.compile(r"/(?:(?:usr|opt|nix/store|snap|run/current-system)/|s?bin/)|~/\.(?:local|cargo|npm)")
_RUNNERS = frozenset({"poetry", "pdm", "hatch", "rye", "pixi", "pipenv", "uv", "bundle", "bundler", "rbenv", "tox"})
"""Programs that run programs of a project."""
_AS_ROOT = frozenset({"sudo", "doas", "run0", "pkexec"})
_HELP = frozenset({"--help", "--version", "-h", "-V", "-version", "-help"})
_VERSION = re.compile(r"[-.\d]+$")
_TARGET = re.compile(r"^\w+-(?:\w+-)*(?:gnu\w*|eabi\w*|elf|musl\w*|mingw32|none)-")
"""The prefix of a cross compiler."""


@functools.cache
def _table() -> dict[str, tuple[str, ...]]:
    """Return the known programs, each with its known words; () allows any words."""
    found: dict[str, tuple[str, ...]] = {}
    for line in Path(__file__).with_name("known.txt").read_text("utf-8").splitlines():
        if not line.startswith("#"):
            names, _, words = line.partition(" | ")
            found |= dict.fromkeys(names.split(), tuple(words.split()))
    return found


def _words(name: str) -> tuple[str, ...] | None:
    """Return the known words of a program, or None for an unknown program."""
    table, plain = _table(), name.lower().removesuffix(".exe")
    spellings = (name, plain, _VERSION.sub("", plain), _VERSION.sub("", _TARGET.sub("", plain)))
    return next((table[spelled] for spelled in spellings if spelled in table), None)


def is_installed(path: str) -> bool:
    """Return whether a path is in a directory where programs are installed."""
    return _INSTALLED.match(path) is not None


def is_project(command: ShellCommand) -> bool:
    """Return whether a program belongs to the project: by its path, or because a project tool runs it."""
    path = command.words[0].text
    if "/" in path:
        if path.startswith(("/", "~")) and _AS_ROOT & set(command.via):
            return False
        return not path.startswith(("/", "~")) or is_temporary(resolve_place(command, path))
    return command.via[-1:] != () and command.via[-1] in _RUNNERS


def is_harmless_use(command: ShellCommand) -> bool:
    """Return whether a program with power is used with known words only."""
    return bool(_words(command.name)) and _allowed(command)


_SETUP = re.compile(
    r"~/\.(?:bash_?\w+|profile|z\w+|nvm|cargo|rvm|sdkman|pyenv|rbenv|nodenv|asdf|nix-profile|ghcup|deno|bun|local|rustup|venvs?"
    r"|virtualenvs|opam|juliaup|rye|fzf)(?:[/.]|$)|/etc/|.*/(?:bin/activate(?:\.\w+)?|profile\.d/[\w.-]+\.sh)$"
)
"""Files that set up shells and toolchains."""


def foreign_script(command: ShellCommand) -> str:
    """Return the script outside of the project that a shell or an interpreter runs; empty without one."""
    program = find_program(command.name) if command.words else None
    runs = is_a(command.name, "shell") or is_a(command.name, "interpreter") or command.name in ("source", ".")
    if program is None or not runs:
        return ""
    given = parse_arguments(command, program)
    if any(given.has(option) for option in ("-c", "-e", "-m", "-E", "-r", "-p", "--eval", "--print")):
        return ""
    path = resolve_place(command, given.operands[0][0].text) if given.operands else ""
    theirs = path.startswith(("/", "~")) and UNKNOWN not in path and not path.startswith(("/dev/", "/proc/"))
    return path if theirs and not (is_temporary(path) or is_installed(path) or _SETUP.match(path)) else ""


def is_known(command: ShellCommand) -> bool:
    """Return whether a program and the words that decide what it does are known."""
    if foreign_script(command):
        return False
    name = command.name
    if not name or UNKNOWN in name or re.search(r"[*?]|\[.+\]", name) or is_project(command):
        return True  # no program, a name for other rules, or a program of the project
    if command.args[-1:] and command.args[-1] in _HELP and len(command.args) < 4:
        return _words(name) is not None or not any(arg.startswith("-") for arg in command.args[:-1])
    path = resolve_place(command, command.words[0].text)
    if path.startswith(("/", "~")) and "/" in command.words[0].text and not is_installed(path):
        return False
    return _allowed(command) or is_undecided(command)


def is_undecided(command: ShellCommand) -> bool:
    """Return whether the deciding word of a program with power is a variable: `git "$WHAT"`."""
    if not _words(command.name) or _allowed(command):
        return False
    operands = parse_arguments(command, find_program(command.name) or Program()).operands
    return bool(operands) and UNKNOWN in operands[0][0].text


def unknown_label(command: ShellCommand) -> str:
    """Return what is unknown: a program, or a program with power and its deciding word."""
    script = foreign_script(command)
    words = _words(command.name)
    if script or not words:
        return script.rpartition("/")[2] or command.name
    if all(word.startswith("-") for word in words):
        deciding = [arg for arg in command.args if arg.startswith("-") and not _listed(arg, words)]
    else:
        deciding = [word.text for word in split_subcommand(command)[0]]
    return f"{command.name} {deciding[0]}" if deciding and re.fullmatch(r"[\w:.-]{1,40}", deciding[0]) else command.name


def _allowed(command: ShellCommand) -> bool:
    words = _words(command.name)
    if not words:
        return words is not None
    given = parse_arguments(command, find_program(command.name) or Program())
    operands = [word.text for word, _ in given.operands]
    if not command.args or any(re.fullmatch(r"--dry-run(?:=(?:client|server|true))?", arg) for arg in command.args):
        return True
    if operands and operands[0] in split_subcommand(command)[1]:
        return True  # the meaning of the alias is judged
    below = _words(f"{command.name}|{operands[0]}") if operands else None
    if below is not None:
        rest = given.words[given.operands[0][1] + 1 :]
        inner = parse_arguments(command, find_program(f"{command.name}|{operands[0]}") or Program(), rest)
        return _fits(below, [word.text for word, _ in inner.operands], [word.text for word in rest])
    return _fits(words, operands, command.args)


def _fits(words: Sequence[str], operands: Sequence[str], args: Sequence[str]) -> bool:
    """Return whether the first operands are known, or each option is."""
    if any(_is_prefix(word.split("/"), operands) for word in words if word[0] not in "-!"):
        return True
    if "!" in words and operands:
        return False
    options = [arg for arg in args if arg.startswith("-") and len(arg) > 1]
    listed = [word for word in words if len(word) > 1 and word.startswith("-")]
    if not options:
        return not operands or "-" in words
    return all(_listed(option, listed) for option in options) if listed else not operands


def _is_prefix(path: Sequence[str], operands: Sequence[str]) -> bool:
    if path[-1] == ".":
        path = path[:-1]
        if len(operands) > len(path):
            return False
    return len(operands) >= len(path) and all(map(fnmatchcase, operands, path))


def _listed(option: str, listed: Sequence[str]) -> bool:
    name = option.partition("=")[0]
    if any(fnmatchcase(option, word) or fnmatchcase(name, word) for word in listed):
        return True
    letters = option[1:].rstrip("0123456789")
    return not option.startswith("--") and all(f"-{letter}" in listed for letter in letters)
