"""`hermes uninstall`: what it removes, what it leaves and names, and the archive of a home before it is deleted."""

from __future__ import annotations

import contextlib
import os
import socket
import sqlite3
import subprocess
from pathlib import Path

import pytest

from wheels import call, hermes, install_program

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("installed program")]

CONFIG = """\
model: {provider: custom, base_url: "http://127.0.0.1:9/v1", default: some-model}
server: {enabled: false}
"""


@pytest.fixture
def person(wheel: Path, tmp_path: Path) -> Path:
    """A home with the installed program, its completion and man pages, and an agent that was used."""
    install_program(wheel, tmp_path)
    assert hermes(tmp_path, "completion", "install", "bash").returncode == 0
    home = tmp_path / ".hermes"
    (home / "plugins" / "own").mkdir(parents=True)
    (home / "config.yaml").write_text(CONFIG)
    (home / ".env").write_text("OPENAI_API_KEY=sk-own\n")
    (home / "plugins" / "linked").symlink_to("/somewhere/else")
    (home / "plugins" / "own" / "a name with ü.txt").write_bytes(bytes(range(256)))
    (tmp_path / ".cache" / "hermes").mkdir(parents=True)
    return tmp_path


def files(person: Path) -> set[str]:
    """Return the names below a home, without those of caches of Python."""
    found = (path for path in person.rglob("*") if not {"__pycache__", ".rustup"} & {*path.parts})
    return {str(path.relative_to(person)) for path in found if path.is_symlink() or not path.is_dir()}


def test_it_shows_what_it_would_do_and_does_nothing_without_a_yes(person: Path) -> None:
    before = files(person)
    shown = hermes(person, "uninstall", "--purge", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert f"remove {person}/.local/share/hermes-agent\n" in shown.stdout
    assert f"remove {person}/.local/bin/hermes\n" in shown.stdout
    assert f"export {person}/.hermes to {person}/hermes-" in shown.stdout
    assert f"leave {person}/.cache/hermes: downloaded models" in shown.stdout
    asked = hermes(person, "uninstall")
    assert asked.returncode == 1 and "`hermes uninstall --yes` removes it" in asked.stderr
    assert files(person) == before


def test_it_removes_the_program_with_everything_that_it_installed_and_leaves_the_home(person: Path) -> None:
    home = {name for name in files(person) if name.startswith(".hermes/")}
    (person / ".local" / "bin" / "other").symlink_to("/bin/true")
    done = hermes(person, "uninstall", "--yes")
    assert done.returncode == 0, done.stderr
    assert f"left {person}/.hermes: settings, sessions, plugins and keys" in done.stdout
    assert files(person) - {".local/bin/other"} == home


def test_purge_exports_a_home_with_everything_and_stops_its_daemon_first(person: Path) -> None:
    home = person / ".hermes"
    with contextlib.closing(sqlite3.connect(home / "state.db")) as open_state:
        open_state.execute("PRAGMA journal_mode = WAL")
        open_state.execute("CREATE TABLE own (value TEXT)")
        open_state.execute("INSERT INTO own VALUES ('in the log only')")
        open_state.commit()
        assert (home / "state.db-wal").stat().st_size > 0
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as door:
            door.bind(os.path.relpath(home / "door"))
        archive = person / "kept.tar.gz"
        daemon = subprocess.Popen(
            [person / ".local" / "bin" / "hermes", "gateway", "run"],
            env={"PATH": "/usr/bin:/bin", "HOME": str(person)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert daemon.stderr is not None
        while "ready" not in (line := daemon.stderr.readline()):
            assert line, "the daemon ended"
        done = hermes(person, "uninstall", "--purge", "--export", str(archive), "--yes")
        assert done.returncode == 0, done.stderr
        assert daemon.wait(60) == 0
        daemon.stderr.close()
    assert not home.exists() and not (person / ".local" / "share" / "hermes-agent").exists()
    assert archive.stat().st_mode & 0o777 == 0o600
    back = person / "back"
    back.mkdir()
    subprocess.run(["tar", "-C", back, "-xzf", archive], check=True)
    assert (back / ".hermes" / ".env").read_text() == "OPENAI_API_KEY=sk-own\n"
    assert (back / ".hermes" / "plugins" / "own" / "a name with ü.txt").read_bytes() == bytes(range(256))
    assert os.readlink(back / ".hermes" / "plugins" / "linked") == "/somewhere/else"
    with contextlib.closing(sqlite3.connect(back / ".hermes" / "state.db")) as state:
        assert state.execute("SELECT value FROM own").fetchall() == [("in the log only",)]


def test_an_export_that_fails_removes_nothing(person: Path) -> None:
    before = files(person)
    for file, said in (
        (person / "no-such-folder" / "a.tar.gz", "cannot be exported"),
        (person / ".hermes" / "a.tar.gz", "in the home that is removed"),
        (person / ".hermes" / ".env", "it exists"),
    ):
        done = hermes(person, "uninstall", "--purge", "--export", str(file), "--yes")
        assert done.returncode != 0 and said in done.stderr
    assert files(person) == before


def test_in_an_environment_with_other_packages_only_the_program_is_removed(wheel: Path, tmp_path: Path) -> None:
    install_program(wheel, tmp_path)
    (tmp_path / ".local" / "share" / "hermes-agent").rename(tmp_path / "env")
    script = (tmp_path / "env" / "bin" / "hermes").read_text()
    moved = script.replace(f"{tmp_path}/.local/share/hermes-agent", f"{tmp_path}/env")
    (tmp_path / "env" / "bin" / "hermes").write_text(moved)
    own = next((tmp_path / "env").glob("lib/*/site-packages")) / "own.py"
    own.write_text("")
    done = call(tmp_path / "env" / "bin" / "hermes", "uninstall", "--yes", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert own.exists() and not (own.parent / "hermes_agent" / "__init__.py").exists()
    assert not (tmp_path / "env" / "bin" / "hermes").exists()
