"""The process's host, with upstream's names served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_agent.host import Host
from unit.compat.conftest import home, served

__all__ = ["home", "host", "served"]


@pytest.fixture
def host(home: Path, without_host: None) -> Iterator[Host]:
    """The process's host, over the home."""
    built = Host.build(home)
    yield built
    built.bridge.close()
