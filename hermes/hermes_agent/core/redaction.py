"""Mask secrets in a text: by the value of every secret that is known, and by the look of common keys.

Known secrets in a text that comes in pieces: what may be the beginning of one is held back until it is certain.

Messages without known secrets, as they are stored, sent and shown.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from hermes_agent.core.messages import Content, Message, ToolCall
from hermes_agent.core.secrecy import MASK
from hermes_agent.core.secret_forms import (
    LEAST_VARIETY,
    MARKS,
    EncodedSecrets,
    ends_in_gap,
    has_prefix,
    search_unmarked,
    secret_spans,
)

SHORTEST_SECRET = 8
"""Shorter values (`1`, `true`) would mask ordinary words."""

LONGEST_PARTIAL = 128
"""Of a longer value the squeezed form tells that it has begun."""
LONG_LINE = 16
"""From this length on, a line of a secret of several lines is masked by itself."""


def _forms(value: str) -> Iterator[str]:
    for text in _texts(value):
        yield text
        yield json.dumps(text)[1:-1]
        yield json.dumps(text, ensure_ascii=False)[1:-1]
        if len(set(text)) >= LEAST_VARIETY:  # `00000001` the other way round is an amount
            yield text[::-1]


def _texts(value: str) -> Iterator[str]:
    """Yield `value` and, of several lines (a private key), each long one."""
    yield value
    lines = value.splitlines()
    if len(lines) > 1:
        yield from (line for line in lines if len(line) >= LONG_LINE and not line.startswith("-----"))


class _Finder(NamedTuple):
    automaton: Any
    """Finds marks and values in one pass."""
    runs: re.Pattern[str] | None
    """Finds values of one character."""
    disguises: EncodedSecrets
    values: tuple[str, ...]
    """Sorted: of which a text may end with the beginning."""


class _KnownSecrets:
    """The known secrets, and what finds them, which is made when it is first needed."""

    __slots__ = ("_finder", "secrets")

    def __init__(self, secrets: frozenset[str]) -> None:
        self.secrets = secrets
        self._finder: _Finder | None = None

    @property
    def finder(self) -> _Finder:
        """What finds them. Two threads may make it at once, and then make the same.

        No lock is held meanwhile: the garbage collector may run here, and with it a `__del__` that logs, which masks
        what it logs; and another thread that logs waits for this one.
        """
        if self._finder is None:
            self._finder = _build_finder(self.secrets)
        return self._finder


class Redactor:
    """Masks the secrets that it was told of, and what looks like one. Safe for threads."""

    def __init__(self) -> None:
        self._known = _KnownSecrets(frozenset())
        self._lock = threading.Lock()
        """Held while the secrets change, never while a text is masked."""

    def learn(self, values: Iterable[str]) -> None:
        """Add secrets by value; those under `SHORTEST_SECRET` characters are left out.

        A secret is also known as JSON writes it, encoded and split (`core.disguises`), and one of several lines (a
        private key) by each long line.
        """
        with self._lock:
            fresh = {value for value in values if len(value) >= SHORTEST_SECRET}
            if not fresh <= self._known.secrets:
                self._known = _KnownSecrets(self._known.secrets | fresh)

    def forget(self, values: Iterable[str]) -> None:
        """Remove values that turned out to be no secrets."""
        with self._lock:
            gone = frozenset(values)
            if gone & self._known.secrets:
                self._known = _KnownSecrets(self._known.secrets - gone)

    def snapshot(self) -> frozenset[str]:
        """Return the state for `restore`."""
        return self._known.secrets

    def restore(self, state: frozenset[str]) -> None:
        """Go back to a `snapshot`: what a test made known is forgotten with it."""
        with self._lock:
            self._known = _KnownSecrets(state)

    def __call__(self, text: str) -> str:
        """Return `text` with every secret replaced by `MASK`."""
        finder = self._known.finder
        text = _mask_spans(text, _find_secrets(finder, text, looks=True))
        return _mask_spans(text, finder.disguises.find_spans(text))

    def mask_known(self, text: str) -> str:
        """Return `text` with the known secrets replaced by `MASK`; what only looks like a secret stays."""
        finder = self._known.finder
        text = _mask_spans(text, _find_secrets(finder, text, looks=False))
        return _mask_spans(text, finder.disguises.find_spans(text))

    def find_certain_end(self, text: str) -> int:
        """Return where the end of a text begins that may be, or go on as, a known secret; its length for none.

        Nothing that is known reaches over that place.
        """
        finder = self._known.finder
        if not finder.values:
            return len(text)
        found = [*_find_secrets(finder, text, looks=False), *finder.disguises.find_spans(text)]
        cut = min(_find_partial(text, finder.values), finder.disguises.find_partial(text))
        going_on = (s for s, stop in found if ends_in_gap(text, stop) or has_prefix(finder.values, text[s:]))
        cut = min([cut, *going_on])
        while inside := [start for start, stop in found if start < cut < stop]:
            cut = min(inside)
        return cut


def _build_finder(secrets: frozenset[str]) -> _Finder:
    from ahocorasick_rs import AhoCorasick  # compiled code, which most commands never need

    values = {form for secret in secrets for form in _forms(secret)}
    # One character repeated is found at each place of a longer run: a million times in a million.
    runs = {value for value in values if len(set(value)) == 1}
    pattern = "|".join(f"{re.escape(run[0])}{{{len(run)},}}" for run in sorted(runs, key=len))
    # It leaves out, without a word, what comes after a pattern that cannot be encoded.
    automaton = AhoCorasick([*MARKS, *map(_encodable, values - runs)])
    disguises = EncodedSecrets(text for secret in secrets for text in _texts(secret))
    return _Finder(automaton, re.compile(pattern) if runs else None, disguises, tuple(sorted(values)))


def _find_secrets(finder: _Finder, text: str, *, looks: bool) -> Iterable[tuple[int, int]]:
    """Return where secrets stand in `text` as they are; with `looks`, what looks like one, too."""
    try:
        hits = finder.automaton.find_matches_as_indexes(text, overlapping=True)
    except UnicodeEncodeError:  # a lone surrogate; the places stay what they are
        hits = finder.automaton.find_matches_as_indexes(_encodable(text), overlapping=True)
    if not hits and finder.runs is None and not (looks and search_unmarked(text)):
        return ()
    found = [(start, stop) for index, start, stop in hits if index >= len(MARKS)]
    if finder.runs is not None:
        found += [match.span() for match in finder.runs.finditer(text)]
    if looks:
        found += secret_spans(text, {index for index, _, _ in hits if index < len(MARKS)})
    return found


def _find_partial(text: str, values: tuple[str, ...]) -> int:
    """Return where the longest end of `text` begins that one of the sorted `values` begins with."""
    for length in range(min(LONGEST_PARTIAL, len(text)), 0, -1):
        if has_prefix(values, text[-length:]):
            return len(text) - length
    return len(text)


def _mask_spans(text: str, found: Iterable[tuple[int, int]]) -> str:
    parts, end = [], 0
    for start, stop in sorted(found):
        if start >= end:
            parts += [text[end:start], MASK]
        end = max(end, stop)
    return "".join([*parts, text[end:]]) if parts else text


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


redactor = Redactor()
"""The process's redactor: `credentials` teaches it, the log handlers and the tool results use it."""


