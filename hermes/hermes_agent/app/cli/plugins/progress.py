"""What a fetching program prints, shown while it runs: on a terminal alone, and without its control sequences."""

from __future__ import annotations

import sys
from collections.abc import Callable

__all__ = ["progress_printer"]


def progress_printer() -> Callable[[bytes], None] | None:
    """Return what takes a program's output; None where nobody looks on."""
    if not sys.stderr.isatty():
        return None

    def tell(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        sys.stderr.write("".join(c for c in text if c.isprintable() or c in "\r\n"))
        sys.stderr.flush()

    return tell
