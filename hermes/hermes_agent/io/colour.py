"""Whether escape sequences may be written to a stream."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TextIO

__all__ = ["has_colour"]


def has_colour(stream: TextIO, environ: Mapping[str, str] | None = None) -> bool:
    """Return whether text for this stream may be coloured: it is a terminal, and `NO_COLOR` is unset or empty.

    Args:
        environ: None means the environment of this process.
    """
    return stream.isatty() and not (os.environ if environ is None else environ).get("NO_COLOR")
