"""Names that a newcomer can look up: modules are nouns, a public class name means one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
OWN = [
    path
    for folder in (ROOT / "hermes" / "hermes_agent", ROOT / "plugins")
    for path in sorted(folder.rglob("*.py"))
    if "_bundled" not in path.relative_to(ROOT).parts
]
NOUNS_IN_ING = {"testing", "pairing"}
"""Words that end in -ing and are nouns of the field."""
MEANINGLESS = {"utils", "util", "helpers", "common", "misc"}


def module_name(path: Path) -> str:
    return path.parent.name if path.name == "__init__.py" else path.stem


def test_a_module_is_called_by_what_it_holds() -> None:
    names = {module_name(path): path.relative_to(ROOT) for path in OWN}
    assert {n: str(p) for n, p in names.items() if n.endswith("ing") and n not in NOUNS_IN_ING} == {}
    assert {n: str(p) for n, p in names.items() if n in MEANINGLESS} == {}


def test_a_public_class_name_means_one_thing() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in OWN:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}
