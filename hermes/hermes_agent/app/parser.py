"""The parser of the command line: `argparse`, told how wide a line may be."""

from __future__ import annotations

import argparse
import functools
import os
import sys
from typing import Any

__all__ = ["Parser"]


class Parser(argparse.ArgumentParser):
    """Finds the width itself: argparse imports `shutil` for it, with every compressor, whenever an option is added."""

    def __init__(self, *, formatter_class: Any = argparse.HelpFormatter, **options: Any) -> None:
        super().__init__(formatter_class=functools.partial(formatter_class, width=_columns() - 2), **options)


def _columns() -> int:
    """Return the width of the terminal in characters, as `shutil.get_terminal_size` does."""
    named = os.environ.get("COLUMNS", "")
    if named.isdecimal() and int(named):
        return int(named)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or 80  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):  # no stdout, or no terminal
        return 80
