from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_agent.config.dotenv import parse_env, read_env_file, write_env_value
from hermes_agent.core.errors import ConfigError, UserError

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
VALUES = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=30)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=b", "b"),
        ("export A=b", "b"),
        ("  A = b ", "b"),
        ("A=", ""),
        ("A=b # why", "b"),
        ("A=b#c", "b#c"),
        ("A=#c", ""),
        ("A='b # c' # why", "b # c"),
        ('A="b\\nc"', "b\nc"),
        ('A="b\\"c\\\\d\\$e"', 'b"c\\d$e'),
        ("A='b\\n'", "b\\n"),
        ('A="b\nc"', "b\nc"),
        ("A=a=b", "a=b"),
        ("A=two words", "two words"),
        ("A=ü", "ü"),
        ("A=b\r", "b"),
    ],
)
def test_a_line_gives_its_value(line: str, value: str) -> None:
    parsed = parse_env(f"# first\n\n{line}\nZ=1\n", "x")
    assert parsed.findings == []
    assert parsed.values == {"A": value, "Z": "1"}


def test_every_malformed_line_is_named_and_no_value_is_shown(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text("A=1\nhunter2\nB='hunter2\nC=3\n")
    with pytest.raises(ConfigError) as refused:
        read_env_file(path)
    lines = str(refused.value).splitlines()
    assert [line.split(": ")[0] for line in lines[:-1]] == [f"{path}:2", f"{path}:3"]
    assert "hunter2" not in str(refused.value)


def test_a_file_that_is_not_there_sets_nothing_and_one_that_is_not_text_is_refused(tmp_path: Path) -> None:
    assert read_env_file(tmp_path / ".env") == {}
    (tmp_path / ".env").write_bytes(b"A=\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_env_file(tmp_path / ".env")


def test_a_name_set_twice_is_noted_and_the_last_counts() -> None:
    parsed = parse_env("A=1\nA=2\n", "x")
    assert parsed.values == {"A": "2"}
    assert [(f.line, f.level) for f in parsed.findings] == [(2, "note")]


@given(st.dictionaries(NAMES, VALUES, max_size=4), NAMES, VALUES)
def test_what_is_written_reads_back_and_the_other_variables_stay(
    tmp_path_factory: pytest.TempPathFactory, present: dict[str, str], name: str, value: str
) -> None:
    path = tmp_path_factory.mktemp("env") / ".env"
    for key, item in present.items():
        write_env_value(path, key, item)
    write_env_value(path, name, value)
    assert read_env_file(path) == {**present, name: value}
    write_env_value(path, name, None)
    assert read_env_file(path) == {key: item for key, item in present.items() if key != name}


def test_writing_keeps_comments_and_order_and_makes_the_file_private(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text("# keys\nA=1\nexport B='two\nlines' # why\n\n# end\nC=3")
    write_env_value(path, "B", "x y")
    write_env_value(path, "D", "4")
    assert path.read_text() == "# keys\nA=1\nB='x y'\n\n# end\nC=3\nD=4\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_shell_reads_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    value = "a 'b' \"c\" $HOME \\ #d"
    write_env_value(path, "A", value)
    ran = subprocess.run(
        ["sh", "-c", f'. {path}; printf %s "$A"'], capture_output=True, text=True, timeout=20, check=True
    )
    assert ran.stdout == value


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A B", "Ä"])
def test_a_name_that_no_environment_has_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="not the name of an environment variable"):
        write_env_value(tmp_path / ".env", name, "x")
    with pytest.raises(UserError, match="NUL"):
        write_env_value(tmp_path / ".env", "A", "x\0")
