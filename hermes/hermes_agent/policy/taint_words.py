"""Texts as sequences of words, and an index that says whether a text has such a sequence.

Values that the person chose without saying them, in the records of a service whose tool declares them. Pure.

- A value of a record that the person named, by its title, name or account: `Move my dental check-up` chooses the number
  of that event, for a tool for events that moves. A text in a field cannot make a record: the document is the
  service's, only its texts are others'. Who names a thing to read it has not named it to be deleted.
- The one name of a list that has a word of the person's: `Add her to the channel that begins with External`.
- What a call that may happen made: the number of the new file.
- A text in the words of a pattern of the person's: `titled 'Dinner at {restaurant}'`.

No address is ever chosen in this way: whoever is named by a stranger's record may be the stranger.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import unicodedata
import urllib.parse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hermes_agent.policy.taint_addresses import Address, address_forms, canonical_address, find_addresses

MOST_RUN = 4
"""Words of the longest run that is indexed; a longer one is there when each of its runs of that length is."""
_WORD = re.compile(r"(?<![\w.-])\d{4}-\d\d-\d\d(?![\w-])|(?<![\w.])\d+\.\d+(?!\w|\.\d)|[^\W_]+")
"""A word, or a date or a number with decimals as a whole."""
_VALUE = re.compile(r"[^\s\"'<>()\[\]{},;|&`=]+")
_DECIMAL = re.compile(r"(?<![\d.])(\d+)\.(\d+?)0*(?![\d.])")
_ORDINAL = re.compile(r"\b(\d{1,2})(?:st|nd|rd|th)\b")
_NUMBER = re.compile(r"\b[a-z]{2}\d{2}[a-z0-9]{8,}\b|(?<!\d)\d{8,}")
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([nrtbf\"/]))")
"""As JSON writes a sign."""
_CODED = re.compile(r"(?:[A-Za-z0-9+/_-]{16,}+\s?+)++={0,2}")


def normalize(text: str) -> str:
    """Return a text as it reads: without width, case, signs that have no shape, zeros that say nothing."""
    if not text.isascii():
        text = "".join(c for c in unicodedata.normalize("NFKC", text) if unicodedata.category(c) != "Cf")
    text = _DECIMAL.sub(lambda m: m[1] if m[2] == "0" else f"{m[1]}.{m[2]}", text.casefold())
    return _ORDINAL.sub(r"\1", text)


def split_words(text: str) -> list[str]:
    """Return the words and numbers of a text in their order."""
    return [w.lstrip("0") or "0" if w.isdecimal() else w for w in _WORD.findall(normalize(text))]


def decode_parts(text: str) -> Iterator[str]:
    """Yield the texts that stand in a text in base64, hexadecimal digits, percent signs, JSON or HTML's entities."""
    if "\\" in text:
        plain_text = _ESCAPED.sub(_sign, text)
        if plain_text != text:
            yield plain_text
            yield from decode_parts(plain_text)
            return
    for match in _CODED.finditer(text):
        parts = match[0].split()
        for token in dict.fromkeys(("".join(parts), *parts)):
            if (found := _text_in(token)) is not None:
                yield found
                yield from decode_parts(found)
    if "%" in text or "&" in text:
        import html  # few texts have such signs, and a start has none

        plain_text = html.unescape(urllib.parse.unquote(text))
        if plain_text != text:
            yield plain_text


def _sign(escaped: re.Match[str]) -> str:
    if escaped[1]:
        return chr(int(escaped[1], 16))
    return escaped[2] if escaped[2] in '"/' else "\n"


def _text_in(token: str) -> str | None:
    """Return the text that a token stands for; None where that is no text."""
    tries: list[bytes] = []
    bare = token.rstrip("=")
    with contextlib.suppress(ValueError):
        tries.append(bytes.fromhex(bare))
    with contextlib.suppress(ValueError):
        tries.append(base64.urlsafe_b64decode(bare.replace("+", "-").replace("/", "_") + "=" * (-len(bare) % 4)))
    for raw in tries:
        text = raw.decode("utf-8", "replace")
        if "".join(text.split()).isprintable() and "\ufffd" not in text:
            return text
    return None


def split_values(text: str) -> Iterator[str]:
    """Yield what stands between blanks, quotes and brackets."""
    return (found for v in _VALUE.findall(normalize(text)) if (found := v.strip(".:!?*/")))


