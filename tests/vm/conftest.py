"""Virtual machines are booted by `make test-vm` alone: it takes minutes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vm.machine import unavailable

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mine = [item for item in items if str(item.path).startswith(f"{HERE}/")]
    asked = os.environ.get("HERMES_VM") == "1"
    why = ("" if asked else "a virtual machine takes minutes: `make test-vm`") or (unavailable() if mine else "")
    for item in mine:
        if why:
            item.add_marker(pytest.mark.skip(reason=f"no virtual machine: {why}"))
        item.add_marker(pytest.mark.timeout(2700))
