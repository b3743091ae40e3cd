"""A shell script as values: the commands that it runs, with their words as far as they can be known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

__all__ = [
    "CHANGES",
    "DESTROYS",
    "INSTALLS",
    "LATER",
    "LIBRARY",
    "NETWORK",
    "REVEALS",
    "SENDS",
    "UNKNOWN",
    "UNLISTED",
    "UNDETERMINED",
    "ShellCommand",
    "NestedCode",
    "PossibleScript",
    "ShellRedirect",
    "ShellScript",
    "ShellWord",
]

UNKNOWN = "\N{OBJECT REPLACEMENT CHARACTER}"
"""Stands in a word for a part that only the running shell knows."""
UNDETERMINED, LIBRARY, NETWORK, CHANGES = "unknown", "library", "network", "changes"
"""Marks of a command: it runs what its text does not tell, loads a library, reaches the network, changes the system."""
INSTALLS, REVEALS, DESTROYS, LATER = "installs", "reveals", "destroys", "later"
"""Further ones: it installs programs, shows secrets that are kept, destroys data, runs something later."""
SENDS, UNLISTED = "sends", "unlisted"
"""It sends a file to another machine; it is a program that nobody listed."""


class ShellWord(NamedTuple):
    """One argument after expansion."""

    text: str
    """`~` for the home directory, `UNKNOWN` for what cannot be told."""
    sources: tuple[ShellCommand, ...] = ()
    """The commands of a process substitution that this word is: `<(curl x)`."""
    substituted: tuple[ShellCommand, ...] = ()
    """The commands whose output became part of the word: `$(curl x)`."""

    @property
    def is_known(self) -> bool:
        """Whether the whole text is."""
        return UNKNOWN not in self.text


class ShellRedirect(NamedTuple):
    """`> target` and its siblings."""

    operator: str
    """`>`, `>>`, `>|`, `&>`, `<`, …"""
    target: ShellWord

    @property
    def writes(self) -> bool:
        """Whether the target is opened for writing."""
        return ">" in self.operator


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """A simple command."""

    words: tuple[ShellWord, ...]
    """The name first; empty when there are only redirects."""
    redirects: tuple[ShellRedirect, ...] = ()
    before: tuple[ShellCommand, ...] = ()
    """The earlier stages of its pipeline."""
    stdin: str | None = None
    """What it reads, as far as known: here-document, here-string, or text of the stage before."""
    heredoc: bool = False
    """Whether `stdin` comes from a here-document or here-string."""
    cwd: str = ""
    """Where an earlier `cd` went; empty when it is the shell's own directory."""
    via: tuple[str, ...] = ()
    """What runs it: `sudo`, `xargs`, `find -exec`, …"""
    marks: frozenset[str] = frozenset()
    """`UNDETERMINED`, `LIBRARY`, `NETWORK`."""

    @property
    def name(self) -> str:
        """The program without its directory; empty when there is none."""
        return self.words[0].text.rpartition("/")[2] if self.words else ""

    @property
    def args(self) -> tuple[str, ...]:
        """The arguments."""
        return tuple(word.text for word in self.words[1:])

    @property
    def operands(self) -> tuple[str, ...]:
        """The arguments that are no options."""
        found, only = [], False
        for arg in self.args:
            if arg == "--" and not only:
                only = True
            elif only or not arg.startswith("-") or arg == "-":
                found.append(arg)
        return tuple(found)

    def has_flag(self, short: str = "", *long: str) -> bool:
        """Say whether a short option (also within a bundle: `-rf`) or a long one (also cut short) is there.

        Args:
            short: letters, any of which counts.
            long: names with their dashes.
        """
        for arg in self.args:
            if arg == "--":
                return False
            if arg.startswith("--"):
                given = arg.partition("=")[0]
                if any(name == given or (len(given) > 4 and name.startswith(given)) for name in long):
                    return True
            elif arg.startswith("-") and set(short) & set(arg[1:]):
                return True
        return False

    @property
    def reads_code(self) -> bool:
        """Whether a shell with these arguments runs what it reads."""
        return not [o for o in self.operands if o not in ("-", "/dev/stdin")] and not self.has_flag("c")

    @property
    def has_input(self) -> bool:
        """Whether it reads something else than a terminal."""
        files = (r.target.text for r in self.redirects if r.operator == "<")
        return (
            self.stdin is not None
            or bool(self.before)
            or any(f != "/dev/tty" and f != UNKNOWN and not f.startswith("@") for f in files)
        )

    @property
    def text(self) -> str:
        """Its words, for rules that look at what an argument says."""
        return " ".join(word.text for word in self.words)


class PossibleScript(str):
    """A text that may be a command: what is dangerous in it counts, but not that its words name no known program."""

    __slots__ = ()


class NestedCode(NamedTuple):
    """What a command or a piece of code runs in its turn."""

    parts: tuple[ShellCommand | str, ...] = ()
    """Commands, and texts that are shell scripts."""
    marks: frozenset[str] = frozenset()

    def __add__(self, other: NestedCode) -> NestedCode:  # type: ignore[override]
        """Return both."""
        return NestedCode(self.parts + other.parts, self.marks | other.marks)

    @classmethod
    def of(cls, parts: Iterable[ShellCommand | str | NestedCode]) -> NestedCode:
        """Return one of many."""
        found = cls()
        for part in parts:
            found += part if isinstance(part, NestedCode) else cls((part,))
        return found


class ShellScript(NamedTuple):
    """Everything that a text would run, in order, whatever is nested in it included."""

    commands: tuple[ShellCommand, ...]
    fork_bomb: bool = False
    problem: str = ""
    """Why it cannot be told what the text does; empty when it can."""
    assigns: bool = False
    """Whether it sets variables: what a command does may depend on them."""
