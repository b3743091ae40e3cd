"""Texts as sequences of words, and an index that says whether a text has such a sequence."""

from __future__ import annotations

import base64
import contextlib
import re
import unicodedata
import urllib.parse
from collections.abc import Iterator, Sequence

from hermes_agent.policy.foreign.addresses import Address, address_forms, canonical_address, find_addresses

__all__ = ["MOST_RUN", "WordIndex", "decode_parts", "is_number", "normalize", "split_values", "split_words"]

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
