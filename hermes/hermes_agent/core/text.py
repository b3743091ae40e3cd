"""Texts for users: similar names, shortened and printable texts, colour; the names of subcommands.

`is_near_miss` decides between a typo and the name of a plugin, since the config may have keys that no schema declares.
It uses the Damerau-Levenshtein distance, because typing errors are inserted, missing, wrong or swapped letters; a ratio
as in `difflib` calls a wrong letter as similar as swapped ones. Real names differ by a single wrong letter ("modal" and
"model"). So a wrong letter counts only in a long name, or if the value has the type of the known key.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Literal, TextIO

SHORTEST_FOR_A_SLIP = 4
"""Length below which one edit makes another word (`tts`, `stt`)."""
SHORTEST_FOR_A_WRONG_LETTER = 8
SHORTEST_FOR_TWO_SLIPS = 9


def distance(left: str, right: str) -> int:
    """Return the least number of inserted, missing, wrong and swapped (neighbouring) characters."""
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        older, before, row = before, row, [i]
        for j, b in enumerate(right, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
    return row[-1]


def _plain(name: str) -> str:
    """Return a name without differences that users overlook: case, accents, and `-` for `_`."""
    if not name.isascii():
        import unicodedata  # few texts need it

        name = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    return name.lower().replace("-", "_").replace(" ", "_").strip("_")


def _singular(plain: str) -> str:
    if plain.endswith("ies"):
        return plain[:-3] + "y"
    return plain[:-1] if len(plain) > SHORTEST_FOR_A_SLIP and plain.endswith("s") else plain


def _is_slip(name: str, known: str, *, looks_alike: bool) -> bool:
    length = min(len(name), len(known))
    if abs(len(name) - len(known)) > 2 or length < SHORTEST_FOR_A_SLIP:
        return False
    edits = distance(name, known)
    if edits == 1:
        is_wrong_letter = len(name) == len(known) and sorted(name) != sorted(known)
        return not is_wrong_letter or looks_alike or length >= SHORTEST_FOR_A_WRONG_LETTER
    return edits == 2 and (length >= SHORTEST_FOR_TWO_SLIPS or looks_alike) and name[0] == known[0]


def is_near_miss(name: str, known: str, *, looks_alike: bool = False) -> bool:
    """Return whether `name` is a misspelled `known` and not another name.

    Args:
        looks_alike: the value has the type of the known key, which decides doubtful cases.
    """
    if name == known:
        return False
    plain, target = _plain(name), _plain(known)
    return _singular(plain) == _singular(target) or _is_slip(plain, target, looks_alike=looks_alike)


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name within a third of its length, or None."""
    plain = _plain(name)
    ranked = sorted((distance(plain, _plain(other)), other) for other in known)
    if not ranked:
        return None
    edits, best = ranked[0]
    return best if edits <= max(1, min(len(plain), len(best)) // 3) else None


def shorten(text: str, limit: int, *, keep: Literal["start", "ends"] = "start", mark: str = "…") -> str:
    """Return a text of at most `limit` characters; `mark` replaces the removed part.

    Args:
        keep: the start of the text, or both of its ends.
    """
    if len(text) <= limit:
        return text
    room = max(limit - len(mark), 0)
    if keep == "start":
        return (text[:room] + mark)[:limit]
    tail = room // 2
    return (text[: room - tail] + mark + text[len(text) - tail :])[:limit]


_HIDING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
"""Characters that hide or reorder text: control characters, changes of direction, zero width."""


def printable(text: str) -> str:
    """Return a text for a user to judge: characters that would hide or reorder a part of it are escaped."""
    return _HIDING.sub(lambda match: match[0] if match[0] == "\n" else f"\\u{ord(match[0]):04x}", text)


def as_names(value: Iterable[str] | None) -> list[str]:
    """Return the names in a list that a plugin gave; a text is one name, and None is none."""
    return [value] if isinstance(value, str) else list(value or ())


def has_colour(stream: TextIO, environ: Mapping[str, str] | None = None) -> bool:
    """Return whether text for this stream may have colours: a terminal, and no `NO_COLOR`.

    Args:
        environ: None means the environment of this process.
    """
    return stream.isatty() and not (os.environ if environ is None else environ).get("NO_COLOR")


SUBCOMMANDS = (
    "auth", "bundles", "chat", "commands", "completion", "config", "cron", "doctor", "gateway", "hooks", "import",
    "insights", "logs", "mcp", "memory", "model", "pairing", "plugins", "profile", "proposals", "rollback",
    "self", "send", "sessions", "setup", "skills", "state", "tools", "uninstall",
    "update",
)  # fmt: skip
"""The subcommands of `hermes`; `app/command_line.py` names the module of each.

A command of a plugin with such a name could not be reached, and is refused.
"""


BYTES_PER_TOKEN = 4
"""Bytes of a text for one token, in a rough estimate."""


def count_tokens(text: str) -> int:
    """Return a rough estimate of the tokens of a text."""
    return (len(text) if text.isascii() else len(text.encode("utf-8", "replace"))) // BYTES_PER_TOKEN


def overlap(text: str, tag: str) -> int:
    """Return how many characters at the end of the text begin the tag."""
    return next((size for size in range(min(len(tag) - 1, len(text)), 0, -1) if text.endswith(tag[:size])), 0)
