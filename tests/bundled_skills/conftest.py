"""The machine on which a skill is tried: an image with `HERMES_SKILLS_FULL=1`, otherwise this one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bundled_skills.image import image
from run_in_systemd import unavailable

HERE = Path(__file__).resolve().parent
FULL = os.environ.get("HERMES_SKILLS_FULL") == "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mine = [item for item in items if str(item.path).startswith(f"{HERE}/")]
    why = unavailable() if mine else None
    for item in mine:
        item.add_marker("service")
        item.add_marker(pytest.mark.timeout(3000 if FULL else 300))
        if why is not None:
            item.add_marker(pytest.mark.skip(reason=f"no systemd can be booted here: {why}"))


@pytest.fixture(scope="session")
def machine() -> Path:
    """The root file system below the container's own."""
    return image() if FULL else Path("/")
