"""One embedded model with real weights for all tests here; they are skipped where it cannot run."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_agent.models import embedded
from hermes_agent.models.request import ModelClient

sys.path.insert(0, str(Path(__file__).parent))  # toolbox.py


@pytest.fixture(scope="session")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as running:
        yield running


@pytest.fixture(scope="session")
def model(runner: asyncio.Runner) -> Iterator[ModelClient]:
    there = embedded.available({}, "qwen2.5-coder-1.5b")
    if not there.runtime:
        pytest.skip("the runtime is not installed: make .venv/.local")
    if not there.weights:
        pytest.skip(f"the weights are not at {there.path}: hermes model pull")
    if not there.enough_memory:
        pytest.skip(f"{there.memory_needed} bytes of memory are needed")
    client = embedded.client({"threads": 2}, there.model)
    yield client
    runner.run(client.aclose())
