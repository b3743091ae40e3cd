"""`docs/security.md` claims nothing without a test: what it names exists, and each class of attacks stands in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
_ENTRY = re.compile(r"^- `(tests/\S+\.py)`:((?:\s+`test_\w+`,?)+)", re.MULTILINE)
_HEADING = re.compile(r"^### (.+)$", re.MULTILINE)
_MARK = re.compile(r"mark\.attack\(\"([^\"]+)\"\)")


def entries() -> list[tuple[str, str]]:
    """Return the tests that the page names, with their file."""
    return [(path, name) for path, names in _ENTRY.findall(PAGE) for name in re.findall(r"`(test_\w+)`", names)]


def sections() -> dict[str, str]:
    """Return the text of the page by class of attacks."""
    parts = _HEADING.split(re.sub(r"^## .*$", "", PAGE, flags=re.MULTILINE))
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def marked() -> dict[str, set[str]]:
    """Return the files with attacks by their class."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "tests").rglob("*.py"):
        if path.name in ("test_table.py", "table.py", Path(__file__).name):
            continue
        for kind in _MARK.findall(path.read_text(encoding="utf-8")):
            found.setdefault(kind, set()).add(str(path.relative_to(ROOT)))
    return found


def test_the_page_names_tests() -> None:
    assert len(entries()) > 90
    assert PAGE.count("`test_") == len(entries()), "each stands in a list behind the name of its file"


@pytest.mark.parametrize(("path", "name"), entries())
def test_each_test_that_it_names_exists(path: str, name: str) -> None:
    assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)


def test_each_class_of_attacks_has_a_section_that_names_one_of_its_files() -> None:
    text = sections()
    files = marked()
    assert set(files) <= set(text), "a class without a section"
    assert [kind for kind in text if not files.get(kind)] == [], "a section without attacks"
    assert [kind for kind, where in files.items() if not any(path in text[kind] for path in where)] == []


def test_each_section_says_what_is_promised_and_shows_it() -> None:
    for kind, text in sections().items():
        assert "**Promise.**" in text and "**Tests.**" in text and _ENTRY.search(text), kind


def test_the_policy_and_the_page_name_each_other() -> None:
    policy = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "docs/security.md" in policy and "SECURITY.md" in PAGE