LONGEST_HELD = 8_192
"""Characters that are held back at most; the rest of a longer secret is masked by itself."""


class StreamMask:
    """The text of one answer, on its way to who reads along."""

    def __init__(self, by: Redactor = redactor) -> None:
        self._by = by
        self._held = ""

    def feed(self, piece: str) -> str:
        """Return what may be shown now that `piece` has come; often a few characters less or more than it."""
        text = self._held + piece
        cut = self._by.find_certain_end(text)
        if len(text) - cut > LONGEST_HELD:
            cut = len(text)
        self._held = text[cut:]
        return self._by.mask_known(text[:cut])

    def end(self) -> str:
        """Return what is left when nothing follows."""
        rest, self._held = self._held, ""
        return self._by.mask_known(rest)


def mask_content(content: Content) -> Content:
    """Return `content` with known secrets masked in its text; pictures and files stay."""
    if isinstance(content, str):
        return redactor.mask_known(content)
    return [
        {**part, "text": redactor.mask_known(text)} if isinstance(text := part.get("text"), str) else part
        for part in content
    ]


def mask_message(message: Message) -> Message:
    """Return `message` with known secrets masked in its text and in the arguments of its calls; itself without any."""
    content = mask_content(message.content)
    calls = tuple(_mask_call(call) for call in message.tool_calls)
    if content == message.content and calls == message.tool_calls:
        return message
    return replace(message, content=content, tool_calls=calls)


def mask_arguments(arguments: dict[str, Any] | None) -> dict[str, Any]:
    """Return the arguments of a call as they are shown."""
    if not arguments:
        return {}
    text = json.dumps(arguments, default=str)
    shown = redactor.mask_known(text)
    if shown == text:
        return arguments
    found = json.loads(shown) if _is_json(shown) else None
    return found if isinstance(found, dict) else {"arguments": MASK}


def _mask_call(call: ToolCall) -> ToolCall:
    arguments = redactor.mask_known(call.arguments)
    if arguments == call.arguments:
        return call
    if _is_json(call.arguments) and not _is_json(arguments):  # a secret that was split over several values
        arguments = json.dumps({"arguments": MASK})
    return replace(call, arguments=arguments)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
