"""No circle of files: reading a module never leads back to it through its imports.

Imports inside functions and under `TYPE_CHECKING` count, since a reader follows them, too.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import hermes_agent

ROOT = Path(hermes_agent.__file__).parent

KNOWN = []
"""Circles that are still to be cut. A row may lose modules and disappears with its circle; no row is added."""


def read_modules(root: Path) -> dict[str, set[str]]:
    """Return the modules of the package at `root`, each with the modules of the same package that it imports."""
    files = {}
    for path in root.rglob("*.py"):
        parts = path.relative_to(root.parent).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return {name: imported(path, set(files)) - {name} for name, path in files.items()}


def imported(path: Path, names: set[str]) -> set[str]:
    """Return those of `names` that a file imports anywhere."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            members = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= members & names
            if members - names:
                found.add(str(node.module))
    return found & names


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Return the strongly connected parts of a graph that have more than one node."""

    def reached_from(start: str) -> set[str]:
        reached: set[str] = set()
        pending = [start]
        while pending:
            new = graph[pending.pop()] - reached
            reached |= new
            pending += new
        return reached

    reach = {name: reached_from(name) for name in graph}
    found: list[set[str]] = []
    for name in sorted(graph):
        if name in reach[name] and not any(name in circle for circle in found):
            found.append({other for other in reach[name] if name in reach[other]})
    return found


def test_no_file_leads_back_to_itself_through_its_imports() -> None:
    found = [{name.removeprefix("hermes_agent.") for name in circle} for circle in circles(read_modules(ROOT))]
    known = [set(row.split()) for row in KNOWN]
    assert [sorted(circle) for circle in found if not any(circle <= row for row in known)] == []
    gone = [sorted(row) for row in known if not any(circle <= row for circle in found)]
    assert gone == [], "these circles are cut: remove their rows from KNOWN"


@pytest.mark.parametrize(
    "code",
    [
        "import pack.second",
        "from pack import second",
        "from pack.second import name",
        "def run():\n    from pack.second import name",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pack.second import name",
    ],
)
def test_every_form_of_import_makes_a_circle(tmp_path: Path, code: str) -> None:
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "first.py").write_text(code)
    (package / "second.py").write_text("import pack.third")
    (package / "third.py").write_text("from pack.first import other")
    (package / "fourth.py").write_text("from pack import first, second")
    assert circles(read_modules(package)) == [{"pack.first", "pack.second", "pack.third"}]
