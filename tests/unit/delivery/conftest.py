from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_agent.delivery import Mailbox


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def box(path: Path) -> Iterator[Mailbox]:
    mailbox = Mailbox(path)
    mailbox.acquire()
    yield mailbox
    mailbox.close()
