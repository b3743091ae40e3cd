"""Mask secrets in a text: by the value of every secret that is known, and by the look of common keys."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Iterator

__all__ = ["MASK", "Redactor", "looks_like_secret_name", "redactor"]

MASK = "[redacted]"
SHORTEST_SECRET = 8
"""Shorter values (`1`, `true`) would mask ordinary words."""

LONG_LINE = 16
"""From this length on, a line of a secret of several lines is masked by itself."""

_NAME = r"(?i:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|PRIVATE_KEY|CREDENTIAL)"
_LOOKS = (
    r"\b(?:sk-(?:ant-|or-|proj-)?[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{30,}|xox[baprs]-[A-Za-z0-9-]{10,}"
    r"|A[KS]IA[0-9A-Z]{16}|AIza[0-9A-Za-z_-]{30,}|hf_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}"
    r"|gl(?:pat|dt|rt)-[A-Za-z0-9_-]{20,}|xapp-[A-Za-z0-9-]{20,}|[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"
    r"|(?:gsk|xai|tvly|glsa|r8|pplx|nvapi|rk|lin_api|dp\.pt|dop_v1|doo_v1|shp(?:at|ss|pa|ca)|sq0(?:csp|atp)|ya29\.|AGE-SECRET-KEY)"
    r"[-_]?[A-Za-z0-9_-]{24,}|\bbot\d{8,10}:[A-Za-z0-9_-]{35}|\b\d{8,10}:AA[A-Za-z0-9_-]{33}\b"
    r"|AccountKey=[A-Za-z0-9+/=]{40,}|[MNO][A-Za-z0-9_-]{23,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}"
    r"|npm_[A-Za-z0-9]{36}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{16,})"
    r"|(?<=://)[^\s/:@\"']{1,100}:[^\s/@\"']{4,200}(?=@)"
    r"|-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----.{20,10000}?-----END [A-Z ]{0,20}PRIVATE KEY-----"
    r"|(?<=[Bb]earer )[A-Za-z0-9._~+/=-]{16,}|(?<=[Aa]uthorization: Basic )[A-Za-z0-9+/=]{12,}"
)


def looks_like_secret_name(name: str) -> bool:
    """Say whether a setting or variable of this name is to be treated as a secret."""
    return re.search(_NAME, name) is not None


def _forms(value: str) -> Iterator[str]:
    lines = [line for line in value.splitlines() if len(line) >= LONG_LINE and not line.startswith("-----")]
    for text in (value, *lines):
        yield text
        yield json.dumps(text)[1:-1]
        yield json.dumps(text, ensure_ascii=False)[1:-1]


class Redactor:
    """Masks the secrets that it was told of, and what looks like one. Safe for threads."""

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        """Compiled when it is first needed: most commands never redact."""
        self._lock = threading.Lock()

    def learn(self, values: Iterable[str]) -> None:
        """Add secrets by value; those under `SHORTEST_SECRET` characters are left out.

        A secret is also known as JSON writes it, and one of several lines (a private key) by each long line.
        """
        with self._lock:
            fresh = {form for v in values if len(v) >= SHORTEST_SECRET for form in _forms(v)} - self._values
            if not fresh:
                return
            self._values |= fresh
            self._pattern = None

    def snapshot(self) -> frozenset[str]:
        """Return the state for `restore`."""
        with self._lock:
            return frozenset(self._values)

    def restore(self, state: frozenset[str]) -> None:
        """Go back to a `snapshot`: what a test made known is forgotten with it."""
        with self._lock:
            self._values, self._pattern = set(state), None

    def __call__(self, text: str) -> str:
        """Return `text` with every secret replaced by `MASK`."""
        pattern = self._pattern
        if pattern is None:
            with self._lock:
                known = sorted(self._values, key=len, reverse=True)
                pattern = self._pattern = re.compile("|".join([*map(re.escape, known), _LOOKS]), re.DOTALL)
        return pattern.sub(MASK, text)


redactor = Redactor()
"""The process's redactor: `credentials` teaches it, the log handlers and the tool results use it."""
