"""The calculator plugin of the published guide, taken from its page when a test runs."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

__all__ = ["GUIDES", "ROOT", "files_of_guide", "write_files"]

ROOT = Path(__file__).resolve().parents[2]
GUIDES = Path(os.environ.get("HERMES_GUIDES") or ROOT.parent / "shared" / "guides")


def files_of_guide() -> dict[str, str]:
    """Return the four files of the guide's Steps 2 to 5, by name, as printed; skip the test where there is no guide."""
    page = GUIDES / "build-a-plugin.en.md"
    if not page.is_file():
        pytest.skip(f"the guides are not at hand: there is no {page} (HERMES_GUIDES names their folder)")
    text = page.read_text(encoding="utf-8")
    found: dict[str, str] = {}
    for step in re.split(r"^## Step \d", text, flags=re.MULTILINE)[2:6]:
        name = re.search(r"Create `([\w.]+)`", step)
        code = re.search(r"```(?:yaml|python)\n(.*?)```", step, re.DOTALL)
        assert name is not None
        assert code is not None
        found[name[1]] = code[1]
    assert list(found) == ["plugin.yaml", "schemas.py", "tools.py", "__init__.py"]
    assert all(content in text for content in found.values())
    return found


def write_files(files: dict[str, str], folder: Path) -> None:
    """Write the files of a plugin into a new folder."""
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
