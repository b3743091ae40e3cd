"""The model server of others, as a fixture: `from peers.fixture import scripted` in a conftest.py."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from peers import install
from peers.scripted import ScriptedModel, scripted_model

__all__ = ["scripted"]


@pytest.fixture
def scripted() -> Callable[..., AbstractContextManager[ScriptedModel]]:
    """`scripted_model`, where aimock can be had."""
    try:
        install.aimock(), install.node()
    except install.NotInstalled as exc:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"a test server could not be installed: {exc}")
    return scripted_model
