"""The key: whose file, who may read it, what happens when two make it at once."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_agent.core.errors import UserError
from hermes_agent.core.redaction import redactor
from hermes_agent.core.secrecy import MASK
from hermes_agent.server import KEY_NAME, HttpSettings, file_key, with_key


def test_the_first_start_makes_a_key_that_only_its_owner_reads_and_later_ones_take_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        key = file_key(tmp_path)
    finally:
        os.umask(before)
    assert len(key) >= 43
    assert stat.S_IMODE((tmp_path / KEY_NAME).stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == [KEY_NAME]
    assert file_key(tmp_path) == key


def test_a_configured_key_wins_and_makes_no_file(tmp_path: Path) -> None:
    assert with_key(HttpSettings(key="configured-key-0123456789"), tmp_path).key == "configured-key-0123456789"
    assert list(tmp_path.iterdir()) == []


def test_the_key_is_masked_wherever_it_is_written(tmp_path: Path) -> None:
    settings = with_key(HttpSettings(), tmp_path)
    assert redactor(f"key={settings.key}") == f"key={MASK}"
    assert settings.key not in repr(settings)


def test_a_key_that_can_be_guessed_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with_key(HttpSettings(key="short"), tmp_path)
    assert "the key has 5 characters" in caplog.text


@pytest.mark.attack("interfaces")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601])
def test_a_file_that_others_can_read_is_refused_with_the_command_that_mends_it(tmp_path: Path, mode: int) -> None:
    path = tmp_path / KEY_NAME
    path.write_text("a-key-that-others-may-have-seen\n")
    path.chmod(mode)
    with pytest.raises(UserError) as caught:
        file_key(tmp_path)
    assert caught.value.message == f"the key file {path} can be read by others (mode {mode:04o})"
    assert f"chmod 600 {path}" in caught.value.hint


@pytest.mark.attack("interfaces")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / KEY_NAME
    path.write_text("planted-key\n")
    path.chmod(0o600)
    os.chown(path, 12345, 12345)
    with pytest.raises(UserError, match="belongs to uid 12345"):
        file_key(tmp_path)


@pytest.mark.parametrize("content", ["", "\n", "two words\n", "ключ\n", "x" * 5000])
def test_a_file_without_a_key_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / KEY_NAME
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(UserError, match="contains no key"):
        file_key(tmp_path)


@pytest.mark.attack("interfaces")
def test_a_link_or_a_pipe_in_its_place_is_refused_without_waiting(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("linked-key\n")
    (tmp_path / KEY_NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="cannot read the key file"):
        file_key(tmp_path)
    (tmp_path / KEY_NAME).unlink()
    os.mkfifo(tmp_path / KEY_NAME, 0o600)
    with pytest.raises(UserError, match="is not a regular file"):
        file_key(tmp_path)


def test_a_home_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        file_key(tmp_path / "none")
    assert str(tmp_path / "none" / KEY_NAME) in caught.value.message


def test_processes_that_make_it_at_once_have_one_key(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib, hermes_agent.server as s; sys.stdin.read(1); print(s.file_key(pathlib.Path(sys.argv[1])))"
    )
    racing = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(6)
    ]
    for process in racing:
        assert process.stdin is not None
        process.stdin.write("x")
        process.stdin.flush()
    keys = {process.communicate(timeout=30)[0].strip() for process in racing}
    assert len(keys) == 1
    assert keys == {(tmp_path / KEY_NAME).read_text().strip()}
    assert [p.name for p in tmp_path.iterdir()] == [KEY_NAME]
