"""Encoded and split forms of known secrets, and where a text contains them.

A text is squeezed: everything but letters and digits is removed. Each form of a secret is squeezed likewise, so that
one form stands for every separator, every line length and both alphabets of base64. One Aho-Corasick pass over the
squeezed text finds the heads of the forms; only for a head that was found is the text itself searched.
"""

from __future__ import annotations

import base64
import bisect
import codecs
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

__all__ = ["LEAST_VARIETY", "LONGEST_ENCODED", "EncodedSecrets", "has_prefix", "ends_in_gap"]

LONGEST_ENCODED = 1_024
"""Encoded forms cover this many characters of a secret."""

HEAD = 40
"""Characters of a form that the search knows: they bound its memory."""

HEAD_TWICE = 20
"""Of what was encoded twice, which has many forms."""

SHORTEST_FORM = 10
"""Shorter squeezed forms are not searched: they occur in ordinary words."""
SHORTEST_WORDS = 12
"""A shorter secret must be spelled letter by letter: `admin123` is no secret in `admin: 123`."""
SHORTEST_SPELLED = 8
SHORTEST_DIGITS = 16
"""Shorter forms of digits alone occur in tables of numbers."""
LEAST_VARIETY = 4
"""A secret of fewer different characters has no encoded forms: it would be found at each place of a long run."""

_INVISIBLE = "\xa0\xad\u2009\u200b\u200c\u200d\u2028\u2029\u202f\u2060\u3000\ufeff"
_BYTES_OF_INVISIBLE = tuple(character.encode() for character in _INVISIBLE)
_DELETED = bytes(code for code in range(128) if not chr(code).isalnum())
_GAP = rf"(?:\\+[nrt]|[\x00-/:-@\[-`{{-\x7f{_INVISIBLE}])"
"""What squeezing removes; the ends of lines also as JSON writes them."""
_WIDEST = 40
"""Characters of one gap: what lies further apart belongs to different things."""


class _Form(NamedTuple):
    head: str
    """Squeezed, as the rest."""
    rest: str
    spelled: bool
    """Only found letter by letter."""


