"""`hermes profile` and `hermes -p NAME`: several homes on one machine that share nothing."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from hermes_agent.app.main import main
from peers.running import free_port, running


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Hermes = Callable[..., Done]


@pytest.fixture
def hermes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Hermes:
    """Return `hermes(*words)`: the command, with `tmp_path` as the person's directory."""

    def run(*words: str, home: Path | None = None, said: str = "") -> Done:
        with monkeypatch.context() as patched:
            patched.setenv("HOME", str(tmp_path))
            patched.setenv("HERMES_HOME", str(home or ""))
            patched.setattr(sys, "stdin", io.StringIO(said))
            status = main(words)
        return Done(status, *capfd.readouterr())

    return run


def shown(hermes: Hermes) -> dict[str, dict[str, object]]:
    return {one["name"]: one for one in json.loads(hermes("profile", "list", "--json").stdout)}


def test_profiles_are_homes_with_config_keys_and_a_port_of_their_own(hermes: Hermes, tmp_path: Path) -> None:
    hermes("config", "set", "model.default", "big")
    (tmp_path / ".hermes" / ".env").write_text("OPENAI_API_KEY=sk-of-the-root\n")
    (tmp_path / ".hermes" / "auth.json").write_text("{}")

    assert hermes("profile", "create", "work").returncode == 0
    assert hermes("profile", "create", "twin", "--clone").returncode == 0
    work, twin = (tmp_path / ".hermes" / "profiles" / name for name in ("work", "twin"))
    assert (work.stat().st_mode & 0o777, (work / ".env").exists()) == (0o700, False)
    assert (twin / ".env").read_text() == "OPENAI_API_KEY=sk-of-the-root\n"
    assert not (twin / "auth.json").exists()

    hermes("-p", "work", "config", "set", "model.default", "small")
    said = {name: one["model"] for name, one in shown(hermes).items()}
    assert said == {"default": "big", "twin": "big", "work": "small"}
    ports = {hermes(f"--profile={name}", "config", "get", "server.port").stdout for name in said}
    assert len(ports) == 3


def test_the_one_that_is_used_counts_until_something_else_is_said(hermes: Hermes, tmp_path: Path) -> None:
    def where(*words: str, home: Path | None = None) -> str:
        return Path(hermes(*words, "config", "path", home=home).stdout.split()[0]).parent.name

    hermes("profile", "create", "work")
    assert hermes("profile", "use", "work").returncode == 0
    assert where() == "work"
    assert where("-p", "default") == ".hermes"
    assert where(home=tmp_path / "elsewhere") == "elsewhere"
    assert shown(hermes)["work"]["used"] is True

    hermes("profile", "rename", "work", "office")
    assert where() == "office"
    refused = hermes("profile", "delete", "office", said="no\n")
    assert (refused.returncode, "nothing is removed" in refused.stderr) == (1, True)
    assert hermes("profile", "delete", "office", said="office\n").returncode == 0
    assert where() == ".hermes"


def test_the_one_that_is_used_and_was_removed_by_hand_is_left_as_the_error_says(hermes: Hermes, tmp_path: Path) -> None:
    hermes("profile", "create", "work")
    hermes("profile", "use", "work")
    shutil.rmtree(tmp_path / ".hermes" / "profiles" / "work")
    done = hermes("config", "path")
    assert (done.returncode, "no profile 'work' any more" in done.stderr) == (1, True), done.stderr
    (hint,) = re.findall("`hermes (-p default .*?)`", done.stderr)
    assert hermes(*hint.split()).returncode == 0
    assert hermes("config", "path").returncode == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("profile", "create", "../up"), "cannot be the name"),
        (("profile", "delete", "default"), "the default home is no profile"),
        (("-p", "nobody", "config", "path"), "there is no profile 'nobody'"),
        (("-p",), "needs the name of a profile"),
    ],
)
def test_what_cannot_be_is_refused_by_name(hermes: Hermes, words: tuple[str, ...], why: str) -> None:
    done = hermes(*words)
    assert (done.returncode, why in done.stderr) == (1, True), done.stderr


def test_two_profiles_run_their_daemons_side_by_side(hermes: Hermes, tmp_path: Path) -> None:
    port = free_port()
    hermes("profile", "create", "work")
    hermes("-p", "work", "config", "set", "server.port", str(port))
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "HERMES_HOME": ""}
    command = [sys.executable, "-m", "hermes_agent", "-p", "work", "gateway", "run"]
    with running(command, host="127.0.0.1", port=port, path="/health", environ=environ):
        found = shown(hermes)
        assert found["work"]["pid"]
        assert found["default"]["pid"] is None
        refused = hermes("profile", "delete", "work", "--yes")
        assert "the daemon of profile work runs" in refused.stderr
        assert hermes("-p", "work", "gateway", "status").returncode == 0
        assert hermes("gateway", "status").stdout.startswith("not running")
