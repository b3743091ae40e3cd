"""`docs/security.md` claims nothing without a test: what it names exists, and each class of attacks stands in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from attack.attempt import Attempt
from attack.attempts import ATTEMPTS
from attack.table import PLACES, TRIED, sections
from attack.test_daemon import OTHERS

FILES = {"daemon": "tests/attack/test_daemon.py", "systemd": "tests/service/test_attacked_daemon.py"}
ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
_ENTRY = re.compile(r"^- `(tests/\S+\.py)`:((?:\s+`test_\w+`,?)+)", re.MULTILINE)
_MARK = re.compile(r"mark\.attack\(\"([^\"]+)\"(?:, at=\"(\w+)\")?\)")


def entries() -> list[tuple[str, str]]:
    """Return the tests that the page names, with their file."""
    return [(path, name) for path, names in _ENTRY.findall(PAGE) for name in re.findall(r"`(test_\w+)`", names)]


def marked() -> dict[str, dict[str, set[str]]]:
    """Return the files with attacks by their class and place."""
    found: dict[str, dict[str, set[str]]] = {}
    for path in (ROOT / "tests").rglob("*.py"):
        if path.name in ("test_table.py", "table.py", Path(__file__).name):
            continue
        for kind, place in _MARK.findall(path.read_text(encoding="utf-8")):
            files = found.setdefault(kind, {}).setdefault(place or "program", set())
            files.add(str(path.relative_to(ROOT)))
    for one in (*ATTEMPTS, *(Attempt(kind, name, (), ()) for name, kind in OTHERS.items())):
        for place in one.places:  # these are data
            found.setdefault(one.kind, {}).setdefault(place, set()).add(FILES[place])
    return found


def test_the_page_names_tests() -> None:
    assert len(entries()) > 90
    assert PAGE.count("`test_") == len(entries()), "each stands in a list behind the name of its file"


@pytest.mark.parametrize(("path", "name"), entries())
def test_each_test_that_it_names_exists(path: str, name: str) -> None:
    assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)


def test_each_class_of_attacks_has_a_section_that_names_one_of_its_files() -> None:
    text = sections(PAGE)
    files = {kind: set().union(*places.values()) for kind, places in marked().items()}
    assert set(files) <= set(text), "a class without a section"
    assert [kind for kind in text if not files.get(kind)] == [], "a section without attacks"
    assert [kind for kind, where in files.items() if not any(path in text[kind] for path in where)] == []


def test_each_section_says_where_its_class_is_tried() -> None:
    tried = marked()
    for kind, text in sections(PAGE).items():
        assert TRIED.findall(text) == [", ".join(place for place in PLACES if place in tried[kind])], kind


def test_each_section_says_what_is_promised_and_shows_it() -> None:
    for kind, text in sections(PAGE).items():
        assert "**Promise.**" in text and "**Tests.**" in text and _ENTRY.search(text), kind


def test_the_policy_and_the_page_name_each_other() -> None:
    policy = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "docs/security.md" in policy and "SECURITY.md" in PAGE