def is_number(value: str) -> bool:
    """Say whether a value is the number of an account or a phone."""
    return _NUMBER.search(value) is not None


class WordIndex:
    """The runs of words and the addresses of some texts, each with the number of the text that had it first.

    The texts are taken up by the first look: in a conversation without foreign text nobody looks.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[str, int]] = []
        self._origins: list[tuple[str, int]] = []
        self._runs: dict[int, int] = {}
        self._places: dict[int, int] = {}
        self._sites: dict[str, int] = {}

    def __len__(self) -> int:
        self._index_pending()
        return len(self._runs)

    def add(self, text: str, number: int = 0) -> None:
        """Add a text, with what is encoded in it."""
        self._waiting.append((text, number))

    def add_origin(self, origin: str, number: int) -> None:
        """Note that whoever has the sites that are named here said something."""
        self._origins.append((origin, number))

    def _index_pending(self) -> None:
        waiting, self._waiting = self._waiting, []
        for text, number in waiting:
            for said in (text, *decode_parts(text)):
                run = split_words(said)
                for length in range(1, MOST_RUN + 1):
                    for part in _runs(run, length):
                        self._runs.setdefault(part, number)
                for address in {found: None for _, found in find_addresses(said, networked=True, given=True)}:
                    self._sites.setdefault(address.site, number)
                    for form in address_forms(address):
                        self._places.setdefault(hash(form), number)
        origins, self._origins = self._origins, []
        for origin, number in origins:
            for _, address in find_addresses(origin):
                self._sites.setdefault(address.site, number)

    def find(self, run: Sequence[str]) -> int | None:
        """Return the number of the text that has these words one after another; None: there is none."""
        self._index_pending()
        number = None
        for part in _runs(run, min(len(run), MOST_RUN)):
            number = self._runs.get(part)
            if number is None:
                return None
        return number

    def address_source(self, address: Address) -> int | None:
        """Return the number of the text that gives an address, or one that it is the beginning of."""
        self._index_pending()
        return self._places.get(hash(canonical_address(address)))

    def site_source(self, site: str) -> int | None:
        """Return the number of a text from a site or about it."""
        self._index_pending()
        return self._sites.get(site)

    def __contains__(self, run: Sequence[str]) -> bool:
        return self.find(run) is not None


def _runs(said: Sequence[str], length: int) -> Iterator[int]:
    return (hash(" ".join(said[i : i + length])) for i in range(len(said) - length + 1)) if length else iter(())


MOST_RECORDS = 5_000
"""Of one conversation; a record beyond them chooses nothing."""
LONGEST_NAME = 8
"""Words of a field that is a name rather than a text, and of what stands in a pattern."""
LONGEST_LISTED = 3
"""Words of the names in a list of names."""
TELLING = 4
"""Letters of the shortest word that says which thing is meant."""
_NAMING = re.compile(
    r"(?:^|_|file|user|full|display)(?:name|title|subject|label|summary|sender|recipient|from|to|account|iban|email)_?$",
    re.IGNORECASE,
)
_IDENTIFYING = re.compile(r"(?:^|_)(?:id|key|uuid|number)_?$", re.IGNORECASE)
_NUMERIC = re.compile(r"-?\d+(?:\.\d+)?")
_ENDING = re.compile(r"\.\w{1,5}$")
_PATTERN = re.compile(r"""(["'“‘«`])([^"'”’»`\n]*\{[^{}\n]{1,40}\}[^"'”’»`\n]*)["'”’»`]""")
_PLACE = re.compile(r"\{[^{}]*\}")

_VERBS = [
    frozenset(group.split())
    for group in (
        "add append attach extend include insert invite join put",
        "book order reserve",
        "cancel delete discard erase purge remove trash uninvite wipe",
        "adjust amend change correct edit modify rename replace set update",
        "create draft make plan schedule",
        "answer ask email forward mail message post publish reply respond send share tell write",
        "move postpone reschedule shift",
        "pay refund reimburse repay send transfer",
        "archive assign close complete finish label mark open pin resolve star tag",
    )
]
"""Words for the same, in names of tools and in what people say."""

Run = tuple[str, ...]


class _Record(NamedTuple):
    names: list[Run]
    values: frozenset[Run]
    identifiers: frozenset[Run]
    things: frozenset[str]
    """What kind of thing it is: words of the tool that told it."""

    def has_value_for(self, run: Run, tool: str) -> bool:
        """Say whether it has a value for a tool; an identifier is one for tools of the same kind of thing."""
        return run in self.values or (run in self.identifiers and not self.things.isdisjoint(_things(tool)))


class UserChoices:
    """What the person's words pick out, in one conversation."""

    def __init__(self) -> None:
        self._patterns: list[re.Pattern[str]] = []
        self._records: list[_Record] = []
        self._lists: list[list[Run]] = []
        self._made: set[Run] = set()

    def add_user_text(self, text: str) -> None:
        """Take up the patterns in a text of the person."""
        for match in _PATTERN.finditer(text):
            fixed = [" ".join(split_words(part)) for part in _PLACE.split(match[2])]
            if any(len(word) >= TELLING for part in fixed for word in part.split()):
                self._patterns.append(re.compile(" ?(.+) ?".join(map(re.escape, fixed))))

    def add_records(self, document: str, tool: str) -> None:
        """Take up the records of a service's JSON document; any other text has none."""
        found = list(_records(_parsed(document), _things(tool)))
        common = Counter(name for record in found for name in set(record.names))
        for record in found[: MOST_RECORDS - len(self._records)]:
            names = [name for name in record.names if len(found) == 1 or 2 * common[name] <= len(found)]
            self._records.append(record._replace(names=names))
        self._lists += [names for names in _lists(_parsed(document)) if len(self._lists) < MOST_RECORDS]

    def add_created(self, document: str, arguments: Mapping[str, Any]) -> None:
        """Take up what a call made: the identifiers in its result that it was not given."""
        given = json.dumps(arguments, default=str)
        for record in _mappings(_parsed(document)):
            for key, value in record.items():
                if _IDENTIFYING.search(str(key)) and isinstance(value, str | int) and str(value) not in given:
                    self._made.add(tuple(split_words(str(value))))

    def covers(self, text: str, person: WordIndex, tool: str) -> bool:
        """Say whether a value of a call is one that the person chose."""
        run = tuple(split_words(text))
        if not run or is_number(text.casefold()) or any(find_addresses(text, networked=not _NUMERIC.fullmatch(text))):
            return False
        if run in self._made or any(self._fits(pattern, run) for pattern in self._patterns):
            return True
        return _is_wanted(tool, person) and (
            any(r.has_value_for(run, tool) and any(n != run and n in person for n in r.names) for r in self._records)
            or any(run in names and _is_only(run, names, person) for names in self._lists)
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


def _records(document: Any, things: frozenset[str]) -> Iterator[_Record]:
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
                names += [tuple(split_words(said)) for said in dict.fromkeys((value, _ENDING.sub("", value)))]
        told = [name for name in names if len(name) <= LONGEST_NAME and _is_telling(name)]
        if told:
            yield _Record(told, frozenset(values), frozenset(identifiers), things)


def _things(tool: str) -> frozenset[str]:
    return frozenset(word.removesuffix("s") for word in split_words(tool.replace("_", " ")) if len(word) >= TELLING)


def _is_wanted(tool: str, person: WordIndex) -> bool:
    """Say whether the person used a word for what a tool does."""
    name = split_words(tool.replace("_", " "))
    meant = {word for group in _VERBS if not group.isdisjoint(name) for word in group} or set(name[:1])
    return any((word,) in person for word in meant)


def _lists(document: Any) -> Iterator[list[Run]]:
    for value in [document, *(v for m in _mappings(document) for v in m.values())]:
        if isinstance(value, list) and value and all(isinstance(v, str) for v in value):
            names = [tuple(split_words(v)) for v in value]
            if all(0 < len(name) <= LONGEST_LISTED for name in names):
                yield names


def _is_telling(name: Sequence[str]) -> bool:
    return any(len(word) >= TELLING and not word.isdecimal() for word in name)


def _is_only(run: Run, names: Sequence[Run], person: WordIndex) -> bool:
    """Say whether a name has a word of the person's that no other name of its list has."""
    telling = [word for word in run if _is_telling((word,)) and (word,) in person]
    return any(sum(word in name for name in names) == 1 for word in telling)
