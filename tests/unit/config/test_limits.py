from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_agent.config.check import check_file
from hermes_agent.config.load import check_document
from hermes_agent.config.yaml_reader import MAX_BYTES, read_text


def test_a_file_of_more_than_1_mib_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    path.write_bytes(b"#" * (MAX_BYTES + 1))
    assert [f.message for f in check_file(path).errors] == ["is larger than 1 MiB, which no config is"]


def test_a_file_of_exactly_1_mib_is_read(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    path.write_bytes(b"#" * (MAX_BYTES - 1) + b"\n")
    assert check_file(path).is_valid


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_nesting_of_100000_levels_is_refused_without_a_crash(opening: str) -> None:
    messages = [f.message for f in read_text("a: " * (opening == "[") + opening * 100_000, "x").findings]
    assert len(messages) >= 1


@pytest.mark.parametrize("text", ["a: [" + "1," * 200_000 + "]", "\n".join(f"k{n}: 1" for n in range(110_000))])
def test_more_values_than_any_config_has_are_refused(text: str) -> None:
    assert "holds more than 100000 values" in read_text(text, "x").findings[-1].message


def test_an_alias_of_a_long_text_counts_for_its_length() -> None:
    bomb = f"a: &a {'x' * 500_000}\nb: [" + ", ".join(["*a"] * 50) + "]\nc: &c [*a, *a]\n"
    assert read_text(bomb, "x").findings == []


def test_a_directory_a_missing_and_an_unreadable_file_are_findings(tmp_path: Path) -> None:
    assert [f.message for f in check_file(tmp_path).errors] == ["cannot be read: Is a directory"]
    assert [f.message for f in check_file(tmp_path / "no.yaml").errors] == ["there is no such file"]


def test_every_finding_of_a_file_is_reported_in_the_order_of_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("server: {port: x}\nagent: {max_turns: y}\nagent: {}\nmodle: z\n")
    report = check_file(path)
    assert [f.line for f in report.errors] == [3, 1, 2, 4]
    assert [line.split(":")[1] for line in str(report).splitlines()[:-1]] == ["1", "2", "3", "4"]


YAMLISH = st.text(st.sampled_from("ab:{}[]-?!&*<>|'\"#%@`,~ \n\t\\=.0é\x00\x85\u2028\ufeff$"), max_size=40)


@settings(max_examples=1500)
@given(YAMLISH | st.text(max_size=30))
def test_any_text_gives_a_config_or_a_finding_and_never_an_exception(text: str) -> None:
    document = read_text(text, "x")
    _, findings = check_document(document, lambda name: None)
    assert all(str(finding).startswith("x:") for finding in findings)
    if not document.findings:
        meant = yaml.load(text, Loader=yaml.CSafeLoader)
        assert document.value == ({} if meant is None else meant)


@settings(max_examples=300)
@given(st.binary(max_size=60))
def test_any_bytes_give_a_config_or_a_finding_and_never_an_exception(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    for name in ("c.yaml", ".env"):
        path = tmp_path_factory.getbasetemp() / name
        path.write_bytes(data)
        assert str(check_file(path))
