"""Text of strangers (a web page, a mail, a file from elsewhere), marked as data for the model."""

from __future__ import annotations

import re

__all__ = ["fenced"]

TAG = "foreign-text"
_TAG = re.compile(rf"<(?=\s*/?\s*{TAG})", re.IGNORECASE)


def fenced(text: str, source: str) -> str:
    """Return `text` between marks that it cannot close.

    Args:
        source: where it comes from, in a few characters; no place for quotes or line ends.
    """
    safe = re.sub(r'[\s"<>]+', " ", source)
    return f'<{TAG} from="{safe}">\n{_TAG.sub("‹", text)}\n</{TAG}>'
