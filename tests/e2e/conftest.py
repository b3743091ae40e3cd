"""What several tests of this folder share: a scripted model server, and the wheel of this checkout."""

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
