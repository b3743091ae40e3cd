"""Command patterns that plugins add; they hold in addition to the rules of `policy.shell`.

A plugin can only add patterns. A pattern that a plugin removes from a list stays in force, unless the same plugin
added it. Source: plugin contract §10.3, §10.4.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal

from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.registry import ListenerStore, StoreGroup

PatternList = Literal["dangerous", "hardline"]
"""`dangerous` commands need an approval; `hardline` commands never run."""


class CommandPattern(LazyNamedTuple):
    """A pattern that a plugin added."""

    list: PatternList
    given: tuple[Any, str]
    """The pair `(regex, description)` as the plugin wrote it."""
    regex: re.Pattern[str]
    description: str
    """Shown in the approval request; also an entry of `command_allowlist`."""
    owner: str
    place: float
    """Position in upstream's list; upstream's own patterns have the positions 0, 1, 2, …"""

    @classmethod
    def of(cls, which: PatternList, given: object, owner: str, place: float) -> CommandPattern:
        """Make a pattern from a pair `(regex, description)`; the regex is a string or compiled.

        Raises:
            TypeError: `given` is not such a pair.
            ValueError: the string is not a regular expression.
        """
        if not (isinstance(given, list | tuple) and len(given) == 2 and isinstance(given[1], str)):
            raise TypeError(f"{given!r} is not a command pattern: expected (regex, description)")
        source, description = given
        if isinstance(source, re.Pattern) and isinstance(source.pattern, str):
            regex = source
        elif isinstance(source, str):
            try:
                regex = re.compile(source, re.IGNORECASE | re.DOTALL)
            except re.error as exc:
                raise ValueError(f"the pattern {source!r} of {description!r} is not a regex: {exc}") from exc
        else:
            raise TypeError(f"{source!r} is not a regular expression: expected a string, or the result of re.compile")
        return cls(which, (source, description), regex, description.strip() or regex.pattern, owner, place)

    def matches(self, texts: Iterable[str]) -> bool:
        """Return whether one of the texts matches, as written or in lower case (as upstream matches)."""
        return any(self.regex.search(text) or self.regex.search(text.lower()) for text in texts)


class HiddenPattern(LazyNamedTuple):
    """A pattern that a plugin removed from a list: plugins no longer see it, and it stays in force."""

    given: tuple[Any, str]
    owner: str


class CommandPatterns(StoreGroup):
    """The patterns that plugins added to each list, and those that they hid."""

    _parts = ("_added", "_hidden")

    def __init__(self) -> None:
        self._added: ListenerStore[CommandPattern] = ListenerStore()
        self._hidden: ListenerStore[HiddenPattern] = ListenerStore()

    def patterns_for(self, which: PatternList) -> list[CommandPattern]:
        """Return the added patterns of a list, in their order."""
        return sorted(self._added.listeners_for(which), key=lambda pattern: pattern.place)

    def add(self, pattern: CommandPattern) -> None:
        """Add a pattern."""
        self._added.add(pattern.list, pattern)

    def drop(self, pattern: CommandPattern) -> None:
        """Remove a pattern."""
        self._added.remove(pattern.list, pattern)

    def hide(self, which: PatternList, given: tuple[Any, str], owner: str) -> None:
        """Hide a pattern from plugins; it stays in force."""
        self._hidden.add(which, HiddenPattern(given, owner))

    def unhide(self, which: PatternList, given: object) -> bool:
        """Show a pattern again; return whether it was hidden."""
        hidden = [pattern for pattern in self._hidden.listeners_for(which) if pattern.given == given]
        for pattern in hidden:
            self._hidden.remove(which, pattern)
        return bool(hidden)

    def is_visible(self, which: PatternList, given: tuple[Any, str]) -> bool:
        """Return whether plugins see a pattern."""
        return all(pattern.given != given for pattern in self._hidden.listeners_for(which))
