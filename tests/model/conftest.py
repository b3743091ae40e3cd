"""One fresh home with the embedded model's real weights for all tests here; they are skipped where it cannot run."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.contracts.model_client import ModelClient
from local_model import check_availability

sys.path.insert(0, str(Path(__file__).parent))  # toolbox.py, fresh_home.py, situations.py

from fresh_home import FreshHome, fresh_home

THREADS = 1 if "PYTEST_XDIST_WORKER" in os.environ else 0
"""The tests of another worker use the other core: a second thread there would only keep the first one waiting."""


@pytest.fixture(scope="session")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as running:
        yield running


@pytest.fixture(scope="session")
def home(runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FreshHome]:
    found = check_availability({}, "qwen2.5-coder-1.5b")
    if not found.runtime:
        pytest.skip("the runtime is not installed: make .venv/.local")
    if not found.weights:
        pytest.skip(f"the weights are not at {found.path}: hermes model pull")
    if not found.has_enough_memory:
        pytest.skip(f"{found.memory_needed} bytes of memory are needed")
    opening = fresh_home(tmp_path_factory.mktemp("fresh"), plugins=("station",), threads=THREADS)
    yield runner.run(opening.__aenter__())
    runner.run(opening.__aexit__(None, None, None))


@pytest.fixture(scope="session")
def one_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("desk") / "work"


@pytest.fixture
def desk(one_path: Path) -> Path:
    """An empty working directory; the same path for all tests, so that the model need not read the prompt again."""
    shutil.rmtree(one_path, ignore_errors=True)
    one_path.mkdir()
    return one_path


@pytest.fixture(scope="session")
def model(home: FreshHome) -> ModelClient:
    """The model of the home, asked without the agent."""
    return home.host.choose_model(None).client


@pytest.fixture(scope="session")
def shipped(runner: asyncio.Runner, home: FreshHome) -> list[dict[str, Any]]:
    """The tools that a conversation in the home is shown."""
    return runner.run(home.tools())
