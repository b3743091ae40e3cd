"""What several tests of this folder share: a scripted model server, and the wheel of this checkout."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from peers.fixture import scripted
from wheels import build, copy_source

__all__ = ["scripted", "wheel"]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    return build("build_wheel", copy_source(folder / "source"), folder / "dist")


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder with a path that is always equally long, since what wraps depends on it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)
