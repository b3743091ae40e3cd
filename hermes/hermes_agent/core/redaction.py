"""Masking of secrets in texts, streams and messages, by known value and by form."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from hermes_agent.core.lazy_types import LazyNamedTuple
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
from hermes_agent.core.secret_patterns import compile_secret_pattern

SHORTEST_SECRET = 8
"""Shorter values (`1`, `true`) are not masked, since they are ordinary words."""

LONGEST_PARTIAL = 128
"""Characters of a partial secret to compare; for longer secrets the encoded forms detect the beginning."""
LONG_LINE = 16
"""A line of a multi-line secret with at least this length is masked on its own."""


def _forms(value: str) -> Iterator[str]:
    for text in _texts(value):
        yield text
        yield json.dumps(text)[1:-1]
        yield json.dumps(text, ensure_ascii=False)[1:-1]
        if len(set(text)) >= LEAST_VARIETY:  # the reverse of `00000001` is an ordinary number
            yield text[::-1]


def _texts(value: str) -> Iterator[str]:
    """Yield `value`, and each long line of a multi-line value (a private key)."""
    yield value
    lines = value.splitlines()
    if len(lines) > 1:
        yield from (line for line in lines if len(line) >= LONG_LINE and not line.startswith("-----"))


class _Finder(LazyNamedTuple):
    automaton: Any
    """Finds marks and values in one pass."""
    runs: re.Pattern[str] | None
    """Finds values that repeat one character."""
    disguises: EncodedSecrets
    values: tuple[str, ...]
    """Sorted values, to find those that the end of a text begins."""


class _KnownSecrets:
    """The known secrets and their finder, which is made at its first use."""

    __slots__ = ("made", "secrets")

    def __init__(self, secrets: frozenset[str]) -> None:
        self.secrets = secrets
        self.made: _Finder | None = None
        """What `finder` returns, or None before its first call."""

    def finder(self) -> _Finder:
        """Return the finder of the known secrets.

        Two threads may make it at the same time, with the same result. No lock is held meanwhile. The garbage collector
        may run here, and a finalizer that logs would mask its line with the same redactor; a thread that logs would
        wait for this one.
        """
        if self.made is None:
            self.made = _build_finder(self.secrets)
        return self.made


class Redactor:
    """Masks known secrets and values that have the form of a secret. Safe for threads."""

    def __init__(self) -> None:
        self._known = _KnownSecrets(frozenset())
        self._patterns: tuple[re.Pattern[str], ...] = ()
        """Patterns of plugins."""
        self._lock = threading.Lock()
        """Held while the secrets change, never while a text is masked."""

    def learn(self, values: Iterable[str]) -> None:
        """Add secrets by value; values under `SHORTEST_SECRET` characters are left out.

        The forms of a secret in JSON, encoded and split, are found as well (`core.secret_forms`), and so is each long
        line of a multi-line secret.
        """
        with self._lock:
            fresh = {value for value in values if len(value) >= SHORTEST_SECRET}
            if not fresh <= self._known.secrets:
                self._known = _KnownSecrets(self._known.secrets | fresh)

    def forget(self, values: Iterable[str]) -> None:
        """Remove values that are no secrets."""
        with self._lock:
            gone = frozenset(values)
            if gone & self._known.secrets:
                self._known = _KnownSecrets(self._known.secrets - gone)

    def add_patterns(self, patterns: Iterable[str], owner: str) -> list[re.Pattern[str]]:
        """Mask what matches these patterns, too; return those that are accepted, log the others.

        Args:
            owner: who adds them, for the log.
        """
        added = [compiled for text in patterns if (compiled := compile_secret_pattern(text, owner)) is not None]
        with self._lock:
            self._patterns = (*self._patterns, *added)
        return added

    def remove_pattern(self, pattern: re.Pattern[str]) -> None:
        """Remove one pattern of `add_patterns`."""
        with self._lock:
            present = list(self._patterns)
            if pattern in present:
                present.remove(pattern)
            self._patterns = tuple(present)

    def snapshot(self) -> frozenset[str]:
        """Return the state for `restore`."""
        return self._known.secrets

    def restore(self, state: frozenset[str]) -> None:
        """Return to the state of a `snapshot`."""
        with self._lock:
            self._known = _KnownSecrets(state)

    def __call__(self, text: str) -> str:
        """Return `text` with every secret replaced by `MASK`."""
        finder = self._known.made or self._known.finder()
        if found := _find_secrets(finder, text, looks=True):
            text = _mask_spans(text, found)
        if disguised := finder.disguises.find_spans(text):
            text = _mask_spans(text, disguised)
        for pattern in self._patterns:
            text = pattern.sub(MASK, text)
        return text

    def mask_known(self, text: str) -> str:
        """Return `text` with the known secrets replaced by `MASK`.

        Values that only have the form of a secret stay.
        """
        if len(text) < SHORTEST_SECRET:  # so is every form of a secret at least
            return text
        finder = self._known.finder()
        if found := _find_secrets(finder, text, looks=False):
            text = _mask_spans(text, found)
        if disguised := finder.disguises.find_spans(text):
            text = _mask_spans(text, disguised)
        return text

    def find_certain_end(self, text: str) -> int:
        """Return where the end of `text` begins that may become a known secret.

        No known secret extends over that position. It is the length of `text` if there is none.
        """
        finder = self._known.finder()
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
    from ahocorasick_rs import AhoCorasick, Implementation  # compiled code, which most commands never need

    values = {form for secret in secrets for form in _forms(secret)}
    # A repeated character matches at each position of a longer run: a million matches in a million characters.
    runs = {value for value in values if len(set(value)) == 1}
    pattern = "|".join(f"{re.escape(run[0])}{{{len(run)},}}" for run in sorted(runs, key=len))
    # The automaton silently ignores all patterns after one that cannot be encoded.
    patterns = [*MARKS, *map(_encodable, values - runs)]
    automaton = AhoCorasick(patterns, implementation=Implementation.ContiguousNFA)  # four times faster than its choice
    disguises = EncodedSecrets(text for secret in secrets for text in _texts(secret))
    return _Finder(automaton, re.compile(pattern) if runs else None, disguises, tuple(sorted(values)))


def _find_secrets(finder: _Finder, text: str, *, looks: bool) -> Iterable[tuple[int, int]]:
    """Return the spans of unencoded secrets in `text`; with `looks`, also of values with their form."""
    try:
        hits = finder.automaton.find_matches_as_indexes(text, overlapping=True)
    except UnicodeEncodeError:  # a lone surrogate; the replacement keeps the positions
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
    """Return where the longest end of `text` begins that is the beginning of one of the sorted `values`."""
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
"""The redactor of the process: `credentials` adds secrets, log handlers and tool results use it."""


LONGEST_HELD = 8_192
"""Most characters that are held back; the rest of a longer secret is masked separately."""


class StreamMask:
    """Masks known secrets in a text that arrives in pieces; a possible beginning of a secret is held back."""

    def __init__(self, by: Redactor = redactor) -> None:
        self._by = by
        self._held = ""

    def feed(self, piece: str) -> str:
        """Add a piece and return the text that may be shown now.

        It is often a few characters less or more than the piece.
        """
        text = self._held + piece
        cut = self._by.find_certain_end(text)
        if len(text) - cut > LONGEST_HELD:
            cut = len(text)
        self._held = text[cut:]
        return self._by.mask_known(text[:cut])

    def end(self) -> str:
        """Return the text that was held back, at the end of the stream."""
        rest, self._held = self._held, ""
        return self._by.mask_known(rest)


def mask_content(content: Content) -> Content:
    """Return `content` with known secrets masked in its text; images and files stay."""
    if isinstance(content, str):
        return redactor.mask_known(content)
    return [
        {**part, "text": redactor.mask_known(text)} if isinstance(text := part.get("text"), str) else part
        for part in content
    ]


def mask_message(message: Message) -> Message:
    """Return `message` with known secrets masked in its text and call arguments.

    It is the same object if there are none. A message is searched again only after the known secrets changed.
    """
    secrets = redactor.snapshot()
    if message.masked_secrets is secrets:
        return message
    content = mask_content(message.content)
    calls = tuple(map(_mask_call, message.tool_calls))
    if content != message.content or calls != message.tool_calls:
        message = replace(message, content=content, tool_calls=calls)
    if isinstance(content, str):  # a plugin may change the parts of a list
        object.__setattr__(message, "masked_secrets", secrets)
    return message


def mask_arguments(arguments: dict[str, Any] | None) -> dict[str, Any]:
    """Return the arguments of a call with known secrets masked."""
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
