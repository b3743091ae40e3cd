"""Upstream's lists of regular expressions, which plugins read and add to. Source: contract §10.3, §10.4.

What a plugin adds is judged by (`policy.patterns`), as long as the plugin is loaded. The patterns that stand there
already are read alone: `policy.shell` reads the grammar, and each of them finds the plain form of what it describes.
They stand in `danger_patterns.toml`, which is read when a plugin asks for them. So a plugin weakens nothing by taking
one out: the list is shorter, the rule stays in force, and the log says so. The same goes for what another plugin added.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Iterable, Iterator, MutableSequence
from pathlib import Path
from typing import Any, NamedTuple, SupportsIndex, overload

from hermes_agent.compat.hosting import host, host_or_none
from hermes_agent.contracts.owner import current_owner, staged_store
from hermes_agent.core.registry import describe_owner
from hermes_agent.policy import CommandPatterns
from hermes_agent.policy.patterns import CommandPattern, PatternList

__all__ = ["DANGEROUS", "DANGEROUS_COMPILED", "HARDLINE", "HARDLINE_COMPILED", "Patterns"]

logger = logging.getLogger(__name__)

Pair = tuple[Any, str]
"""`(regex, description)`, to be searched for."""
_PART = re.compile(r"\{([A-Z_]+)\}")
_FLAGS = re.IGNORECASE | re.DOTALL


class _Slot(NamedTuple):
    pair: Pair
    place: float
    added: CommandPattern | None
    """The plugin's pattern; None for one of upstream's."""


class Patterns(MutableSequence[Pair]):
    """One of the lists, of whatever host there is.

    Args:
        compiled: as upstream's list of the same patterns that `re.compile` made.
    """

    def __init__(self, which: PatternList, *, compiled: bool = False) -> None:
        self._which, self._compiled = which, compiled

    # -- reading ---------------------------------------------------------------------------------------------

    @overload
    def __getitem__(self, index: SupportsIndex) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> list[Pair]: ...
    def __getitem__(self, index: Any) -> Any:
        return self.copy()[index]

    def __len__(self) -> int:
        return len(self._slots())

    def __iter__(self) -> Iterator[Pair]:
        return iter(self.copy())

    def __eq__(self, other: object) -> bool:
        return self.copy() == (other.copy() if isinstance(other, Patterns) else other)

    __hash__ = None  # type: ignore[assignment]  # as a list

    def __add__(self, other: Iterable[Pair]) -> list[Pair]:
        return [*self, *other]

    def __radd__(self, other: Iterable[Pair]) -> list[Pair]:
        return [*other, *self]

    def __repr__(self) -> str:
        return repr(self.copy())

    def copy(self) -> list[Pair]:
        """Return the pairs as a list of their own."""
        return [self._shown(slot) for slot in self._slots()]

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Pair]:
        return self.copy()

    # -- changing --------------------------------------------------------------------------------------------

    def insert(self, index: SupportsIndex, value: Pair) -> None:
        """Judge by a pattern from now on.

        Raises:
            TypeError: it is no pair of a regex and a description.
            ValueError: the regex is none.
        """
        slots, at = self._slots(), index.__index__()
        at = max(at + len(slots), 0) if at < 0 else min(at, len(slots))
        before = slots[at - 1].place if at else (slots[0].place - 2 if slots else -1)
        after = slots[at].place if at < len(slots) else before + 2
        self._add(value, (before + after) / 2)

    @overload
    def __setitem__(self, index: SupportsIndex, value: Pair) -> None: ...
    @overload
    def __setitem__(self, index: slice, value: Iterable[Pair]) -> None: ...
    def __setitem__(self, index: Any, value: Any) -> None:
        slots = self._slots()
        wanted: list[Any] = self.copy()
        wanted[index] = value  # a list says what is wrong with the index
        if not isinstance(index, slice):
            self._check(value)
            self._remove([slots[index]])
            self._add(value, slots[index].place)
            return
        for given in wanted:
            self._check(given)
        self.assign(wanted)

    def __delitem__(self, index: Any) -> None:
        gone = self._slots()[index]
        self._remove(gone if isinstance(gone, list) else [gone])

    def clear(self) -> None:
        """Take everything out."""
        self._remove(self._slots())

    def reverse(self) -> None:
        """Refuse it."""
        raise TypeError("the order of these patterns means nothing: each of them is looked for")

    def sort(self, *, key: Any = None, reverse: bool = False) -> None:
        """Refuse it."""
        self.reverse()

    def assign(self, wanted: Iterable[Any]) -> None:
        """Have these and no others: what `tools.approval.DANGEROUS_PATTERNS = […]` does."""
        new = list(wanted)
        for given in new:
            self._check(given)
        self._remove([slot for slot in self._slots() if self._shown(slot) not in new])
        there = self.copy()
        self.extend(given for given in new if tuple(given) not in there)

    # -- what is behind it -----------------------------------------------------------------------------------

    def _store(self) -> CommandPatterns:
        return staged_store(host().patterns)

    def _slots(self) -> list[_Slot]:
        upstream = [_Slot(pair, float(n), None) for n, pair in enumerate(_lists()[self._which])]
        store = host_or_none(lambda host: host.patterns)
        if store is None:
            return upstream
        added = [_Slot(pattern.given, pattern.place, pattern) for pattern in store.patterns_for(self._which)]
        slots = [*upstream, *added]
        return sorted((s for s in slots if store.is_visible(self._which, s.pair)), key=lambda slot: slot.place)

    def _shown(self, slot: _Slot) -> Pair:
        regex, about = slot.pair
        if not self._compiled:
            return slot.pair
        return (slot.added.regex if slot.added is not None else re.compile(regex, _FLAGS)), about

    def _check(self, given: Any) -> CommandPattern:
        return CommandPattern.of(self._which, given, current_owner().key, 0)

    def _add(self, given: Any, place: float) -> None:
        pattern = self._check(given)._replace(place=place)
        if not self._store().unhide(self._which, pattern.given):
            self._store().add(pattern)

    def _remove(self, slots: Iterable[_Slot]) -> None:
        owner = current_owner().key
        for slot in slots:
            if slot.added is not None and slot.added.owner == owner:
                self._store().drop(slot.added)
                continue
            self._store().hide(self._which, slot.pair, owner)
            logger.warning(
                "%s took the %s pattern %r out of the list: it stays in force%s",
                describe_owner(owner) if owner else "code of a plugin",
                self._which,
                slot.pair[1],
                "" if self._which == "hardline" else "; command_allowlist in config.yaml is the operator's to change",
            )


@functools.cache
def _lists() -> dict[str, list[tuple[str, str]]]:
    import tomllib  # few plugins ask

    document = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    parts: dict[str, str] = document["parts"]

    def whole(text: str) -> str:
        return _PART.sub(lambda match: whole(parts[match[1]]), text)

    return {name: [(whole(p), whole(about)) for p, about in pairs] for name, pairs in document["lists"].items()}


DANGEROUS = Patterns("dangerous")
"""What a person is asked about."""
HARDLINE = Patterns("hardline")
"""The same of what never runs (§10.3); `command_allowlist` lets nothing of it pass."""
DANGEROUS_COMPILED = Patterns("dangerous", compiled=True)
HARDLINE_COMPILED = Patterns("hardline", compiled=True)
