from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parents[2] / "data" / "config"
BROKEN = sorted(p.name for p in (DATA / "broken").iterdir() if p.suffix != ".expected")
VALID = sorted(p.name for p in (DATA / "valid").iterdir() if p.suffix != ".expected")


def _expected(directory: str, name: str, kind: str = "") -> Path:
    return (DATA / directory / name).with_suffix(f"{kind}.expected")


@pytest.mark.parametrize("arguments", [(), ("--strict",)], ids=["plain", "strict"])
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_gets_exactly_this_output_and_status_78(
    name: str, arguments: tuple[str, ...], hermes_config: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(DATA / "broken")
    ran = hermes_config("check", name, *arguments)
    assert ran.out == _expected("broken", name).read_text(encoding="utf-8")
    assert (ran.status, ran.err) == (78, "")


@pytest.mark.parametrize("name", VALID)
def test_a_valid_file_gets_exactly_these_notes_and_status_0(
    name: str, hermes_config: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(DATA / "valid")
    ran = hermes_config("check", name)
    assert ran.out == _expected("valid", name).read_text(encoding="utf-8")
    assert (ran.status, ran.err) == (0, "")


@pytest.mark.parametrize("name", VALID)
def test_strict_refuses_keys_that_nobody_declares_and_nothing_else(
    name: str, hermes_config: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(DATA / "valid")
    refused = _expected("valid", name, ".strict")
    ran = hermes_config("check", "--strict", name)
    expected = refused if refused.exists() else _expected("valid", name)
    assert ran.out == expected.read_text(encoding="utf-8")
    assert ran.status == (78 if refused.exists() else 0)


def test_there_are_enough_broken_files_and_every_expected_file_belongs_to_one() -> None:
    assert len(BROKEN) >= 45
    stems = {Path(name).stem for name in BROKEN}
    assert {p.stem for p in (DATA / "broken").glob("*.expected")} == stems


def test_the_files_cover_every_kind_of_finding() -> None:
    text = "".join(p.read_text(encoding="utf-8") for p in (DATA / "broken").glob("*.expected"))
    kinds = {
        "unknown key": "unknown key",
        "suggestion": "did you mean",
        "type": "got the text",
        "what to write": "; write  ",
        "range": "from 0 to 65535",
        "lower bound": "of at least",
        "enum": "expected one of",
        "pattern": "expected an address",
        "null": "got nothing",
        "duplicate": "a second time",
        "key": "is read as",
        "tag": "the tag",
        "secret": "[redacted]",
        "syntax": "never closed",
        "tab": "indented with a tab",
        "encoding": "not UTF-8",
        "limit": "nested more than",
    }
    assert [kind for kind, words in kinds.items() if words not in text] == []


def test_no_expected_output_quotes_a_secret_of_its_file() -> None:
    text = "".join(p.read_text(encoding="utf-8") for p in (DATA / "broken").glob("*.expected"))
    assert "hunter2" not in text and "0123456789abcdef" not in text and "31337313" not in text
