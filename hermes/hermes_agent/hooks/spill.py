"""Long texts that hooks add to a message go to a file, and a preview in their place. Source: plugin contract §3.4."""

from __future__ import annotations

import logging
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from hermes_agent.io.files import PRIVATE, write_atomic

__all__ = ["AnswerSpill"]

logger = logging.getLogger(__name__)

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass(frozen=True, slots=True)
class AnswerSpill:
    """What the operator set (`hooks.output_spill`)."""

    directory: Path
    """Has a folder for each session."""
    enabled: bool = True
    max_chars: int = 10_000
    head: int = 500
    """First characters that stay."""
    tail: int = 500
    """Last characters that stay."""

    def is_long(self, text: str) -> bool:
        """Say whether `fit` would write a file."""
        return self.enabled and len(text) > self.max_chars

    def fit(self, session_id: str, text: str) -> str:
        """Return the text, or, when it is too long, a preview that names the file with all of it.

        When the file cannot be written the preview says so.
        """
        if not self.is_long(text):
            return text
        folder = self.directory / (_UNSAFE.sub("_", session_id) or "session")
        path = folder / f"{secrets.token_hex(16)}.txt"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(path, text, mode=PRIVATE)
            place = f"all of it is in {path}"
        except OSError as exc:
            logger.error("the output of a hook could not be kept in %s: %s", path, exc)
            place = f"the rest is lost, it could not be saved: {exc.strerror or exc}"
        left_out = f"[… {len(text):,} characters; {place} …]"
        return "\n".join((text[: self.head], left_out, text[len(text) - self.tail :] if self.tail else "")).strip()
