"""The reference page of `hermes_agent.adapters` is made from the docstrings; run this file to write it."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

from hermes_agent import adapters

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "plugins" / "adapters.md"
BEGIN, END = "<!-- names: made from their docstrings -->\n", "<!-- end of names -->\n"
SOURCE = Path(adapters.__file__).parent


def first_lines(tree: ast.Module) -> dict[str, str]:
    """Return the first docstring line of each class, function and constant of a module."""
    found: dict[str, str] = {}
    for node, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                found[node.name] = (ast.get_docstring(node) or "").partition("\n")[0]
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                note = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
                text = ast.literal_eval(following.value).partition("\n")[0] if note else ""  # type: ignore[union-attr]
                found[name] = text or f"`{ast.unparse(value)}`"
    return found


def tables() -> str:
    """Return a heading and a table for each module of the package."""
    lines: list[str] = []
    for module, names in adapters._MODULES.items():
        tree = ast.parse((SOURCE / f"{module}.py").read_text(encoding="utf-8"))
        purpose = (ast.get_docstring(tree) or "").partition("\n")[0]
        texts = first_lines(tree)
        lines += ["", f"## `{module}`", "", purpose, "", "| name | purpose |", "| --- | --- |"]
        lines += [f"| `{name}` | {texts[name].replace('|', chr(92) + '|')} |" for name in names.split()]
    return "\n".join([*lines[1:], ""])


def test_the_page_has_every_public_name_with_its_purpose() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.partition(BEGIN)[2].partition(END)[0] == tables()


def test_every_public_name_is_that_of_its_module() -> None:
    assert sorted(adapters._WHERE) == adapters.__all__ == sorted(set(adapters.__all__))
    for name, module in adapters._WHERE.items():
        assert getattr(adapters, name) is getattr(importlib.import_module(f"hermes_agent.adapters.{module}"), name)


def test_the_package_loads_no_module_before_its_first_use() -> None:
    code = "import sys, hermes_agent.adapters; print(sorted(m for m in sys.modules if m.startswith('hermes_agent.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['hermes_agent.adapters']"


if __name__ == "__main__":
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(head + BEGIN + tables() + END + rest.partition(END)[2], encoding="utf-8")
