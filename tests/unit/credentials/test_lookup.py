from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from hermes_agent.credentials import Credentials


def home_with(tmp_path: Path, text: str) -> Path:
    (tmp_path / ".env").write_text(text)
    (tmp_path / ".env").chmod(0o600)
    return tmp_path


def credentials_directory(tmp_path: Path, **files: str) -> dict[str, str]:
    folder = tmp_path / "credentials"
    folder.mkdir()
    for name, text in files.items():
        (folder / name.replace("__", "-")).write_text(text)
    return {"CREDENTIALS_DIRECTORY": str(folder)}


def test_each_place_wins_over_the_next(tmp_path: Path) -> None:
    home = home_with(tmp_path, "A=dotenv\nB=dotenv\nC=dotenv\nD=dotenv\n")
    environ = credentials_directory(tmp_path, A="file\n", env__1="A=env-file\nB=env-file\n")
    environ |= {"A": "environment", "B": "environment", "C": "environment"}
    found = Credentials(home, environ)
    assert [found.get(name) for name in "ABCDE"] == ["file", "env-file", "environment", "dotenv", None]


def test_empty_value_is_none_and_the_next_place_is_asked(tmp_path: Path) -> None:
    home = home_with(tmp_path, "A=dotenv\nB=\n")
    environ = credentials_directory(tmp_path, A="\n", env__x="A=\n") | {"A": ""}
    assert Credentials(home, environ).get("A") == "dotenv"
    assert Credentials(home, environ).get("B") is None


def test_credential_file_loses_the_line_break_at_its_end_and_nothing_else(tmp_path: Path) -> None:
    environ = credentials_directory(tmp_path, PEM="-----\nabc\n-----\r\n", PLAIN=" spaced ")
    found = Credentials(tmp_path, environ)
    assert (found.get("PEM"), found.get("PLAIN")) == ("-----\nabc\n-----", " spaced ")


@pytest.mark.parametrize("name", ["", "..", ".", "../secret", "a/b", "/etc/passwd", "a\0b"])
def test_name_that_leaves_the_directory_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("outside")
    with pytest.raises(ValueError, match="cannot be the name of a credential"):
        Credentials(tmp_path, credentials_directory(tmp_path)).get(name)


def test_home_without_any_place_has_nothing(tmp_path: Path) -> None:
    found = Credentials(tmp_path / "absent", {"CREDENTIALS_DIRECTORY": str(tmp_path / "absent")})
    assert (found.get("A"), found.secrets(), found.warnings()) == (None, frozenset(), ())


def test_rotated_secret_is_seen_without_a_restart(tmp_path: Path) -> None:
    home = home_with(tmp_path, "A=old-value\n")
    environ = credentials_directory(tmp_path, B="old")
    found = Credentials(home, environ)
    assert (found.get("A"), found.get("B")) == ("old-value", "old")
    home_with(tmp_path, "A=new\n")
    (tmp_path / "credentials" / "B").write_text("new")
    assert (found.get("A"), found.get("B")) == ("new", "new")


def test_export_sets_what_the_environment_lacks(tmp_path: Path) -> None:
    home = home_with(tmp_path, "A=dotenv\nB=dotenv\nC=dotenv\nEMPTY=\n")
    environ = credentials_directory(tmp_path, A="file", tls__key="pem", env__x="A=env-file\nB=env-file\n")
    environ |= {"C": "environment", "D": ""}
    assert Credentials(home, environ).export(environ) == ("A", "B")
    assert {name: environ.get(name) for name in ("A", "B", "C", "D", "EMPTY", "tls-key")} == {
        "A": "file",
        "B": "env-file",
        "C": "environment",
        "D": "",
        "EMPTY": None,
        "tls-key": None,
    }


def test_exported_value_does_not_hide_a_later_change_of_the_file(tmp_path: Path) -> None:
    home = home_with(tmp_path, "A=old-value\n")
    environ: dict[str, str] = {}
    found = Credentials(home, environ)
    found.export(environ)
    home_with(tmp_path, "A=new\n")
    assert found.get("A") == "new"
    environ["A"] = "set by somebody"
    assert found.get("A") == "set by somebody"


def test_secrets_are_what_is_declared_named_or_formed_so_and_what_stands_alone_in_the_credentials_directory(
    tmp_path: Path,
) -> None:
    home = home_with(
        tmp_path,
        "TOKEN_A=dotenv-secret\nNAME=dotenv-value\nOPENAI_BASE_URL=http://host/v1\nMY_CODE=declared-value\n"
        "MY_PIN_KEY=declared-harmless\nANY=k9Xw2LmQ8vRt4ZbN7cYd\nDATABASE_URL=postgres://me:pass-of-db@db.example.org/x\n",
    )
    environ = credentials_directory(
        tmp_path,
        DB="file-secret",
        NOTES_URL="https://notes.example.org/",
        env__x="B_TOKEN=env-file-secret\nB=words-only\n",
    )
    environ |= {"MY_API_KEY": "environment-secret", "LANG": "C.UTF-8", "INVOCATION": "k9Xw2LmQ8vRt4ZbN7cYe"}
    environ |= {"SSH_AUTH_SOCK": "/tmp/ssh-abc/agent.1", "HTTP_PROXY": "http://me:pass-of-proxy@proxy:3128"}
    assert Credentials(home, environ).secrets({"MY_CODE": True, "MY_PIN_KEY": False}) == {
        "dotenv-secret",
        "declared-value",
        "k9Xw2LmQ8vRt4ZbN7cYd",
        "pass-of-db",
        "file-secret",
        "env-file-secret",
        "environment-secret",
        "pass-of-proxy",
    }


@pytest.mark.parametrize(("mode", "warns"), [(0o600, False), (0o400, False), (0o640, True), (0o644, True)])
def test_env_file_that_others_can_read_is_warned_about(tmp_path: Path, mode: int, warns: bool) -> None:
    home = home_with(tmp_path, "A=secret-value\n")
    (home / ".env").chmod(mode)
    expected = (f"{home}/.env can be read by other users (mode {mode:04o}): run `chmod 600 {home}/.env`",)
    assert Credentials(home, {}).warnings() == (expected if warns else ())


def test_credential_that_is_no_text_is_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    environ = credentials_directory(tmp_path, A="good")
    (tmp_path / "credentials" / "blob").write_bytes(b"\xff\xfe\x00")
    found = Credentials(tmp_path, environ)
    with caplog.at_level(logging.WARNING):
        assert found.get("blob") is None
        assert found.secrets() == {"good"}
    assert "it is not UTF-8 text" in caplog.text and "\\xff" not in caplog.text


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_credential_that_may_not_be_read_is_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    environ = credentials_directory(tmp_path, A="secret")
    (tmp_path / "credentials" / "A").chmod(0)
    with caplog.at_level(logging.WARNING):
        assert Credentials(tmp_path, environ).get("A") is None
    assert "Permission denied" in caplog.text
