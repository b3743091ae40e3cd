"""What plugins add to the patterns that commands are judged by: upstream's lists, beside the rules of `policy.shell`.

A plugin can only add. What it takes out of a list stays in force, unless the plugin itself had added it. Source: plugin
contract §10.3, §10.4.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, Self

PatternList = Literal["dangerous", "hardline"]
"""Which list: commands that need an approval, or commands that never run."""


class CommandPattern(NamedTuple):
    """A pattern that a plugin added."""

    list: PatternList
    given: tuple[Any, str]
    """The pair as the plugin wrote it."""
    regex: re.Pattern[str]
    description: str
    """Shown in the approval request; an entry of `command_allowlist`."""
    owner: str
    place: float
    """Where it stands in upstream's list, whose own patterns stand at 0, 1, 2, …"""

    @classmethod
    def of(cls, which: PatternList, given: object, owner: str, place: float) -> CommandPattern:
        """Make it of `(regex, description)`; the regex is a text, or compiled.

        Raises:
            TypeError: it is no such pair.
            ValueError: the regex is none.
        """
        if not (isinstance(given, list | tuple) and len(given) == 2 and isinstance(given[1], str)):
            raise TypeError(f"{given!r} is no pattern of a command: expected (regex, description)")
        source, description = given
        if isinstance(source, re.Pattern) and isinstance(source.pattern, str):
            regex = source
        elif isinstance(source, str):
            try:
                regex = re.compile(source, re.IGNORECASE | re.DOTALL)
            except re.error as exc:
                raise ValueError(f"the pattern {source!r} of {description!r} is no regular expression: {exc}") from exc
        else:
            raise TypeError(f"{source!r} is no regular expression: expected a text, or what re.compile makes of one")
        return cls(which, (source, description), regex, description.strip() or regex.pattern, owner, place)

    def matches(self, texts: Iterable[str]) -> bool:
        """Say whether one of the texts has it; upstream's patterns look at the lower-case letters, too."""
        return any(self.regex.search(text) or self.regex.search(text.lower()) for text in texts)


class _State(NamedTuple):
    added: tuple[CommandPattern, ...] = ()
    taken_out: tuple[tuple[PatternList, tuple[Any, str], str], ...] = ()
    """List, pair and the plugin that removed it: plugins no longer see the pair, and it stays in force."""


class CommandPatterns:
    """The patterns of plugins; `plugins.ground.Store` says what the host does with them."""

    def __init__(self) -> None:
        self._state = _State()
        self._lock = threading.RLock()

    def patterns_for(self, which: PatternList) -> list[CommandPattern]:
        """Return a list's patterns in their order."""
        return sorted((p for p in self._state.added if p.list == which), key=lambda p: p.place)

    def add(self, pattern: CommandPattern) -> None:
        """Judge by a pattern from now on."""
        with self._lock:
            self._state = self._state._replace(added=(*self._state.added, pattern))

    def drop(self, pattern: CommandPattern) -> None:
        """Judge by it no longer."""
        with self._lock:
            self._state = self._state._replace(added=tuple(p for p in self._state.added if p is not pattern))

    def hide(self, which: PatternList, given: tuple[Any, str], owner: str) -> None:
        """Show a pattern to plugins no longer; it stays in force."""
        with self._lock:
            self._state = self._state._replace(taken_out=(*self._state.taken_out, (which, given, owner)))

    def unhide(self, which: PatternList, given: object) -> bool:
        """Show a pattern again that was taken out; false when none was."""
        with self._lock:
            kept = tuple(entry for entry in self._state.taken_out if entry[:2] != (which, given))
            found = len(kept) < len(self._state.taken_out)
            self._state = self._state._replace(taken_out=kept)
            return found

    def is_visible(self, which: PatternList, given: tuple[Any, str]) -> bool:
        """Say whether plugins see it."""
        return all(entry[:2] != (which, given) for entry in self._state.taken_out)

    # -- what every store can ------------------------------------------------------------------------------------

    def snapshot(self) -> _State:
        """Return the state for `restore`."""
        return self._state

    def restore(self, state: _State) -> None:
        """Go back to a `snapshot`."""
        self._state = state

    def owned_by(self, owner: str) -> list[str]:
        """Return the descriptions of what `owner` added."""
        return [pattern.description for pattern in self._state.added if pattern.owner == owner]

    def remove_owner(self, owner: str) -> list[str]:
        """Forget everything of `owner` and return the descriptions of its patterns."""
        with self._lock:
            names = self.owned_by(owner)
            self._state = _without(self._state, owner)
            return names

    def fork(self, without: str) -> Self:
        """Return patterns of their own with the same content, but for that of `without`."""
        fork = type(self)()
        fork._state = _without(self._state, without)
        return fork

    def adopt(self, owner: str, fork: Self) -> None:
        """Replace what `owner` has here by what it has in `fork`."""
        with self._lock:
            kept, fresh = _without(self._state, owner), fork._state
            self._state = _State(
                (*kept.added, *(p for p in fresh.added if p.owner == owner)),
                (*kept.taken_out, *(entry for entry in fresh.taken_out if entry[2] == owner)),
            )


def _without(state: _State, owner: str) -> _State:
    return _State(
        tuple(p for p in state.added if p.owner != owner),
        tuple(entry for entry in state.taken_out if entry[2] != owner),
    )
