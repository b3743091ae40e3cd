"""What tests, benchmarks, plugins and examples import of the package is there, also in suites that few runs take."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "hermes"
IMPORT = re.compile(r"\bfrom hermes_agent\b")
"""What stands in a file of which a name may be missing; others need not be parsed."""


@functools.cache
def _file(module: str) -> Path | None:
    base = PACKAGE.joinpath(*module.split("."))
    files = (base.with_suffix(".py"), base / "__init__.py", base.with_suffix(".pyi"))  # the last: types alone
    return next((p for p in files if p.is_file()), None)


@functools.cache
def _names(module: str) -> set[str] | None:
    """Return the names that a module has at its top level; None when it makes them when they are asked for."""
    file = _file(module)
    assert file is not None
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
    return None if "__getattr__" in names else names


def _missing(path: Path) -> list[str]:
    found = []
    text = path.read_text()
    for node in ast.walk(ast.parse(text)) if IMPORT.search(text) else ():
        if not isinstance(node, ast.ImportFrom) or (node.module or "").split(".")[0] != "hermes_agent" or node.level:
            continue
        module = node.module or ""
        is_folder = PACKAGE.joinpath(*module.split(".")).is_dir()  # without `__init__.py`: its files alone
        if _file(module) is None and not is_folder:
            found.append(f"line {node.lineno}: {module}")
            continue
        names = _names(module) if _file(module) is not None else set()
        found += [
            f"line {node.lineno}: {module}.{alias.name}"
            for alias in node.names
            if alias.name != "*"
            and names is not None
            and alias.name not in names
            and not _file(f"{module}.{alias.name}")
        ]
    return found


def test_every_name_that_is_imported_of_the_package_is_there() -> None:
    listed = subprocess.run(["git", "ls-files", "-z", "*.py"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    absent = {
        str(path.relative_to(ROOT)): missing
        for path in paths
        if path.is_file() and not path.is_symlink() and "_bundled" not in path.parts and (missing := _missing(path))
    }
    assert absent == {}
