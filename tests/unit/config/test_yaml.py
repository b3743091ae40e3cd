from __future__ import annotations

import datetime
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hermes_agent.config.effective import dump_yaml
from hermes_agent.config.schema import walk
from hermes_agent.config.yaml_reader import read_text

DATA = Path(__file__).parents[2] / "data" / "config" / "valid"

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.dates(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=6), VALUES, max_size=5), st.integers(20, 1000))
def test_what_we_write_reads_back_the_same(value: dict[str, object], width: int) -> None:
    document = read_text(dump_yaml(value, width=width), "x")
    assert document.findings == []
    assert document.value == value


@pytest.mark.parametrize("path", sorted(DATA.glob("*.yaml")), ids=lambda path: path.name)
def test_a_valid_file_means_what_the_library_says(path: Path) -> None:
    text = path.read_text(encoding="utf-8-sig")
    assert read_text(text, "x").value == (yaml.safe_load(text) or {})


def test_every_value_knows_its_line_and_column() -> None:
    document = read_text("a:\n  b: 1\n  c:\n    - x\n    - d: 2\ne: {f: 3,\n    g: 4}\n", "x")
    places = {path: document.position(path) for path, _ in walk(document.value)}
    assert {path: (spot.line, spot.column) for path, spot in places.items() if spot} == {
        ("a", "b"): (2, 3),
        ("a", "c", 0): (4, 7),
        ("a", "c", 1, "d"): (5, 7),
        ("e", "f"): (6, 5),
        ("e", "g"): (7, 5),
    }


def test_an_alias_is_followed_and_a_merged_key_is_found_where_it_was_written() -> None:
    document = read_text("base: &b\n  x: 1\n  y: 2\none:\n  <<: *b\n  y: 3\ntwo: [*b, *b]\n", "x")
    assert document.value["one"] == {"x": 1, "y": 3}
    assert document.value["two"] == [{"x": 1, "y": 2}] * 2
    spot = document.position(("one", "x"))
    assert spot is not None and spot.line == 2


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2026-01-02", datetime.date(2026, 1, 2)),
        ("0o17", "0o17"),
        ("017", 15),
        ("1_000", 1000),
        ("1:30", 90),
        ("~", None),
        ("no", False),
        ("=", "="),
        ("!!str 5", "5"),
        ("!!int '5'", 5),
        ("1e3", "1e3"),
        ("1.0e+3", 1000.0),
    ],
)
def test_scalars_are_read_as_plugins_read_them(text: str, value: object) -> None:
    assert read_text(f"k: {text}\n", "x").value == {"k": value}


@pytest.mark.parametrize("text", ["!!int abc", "!!float x", "2026-99-99", "!!set {a}", "!!binary aGk=", "!x y", ".inf"])
def test_what_has_no_plain_value_is_refused_with_its_line(text: str) -> None:
    document = read_text(f"a: 1\nk: {text}\n", "x")
    assert [(f.line, f.key_path) for f in document.findings] == [(2, "k")]
