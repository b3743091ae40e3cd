"""Texts as sequences of words: an index, and the values that a user chooses without writing them.

`UserChoices` holds such values. The records come from tools that declare that they return records:

- A value of a record that the user named by its title, name or account. `Move my dental check-up` chooses the id of
  that event, for a tool that moves events. The service makes the records; text of others in a field cannot make one.
  The user must also have used a word for what the tool does: to name a thing for reading does not choose it for
  deletion.
- The only name of a list that contains a word of the user: `Add her to the channel that begins with External`.
- An id in the result of an allowed call that created something, such as that of a new file.
- A text that fits a pattern of the user: `titled 'Dinner at {restaurant}'`.

An address is never chosen in this way, because the author of an untrusted record may own it. All functions are pure.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import urllib.parse
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.policy.taint_addresses import (
    Address,
    address_forms,
    canonical_address,
    find_addresses,
    vocabulary,
)

MOST_RUN = 4
"""Words of the longest indexed run; a longer run is found when each of its runs of this length is."""
_WORD = re.compile(r"(?<![\w.-])\d{4}-\d\d-\d\d(?![\w-])|(?<![\w.])\d+\.\d+(?!\w|\.\d)|[^\W_]+")
"""A word, a date, or a number with decimals."""
_VALUE = re.compile(r"[^\s\"'<>()\[\]{},;|&`=]+")
_DECIMAL = re.compile(r"(?<![\d.])(\d+)\.(\d+?)0*(?![\d.])")
_ORDINAL = re.compile(r"\b(\d{1,2})(?:st|nd|rd|th)\b")
_NUMBER = re.compile(r"\b[a-z]{2}\d{2}[a-z0-9]{8,}\b|(?<!\d)\d{8,}")
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([nrtbf\"/]))")
"""An escaped character in JSON."""
_CODED = re.compile(r"(?:[A-Za-z0-9+/_-]{16,}+\s?+)++={0,2}")


def normalize(text: str) -> str:
    """Return a text without differences of width and case, invisible characters and insignificant zeros."""
    if not text.isascii():
        import unicodedata  # few texts need it

        text = "".join(c for c in unicodedata.normalize("NFKC", text) if unicodedata.category(c) != "Cf")
    text = _DECIMAL.sub(lambda m: m[1] if m[2] == "0" else f"{m[1]}.{m[2]}", text.casefold())
    return _ORDINAL.sub(r"\1", text)


def split_words(text: str) -> list[str]:
    """Return the words and numbers of a text in their order."""
    return [w.lstrip("0") or "0" if w.isdecimal() else w for w in _WORD.findall(normalize(text))]


def decode_parts(text: str) -> Iterator[str]:
    """Yield the texts encoded in a text: base64, hexadecimal, percent-encoding, JSON, HTML entities."""
    if "\\" in text:
        plain_text = _ESCAPED.sub(_unescape, text)
        if plain_text != text:
            yield plain_text
            yield from decode_parts(plain_text)
            return
    for match in _CODED.finditer(text):
        parts = match[0].split()
        for token in dict.fromkeys(("".join(parts), *parts)):
            if (found := _decode_token(token)) is not None:
                yield found
                yield from decode_parts(found)
    if "%" in text or "&" in text:
        import html  # few texts need it

        plain_text = html.unescape(urllib.parse.unquote(text))
        if plain_text != text:
            yield plain_text


def _unescape(escaped: re.Match[str]) -> str:
    if escaped[1]:
        return chr(int(escaped[1], 16))
    return escaped[2] if escaped[2] in '"/' else "\n"


def _decode_token(token: str) -> str | None:
    """Return the text that a token encodes in hexadecimal or base64, or None."""
    decoded: list[bytes] = []
    bare = token.rstrip("=")
    with contextlib.suppress(ValueError):
        decoded.append(bytes.fromhex(bare))
    with contextlib.suppress(ValueError):
        decoded.append(base64.urlsafe_b64decode(bare.replace("+", "-").replace("/", "_") + "=" * (-len(bare) % 4)))
    for raw in decoded:
        text = raw.decode("utf-8", "replace")
        if "".join(text.split()).isprintable() and "\ufffd" not in text:
            return text
    return None


def split_values(text: str) -> Iterator[str]:
    """Yield the parts of a text between blanks, quotes, brackets and separators."""
    return (found for v in _VALUE.findall(normalize(text)) if (found := v.strip(".:!?*/")))


def is_number(value: str) -> bool:
    """Return whether a value looks like an account or phone number."""
    return _NUMBER.search(value) is not None


class WordIndex:
    """Index of runs of words and of addresses, each with the number of the first text that has it.

    Texts are indexed at the first search, because a conversation without untrusted text never searches.
    """

    def __init__(self) -> None:
        self._pending: list[tuple[str, int]] = []
        self._origins: list[tuple[str, int]] = []
        self._runs: dict[int, int] = {}
        self._places: dict[int, int] = {}
        self._sites: dict[str, int] = {}

    def __len__(self) -> int:
        self._index_pending()
        return len(self._runs)

    def add(self, text: str, number: int = 0) -> None:
        """Add a text, with the texts that are encoded in it."""
        self._pending.append((text, number))

    def add_origin(self, origin: str, number: int) -> None:
        """Record that text number `number` comes from the sites that `origin` names."""
        self._origins.append((origin, number))

    def _index_pending(self) -> None:
        pending, self._pending = self._pending, []
        for text, number in pending:
            for part_text in (text, *decode_parts(text)):
                run = split_words(part_text)
                for length in range(1, MOST_RUN + 1):
                    for part in _runs(run, length):
                        self._runs.setdefault(part, number)
                for address in {found: None for _, found in find_addresses(part_text, networked=True, given=True)}:
                    self._sites.setdefault(address.site, number)
                    for form in address_forms(address):
                        self._places.setdefault(hash(form), number)
        origins, self._origins = self._origins, []
        for origin, number in origins:
            for _, address in find_addresses(origin):
                self._sites.setdefault(address.site, number)

    def find(self, run: Sequence[str]) -> int | None:
        """Return the number of the text that has these words in a row, or None."""
        self._index_pending()
        number = None
        for part in _runs(run, min(len(run), MOST_RUN)):
            number = self._runs.get(part)
            if number is None:
                return None
        return number

    def address_source(self, address: Address) -> int | None:
        """Return the number of the text that has an address, or an address that begins with it, or None."""
        self._index_pending()
        return self._places.get(hash(canonical_address(address)))

    def site_source(self, site: str) -> int | None:
        """Return the number of a text that comes from a site or names it, or None."""
        self._index_pending()
        return self._sites.get(site)

    def __contains__(self, run: Sequence[str]) -> bool:
        return self.find(run) is not None


def _runs(words: Sequence[str], length: int) -> Iterator[int]:
    """Yield the hashes of the runs of `length` words; of length 0 there is none."""
    return (hash(" ".join(words[i : i + length])) for i in range(len(words) - length + 1)) if length else iter(())


class CombinedIndex(WordIndex):
    """The untrusted text of a conversation and of the tainted items.

    Args:
        conversation: index of the conversation.
        items: index of the tainted items.
        everything: the conversation has more untrusted text than is indexed, so that every run counts as found.
    """

    def __init__(self, conversation: WordIndex, items: WordIndex, *, everything: bool) -> None:
        self._parts = (conversation, items)
        self._everything = everything

    def find(self, run: Sequence[str]) -> int | None:
        """Return the number as `WordIndex.find`, or -1 for text that is not indexed."""
        number = self._first(part.find(run) for part in self._parts)
        return -1 if number is None and self._everything and run else number

    def address_source(self, address: Address) -> int | None:
        """Return the number as `WordIndex.address_source`."""
        return self._first(part.address_source(address) for part in self._parts)

    def site_source(self, site: str) -> int | None:
        """Return the number as `WordIndex.site_source`, or -1 for text that is not indexed."""
        number = self._first(part.site_source(site) for part in self._parts)
        return -1 if number is None and self._everything else number

    @staticmethod
    def _first(found: Iterable[int | None]) -> int | None:
        return next((n for n in found if n is not None), None)


MOST_RECORDS = 5_000
"""Most records of one conversation; later ones choose nothing."""
LONGEST_NAME = 8
"""Most words of a field that is a name rather than a text, and of a value in a pattern."""
LONGEST_LISTED = 3
"""Most words of a name in a list of names."""
TELLING = 4
"""Letters of the shortest word that identifies a thing."""
_NAMING = re.compile(
    r"(?:^|_|file|user|full|display)(?:name|title|subject|label|summary|sender|recipient|from|to|account|iban|email)_?$",
    re.IGNORECASE,
)
_IDENTIFYING = re.compile(r"(?:^|_)(?:id|key|uuid|number)_?$", re.IGNORECASE)
_NUMERIC = re.compile(r"-?\d+(?:\.\d+)?")
_ENDING = re.compile(r"\.\w{1,5}$")
_PATTERN = re.compile(r"""(["'“‘«`])([^"'”’»`\n]*\{[^{}\n]{1,40}\}[^"'”’»`\n]*)["'”’»`]""")
_PLACE = re.compile(r"\{[^{}]*\}")

Run = tuple[str, ...]


class _Record(LazyNamedTuple):
    names: list[Run]
    values: frozenset[Run]
    identifiers: frozenset[Run]
    kinds: frozenset[str]
    """Words for the kind of thing: those in the name of the tool that returned the record."""

    def has_value_for(self, run: Run, tool: str) -> bool:
        """Return whether the record has a value for a tool; an id counts for tools of the same kind of thing."""
        return run in self.values or (run in self.identifiers and not self.kinds.isdisjoint(_kinds(tool)))


class UserChoices:
    """The values that the user of a conversation chooses without writing them; see the module."""

    def __init__(self) -> None:
        self._patterns: list[re.Pattern[str]] = []
        self._records: list[_Record] = []
        self._lists: list[list[Run]] = []
        self._created: set[Run] = set()

    def add_user_text(self, text: str) -> None:
        """Add the patterns in a text of the user."""
        for match in _PATTERN.finditer(text):
            fixed = [" ".join(split_words(part)) for part in _PLACE.split(match[2])]
            if any(len(word) >= TELLING for part in fixed for word in part.split()):
                self._patterns.append(re.compile(" ?(.+) ?".join(map(re.escape, fixed))))

    def add_records(self, document: str, tool: str) -> None:
        """Add the records of a JSON document of a service; any other text has none."""
        found = list(_records(_parsed(document), _kinds(tool)))
        common = Counter(name for record in found for name in set(record.names))
        for record in found[: MOST_RECORDS - len(self._records)]:
            names = [name for name in record.names if len(found) == 1 or 2 * common[name] <= len(found)]
            self._records.append(record._replace(names=names))
        self._lists += [names for names in _lists(_parsed(document)) if len(self._lists) < MOST_RECORDS]

    def add_created(self, document: str, arguments: Mapping[str, Any]) -> None:
        """Add what a call created: the ids in its result that are not among its arguments."""
        given = json.dumps(arguments, default=str)
        for record in _mappings(_parsed(document)):
            for key, value in record.items():
                if _IDENTIFYING.search(str(key)) and isinstance(value, str | int) and str(value) not in given:
                    self._created.add(tuple(split_words(str(value))))

    def covers(self, text: str, user: WordIndex, tool: str) -> bool:
        """Return whether the user chose a value of a call of `tool`; `user` indexes what the user wrote."""
        run = tuple(split_words(text))
        if not run or is_number(text.casefold()) or any(find_addresses(text, networked=not _NUMERIC.fullmatch(text))):
            return False
        if run in self._created or any(self._fits(pattern, run) for pattern in self._patterns):
            return True
        return _is_requested(tool, user) and (
            any(r.has_value_for(run, tool) and any(n != run and n in user for n in r.names) for r in self._records)
            or any(run in names and _is_only_match(run, names, user) for names in self._lists)
        )

    @staticmethod
    def _fits(pattern: re.Pattern[str], run: Run) -> bool:
        match = pattern.fullmatch(" ".join(run))
        return match is not None and all(len(part.split()) <= LONGEST_NAME for part in match.groups())


def _parsed(document: str) -> Any:
    try:
        return json.loads(document) if document.lstrip()[:1] in ("{", "[") else None
    except (ValueError, RecursionError):
        return None


def _mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _mappings(item)


def _records(document: Any, kinds: frozenset[str]) -> Iterator[_Record]:
    for mapping in _mappings(document):
        names: list[Run] = []
        values: set[Run] = set()
        identifiers: set[Run] = set()
        for key, value in mapping.items():
            if not isinstance(value, str | int | float) or isinstance(value, bool):
                continue
            run = tuple(split_words(str(value)))
            if 0 < len(run) <= LONGEST_NAME:
                (identifiers if _IDENTIFYING.search(key) else values).add(run)
            if isinstance(value, str) and _NAMING.search(key):
                names += [tuple(split_words(name)) for name in dict.fromkeys((value, _ENDING.sub("", value)))]
        telling = [name for name in names if len(name) <= LONGEST_NAME and _is_telling(name)]
        if telling:
            yield _Record(telling, frozenset(values), frozenset(identifiers), kinds)


def _kinds(tool: str) -> frozenset[str]:
    """Return the words of a tool's name that may be a kind of thing, in the singular."""
    return frozenset(word.removesuffix("s") for word in split_words(tool.replace("_", " ")) if len(word) >= TELLING)


def _is_requested(tool: str, user: WordIndex) -> bool:
    """Return whether the user used a word for what a tool does."""
    name = split_words(tool.replace("_", " "))
    verbs = {word for group in vocabulary()["synonyms"] if not set(group).isdisjoint(name) for word in group}
    return any((word,) in user for word in verbs or set(name[:1]))


def _lists(document: Any) -> Iterator[list[Run]]:
    for value in [document, *(v for m in _mappings(document) for v in m.values())]:
        if isinstance(value, list) and value and all(isinstance(v, str) for v in value):
            names = [tuple(split_words(v)) for v in value]
            if all(0 < len(name) <= LONGEST_LISTED for name in names):
                yield names


def _is_telling(name: Sequence[str]) -> bool:
    """Return whether a name has a word that identifies a thing."""
    return any(len(word) >= TELLING and not word.isdecimal() for word in name)


def _is_only_match(run: Run, names: Sequence[Run], user: WordIndex) -> bool:
    """Return whether a name has a word of the user that no other name of its list has."""
    telling = [word for word in run if _is_telling((word,)) and (word,) in user]
    return any(sum(word in name for name in names) == 1 for word in telling)
