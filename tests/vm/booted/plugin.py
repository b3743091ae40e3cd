"""What the suite of limits finds in the virtual machine: the fixture of attacks, and the user's own manager."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from contracts import terminal_places

if runtime := os.environ.get("XDG_RUNTIME_DIR"):
    terminal_places.ENVIRON["XDG_RUNTIME_DIR"] = runtime


@pytest.fixture
def attempt() -> Iterator[Callable[[bool, str], None]]:
    through: list[str] = []

    def count(held: bool, what: str) -> None:
        if not held:
            through.append(what)

    yield count
    assert not through
