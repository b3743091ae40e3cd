"""End of an answer in which a small model repeats itself.

At temperature 0 such a model sometimes writes the same sentences until its limit of tokens, for minutes. A part that
was written before is held back until the next one is new; a long run of such parts ends the answer.
"""

from __future__ import annotations

import re

LONGEST_RUN, LONGEST_RUN_IN_CODE = 400, 1600
"""Characters of parts in a row that were written before; code may have many equal lines."""
FENCE = "```"
_PART = re.compile(r"[^.!?;:,\n]*[.!?;:,\n]+")


class RepetitionFilter:
    """Filter of an answer while it arrives: what repeats earlier text is held back, and a long repetition ends it."""

    def __init__(self) -> None:
        self._written: set[str] = set()
        self._held = ""
        """Whole parts that were all written before."""
        self._part = ""
        """The part that is not complete yet."""
        self._is_new = False
        """Whether that part was not written before, so that it is returned as it arrives."""
        self._is_code = False
        self.is_loop = False
        """Whether the model only repeats itself, so that the answer ends here."""

    def feed(self, piece: str) -> str:
        """Add the next characters; return those that can be shown, possibly ""."""
        shown, rest = "", self._part + piece
        fresh = len(self._part)
        while (found := _PART.match(rest)) is not None:
            shown += self._take(found[0], fresh, is_whole=True)
            if self.is_loop:
                return shown
            rest, fresh = rest[found.end() :], 0
        shown += self._take(rest, fresh, is_whole=False)
        self._part = rest
        return shown

    def flush(self) -> str:
        """Return what is held back, at the end of an answer that is no loop."""
        rest, self._held = self._held + ("" if self._is_new else self._part), ""
        return rest

    def _take(self, part: str, before: int, *, is_whole: bool) -> str:
        """Return what can be shown of a part, of which `before` characters were taken before."""
        words, shown = part.strip(), ""
        if self._is_new:
            shown = part[before:]
        elif is_whole and words in self._written:
            self._held += part
            self.is_loop = len(self._held) >= (LONGEST_RUN_IN_CODE if self._is_code else LONGEST_RUN)
        elif is_whole or (words and not any(each.startswith(words) for each in self._written)):
            shown, self._held, self._is_new = self._held + part, "", True
        if is_whole:
            self._is_new = False
            self._written.add(words)
            self._is_code ^= words.startswith(FENCE)
        return shown
