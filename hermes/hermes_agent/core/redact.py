"""Mask secrets in a text: by the value of every secret that is known, and by the look of common keys."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from hermes_agent.core.secrecy import looks_like_secret_name
from hermes_agent.core.shapes import MARKS, spans, without_mark

__all__ = ["MASK", "Redactor", "looks_like_secret_name", "redactor"]

MASK = "[redacted]"
SHORTEST_SECRET = 8
"""Shorter values (`1`, `true`) would mask ordinary words."""

LONG_LINE = 16
"""From this length on, a line of a secret of several lines is masked by itself."""


def _forms(value: str) -> Iterator[str]:
    lines = [line for line in value.splitlines() if len(line) >= LONG_LINE and not line.startswith("-----")]
    for text in (value, *lines):
        yield text
        yield json.dumps(text)[1:-1]
        yield json.dumps(text, ensure_ascii=False)[1:-1]


class Redactor:
    """Masks the secrets that it was told of, and what looks like one. Safe for threads."""

    def __init__(self) -> None:
        self._values: frozenset[str] = frozenset()
        self._finder: tuple[Any, re.Pattern[str] | None] | None = None
        """What finds marks and values in one pass, and values of one character; made when it is first needed."""
        self._lock = threading.Lock()

    def learn(self, values: Iterable[str]) -> None:
        """Add secrets by value; those under `SHORTEST_SECRET` characters are left out.

        A secret is also known as JSON writes it, and one of several lines (a private key) by each long line.
        """
        with self._lock:
            fresh = {form for v in values if len(v) >= SHORTEST_SECRET for form in _forms(v)}
            if not fresh <= self._values:
                self._values, self._finder = self._values | fresh, None

    def forget(self, values: Iterable[str]) -> None:
        """Remove values that turned out to be no secrets."""
        with self._lock:
            gone = {form for v in values for form in _forms(v)}
            if gone & self._values:
                self._values, self._finder = self._values - gone, None

    def snapshot(self) -> frozenset[str]:
        """Return the state for `restore`."""
        return self._values

    def restore(self, state: frozenset[str]) -> None:
        """Go back to a `snapshot`: what a test made known is forgotten with it."""
        with self._lock:
            self._values, self._finder = state, None

    def __call__(self, text: str) -> str:
        """Return `text` with every secret replaced by `MASK`."""
        finder, runs = self._finder or self._made()
        try:
            hits = finder.find_matches_as_indexes(text, overlapping=True)
        except UnicodeEncodeError:  # a lone surrogate; the places stay what they are
            hits = finder.find_matches_as_indexes(_encodable(text), overlapping=True)
        if not hits and runs is None and without_mark(text) is None:
            return text
        found = [(start, stop) for index, start, stop in hits if index >= len(MARKS)]
        if runs is not None:
            found += [match.span() for match in runs.finditer(text)]
        found += spans(text, {index for index, _, _ in hits if index < len(MARKS)})
        parts, end = [], 0
        for start, stop in sorted(found):
            if start >= end:
                parts += [text[end:start], MASK]
            end = max(end, stop)
        return "".join([*parts, text[end:]])

    def _made(self) -> tuple[Any, re.Pattern[str] | None]:
        from ahocorasick_rs import AhoCorasick  # compiled code, which most commands never need

        with self._lock:
            # One character repeated is found at each place of a longer run: a million times in a million.
            runs = {value for value in self._values if len(set(value)) == 1}
            pattern = "|".join(f"{re.escape(run[0])}{{{len(run)},}}" for run in sorted(runs, key=len))
            # It leaves out, without a word, what comes after a pattern that cannot be encoded.
            automaton = AhoCorasick([*MARKS, *map(_encodable, self._values - runs)])
            found = self._finder = automaton, re.compile(pattern) if runs else None
        return found


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


redactor = Redactor()
"""The process's redactor: `credentials` teaches it, the log handlers and the tool results use it."""