class EncodedSecrets:
    """Finds the encoded and split forms of a set of secrets."""

    def __init__(self, secrets: Iterable[str]) -> None:
        from ahocorasick_rs import AhoCorasick, Implementation  # compiled code, which most commands never need

        self._forms: dict[str, list[_Form]] = {}
        for form in {form for secret in secrets for form in _forms(secret)}:
            self._forms.setdefault(form.head, []).append(form)
        self._heads = list(self._forms)
        self._sorted = tuple(sorted(self._heads))
        self._finder: Any = AhoCorasick(self._heads, implementation=Implementation.ContiguousNFA)

    def find_partial(self, text: str) -> int:
        """Return where the longest end of `text` begins that may be the beginning of a form; its length for none."""
        if not self._heads:
            return len(text)
        # a gap is bounded, and so is the window
        start = max(0, len(text) - HEAD * (_WIDEST + 1))
        places = [m.start() for m in _SIGNIFICANT.finditer(text, start) if m[1] is not None][-HEAD:]
        letters = "".join(text[place] for place in places)
        for length in range(len(letters), 0, -1):
            if has_prefix(self._sorted, letters[-length:]):
                return places[-length]
        return len(text)

    def find_spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where `text` contains a form of a secret, unordered; spans may overlap."""
        if not self._heads or len(text) < SHORTEST_SPELLED:
            return
        hits = self._finder.find_matches_as_indexes(_squeeze(text), overlapping=True)
        for index in {index for index, _, _ in hits}:
            head = self._heads[index]
            for spelled in {form.spelled for form in self._forms[head]}:
                rests = [form.rest for form in self._forms[head] if form.spelled is spelled]
                for match in _pattern(head, spelled).finditer(text):
                    yield match.start(), max(_end(text, match.end(), rest) for rest in rests)


_SIGNIFICANT = re.compile(rf"{_GAP}|(.)", re.DOTALL)
"""What squeezing removes, or, as the group, keeps."""


def has_prefix(texts: Sequence[str], beginning: str) -> bool:
    """Say whether one of the sorted `texts` has this beginning."""
    place = bisect.bisect_left(texts, beginning)
    return place < len(texts) and texts[place].startswith(beginning)


def _squeeze(text: str) -> str:
    raw = text.encode("utf-8", "replace")
    if len(raw) != len(text):
        for invisible in _BYTES_OF_INVISIBLE:
            raw = raw.replace(invisible, b"")
    if b"\\" in raw:  # ends of lines, as JSON writes them
        raw = raw.replace(b"\\n", b"").replace(b"\\r", b"").replace(b"\\t", b"")
    return raw.translate(None, _DELETED).decode()


def _pattern(head: str, spelled: bool) -> re.Pattern[str]:
    return re.compile(f"{_GAP}{{{int(spelled)},{_WIDEST}}}".join(map(re.escape, head)))


_ONE_GAP = re.compile(f"{_GAP}{{0,{_WIDEST}}}")


def ends_in_gap(text: str, at: int) -> bool:
    """Say whether nothing but one gap follows a place of a text."""
    return _ONE_GAP.match(text, at).end() == len(text)  # type: ignore[union-attr]


def _end(text: str, at: int, rest: str) -> int:
    """Return where the form ends of which `rest` follows, as far as it is there."""
    end = at
    for character in rest:
        at = _ONE_GAP.match(text, at).end()  # type: ignore[union-attr]
        if text[at : at + 1] != character:
            break
        at = end = at + 1
    return end


def _forms(secret: str) -> Iterator[_Form]:
    """Yield the forms in which `secret` is searched for; those that are too short are left out."""
    secret = secret[:LONGEST_ENCODED].encode("utf-8", "replace").decode()
    if len(set(secret)) < LEAST_VARIETY:
        return
    plain = _squeeze(secret)
    for text in (plain, plain[::-1]):
        if len(secret) >= SHORTEST_WORDS:
            yield from _searchable(text)
        elif len(text) >= SHORTEST_SPELLED:
            yield _Form(text, "", spelled=True)
    for head, texts in ((HEAD, _encoded(secret)), (HEAD_TWICE, _encoded_twice(secret))):
        for squeezed in map(_squeeze, texts):
            if squeezed != plain:
                yield from _searchable(squeezed, head)


def _searchable(text: str, head: int = HEAD) -> Iterator[_Form]:
    least = SHORTEST_DIGITS if text.isdigit() else SHORTEST_FORM
    if len(text) >= least:
        yield _Form(text[:head], text[head:], spelled=False)


def _encoded(secret: str) -> Iterator[str]:
    raw = secret.encode()
    for data in (raw, secret.encode("utf-16-le")):
        for shift in range(3):
            yield _base64(data, shift)
    for shift in range(5):
        yield _inner(base64.b32encode(bytes(shift) + raw + bytes(4)).decode(), shift, len(raw), 5)
    for pairs in (raw.hex(" "), raw.hex(" ").upper()):
        yield pairs
        for before in ("0x", "x"):  # `0x41, 0x42`; `\x41\x42` and `&#x41;&#x42;`
            yield before + pairs.replace(" ", before)
    yield raw[::-1].hex()
    yield "".join(f"{byte:03o}" for byte in raw)
    yield "".join(map(str, raw))
    units = secret.encode("utf-16-be").hex(" ", 2)
    for each in (units, units.upper()):
        yield "u" + each.replace(" ", "u")
    yield codecs.encode(secret, "rot13")
    if not secret.isalnum():
        yield secret.translate(_ENTITIES)
    if not secret.isascii():
        yield json.dumps(secret)
    if not secret.isascii() or not secret.isalnum():
        for safe in ("", "/", "!'()*~", "!$&'()*+,;=:@/?~"):
            text = quote(secret, safe=safe)
            yield text
            yield _ESCAPE.sub(_lower, text)


def _encoded_twice(secret: str) -> Iterator[str]:
    """Yield the forms of a secret that was encoded in base64 and then once more, or in base64 after another code."""
    raw = secret.encode()
    for shift in range(3):
        once = _base64(raw, shift)
        yield from _in_base64(once)
        yield once.encode().hex()
        yield once.encode().hex().upper()
        yield once[::-1]
        if not once.isalnum():
            yield quote(once, safe="")
            yield _ESCAPE.sub(_lower, quote(once, safe=""))
    for once in dict.fromkeys((raw.hex(), secret[::-1], quote(secret, safe=""))):
        if once != secret:
            yield from _in_base64(once)


def _in_base64(text: str) -> Iterator[str]:
    return (_base64(text.encode(), shift) for shift in range(3))


def _base64(data: bytes, shift: int) -> str:
    """Return what of the base64 of `data` after so many bytes is the same whatever stands around it."""
    return _inner(base64.b64encode(bytes(shift) + data + bytes(2)).decode(), shift, len(data), 6)


def _lower(match: re.Match[str]) -> str:
    return match[0].lower()


_ESCAPE = re.compile("%..")
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})


def _inner(encoded: str, shift: int, length: int, bits: int) -> str:
    """Return the characters that depend on nothing but `length` bytes after the first `shift` ones."""
    return encoded[-(-8 * shift // bits) : 8 * (shift + length) // bits]
