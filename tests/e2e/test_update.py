"""`hermes update`: another version in a new environment, the switch, the way back, an interrupted update."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from hermes_agent.app.program.inventory import InstalledProgram
from hermes_agent.app.program.release import find_source
from hermes_agent.app.program.update import explain_other_owner
from wheels import hermes, install_program, variant

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("installed program")]

FULL = pytest.mark.skipif(
    not os.environ.get("HERMES_UPDATE_FULL"), reason="takes minutes: HERMES_UPDATE_FULL=1 (make test-update)"
)
CONFIG = """\
model: {provider: custom, base_url: "http://127.0.0.1:9/v1", default: some-model}
server: {enabled: false}
agent: {max_turns: 7}
"""
EXTRA = 'Provides-Extra: speech\nRequires-Dist: spoken>=1; extra == "speech"'
"""A package that the version before requires of everybody."""
PLUGIN = "name: waits\nversion: '1'\n"


@pytest.fixture
def person(wheel: Path, tmp_path: Path) -> Path:
    """A home with the installed program, settings, and one plugin."""
    install_program(wheel, tmp_path)
    home = tmp_path / ".hermes"
    (home / "plugins" / "waits").mkdir(parents=True)
    (home / "config.yaml").write_text(CONFIG)
    (home / "plugins" / "waits" / "plugin.yaml").write_text(PLUGIN)
    (home / "plugins" / "waits" / "__init__.py").write_text("def register(ctx): pass\n")
    return tmp_path


@pytest.fixture
def newer(wheel: Path, tmp_path: Path) -> Path:
    """A later version: a setting more and one less, another default, a package more."""

    def settings(text: str) -> str:
        schema = json.loads(text)
        agent = schema["properties"]["agent"]["properties"]
        agent["new_setting"] = {"type": "integer", "default": 3, "description": "New."}
        agent["max_turns"]["default"] = 91
        del schema["properties"]["privacy"]
        return json.dumps(schema)

    changes: dict[str, Callable[[str], str]] = {
        "hermes_agent/config/schema.json": settings,
        "METADATA": lambda text: text.replace(
            "Requires-Dist: httpx<1,>=0.27", f"Requires-Dist: httpx<1,>=0.28\nRequires-Dist: certifi\n{EXTRA}"
        ),
        "hermes_agent/cron/job_store.py": lambda text: text.replace("SCHEMA = Schema(", "SCHEMA = Schema(", 1),
    }
    return variant(wheel, "0.21.0", changes, tmp_path)


def program(person: Path) -> Path:
    return person / ".local" / "share" / "hermes-agent"


def version(person: Path) -> str:
    done = hermes(person, "--version")
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1]


@contextlib.contextmanager
def daemon(person: Path) -> Iterator[None]:
    """Run a daemon that was started by hand; whichever process has the home then is ended."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(person)}
    command = [person / ".local" / "bin" / "hermes", "gateway", "run"]
    with (person / "daemon.log").open("wb") as log:
        process = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        until(lambda: hermes(person, "gateway", "status").returncode == 0)
        yield
    finally:
        hermes(person, "gateway", "stop", "--now")
        process.kill()
        process.wait()


def until(holds: Callable[[], bool], limit_s: float = 120.0) -> None:
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_what_another_version_changes_is_shown_and_nothing_is_changed(person: Path, newer: Path) -> None:
    before = sorted(str(path) for path in program(person).rglob("*") if "__pycache__" not in path.parts)
    done = hermes(person, "update", str(newer), "--check")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "version   0.20.0 → 0.21.0" in lines
    assert "config    + agent.new_setting (default 3)" in lines
    assert any(
        line.startswith("config    ~ agent.max_turns: default ") and "your config sets 7" in line for line in lines
    )
    assert any(line.startswith("config    - ") for line in lines)
    assert "packages  ~ httpx <1,>=0.27 → <1,>=0.28" in lines
    assert "plugins   unchanged" in lines and "state     unchanged" in lines
    assert sorted(str(path) for path in program(person).rglob("*") if "__pycache__" not in path.parts) == before
    assert not program(person).is_symlink()


def test_it_is_installed_with_a_restore_point_and_one_command_goes_back(person: Path, newer: Path) -> None:
    assert hermes(person, "completion", "install", "bash").returncode == 0
    with contextlib.closing(sqlite3.connect(person / ".hermes" / "state.db")) as state:
        state.execute("CREATE TABLE own (value TEXT)")
        state.execute("INSERT INTO own VALUES ('kept')")
        state.commit()
    [site] = program(person).glob("lib/python3*/site-packages")
    (site / "spoken-1.5.dist-info").mkdir()
    (site / "spoken-1.5.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: spoken\nVersion: 1.5\n")
    (site / "spoken.py").write_text("SAYS = 'Good day.'\n")
    done = hermes(person, "update", str(newer), "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert version(person) == "0.21.0"
    assert program(person).is_symlink()
    speech = subprocess.run(
        [program(person) / "bin" / "python", "-c", "import spoken; print(spoken.SAYS)"], capture_output=True, text=True
    )
    assert speech.stdout == "Good day.\n", "what was required and is an extra now is still there"
    report = json.loads(hermes(person, "self", "check", "--json").stdout)
    [extras] = [line["text"] for line in report if line["subject"] == "extras" and line["level"] == "ok"]
    assert "speech" in extras.removeprefix("installed: ").split(", ")
    points = hermes(person, "state", "restore-points").stdout
    assert "-update.db" in points
    checked = hermes(person, "self", "check", "--json")
    wrong = [line for line in json.loads(checked.stdout) if line["level"] == "wrong"]
    assert wrong == [], "completion and man pages are those of the new version"
    unit_program = hermes(person, "self", "check").stdout
    assert f"an environment of its own: {program(person)} " in unit_program

    back = hermes(person, "update", "--rollback")
    assert back.returncode == 0, back.stderr
    assert version(person) == "0.20.0"
    assert not program(person).is_symlink()
    forth = hermes(person, "update", "--rollback")
    assert (forth.returncode, version(person)) == (0, "0.21.0"), forth.stderr

    (program(person).resolve() / "bin" / "hermes").write_text("#!/bin/false\n")  # broken: the previous one helps
    record = json.loads((program(person).parent / "hermes-agent.versions" / "versions.json").read_text())
    python = program(person).parent / "hermes-agent.versions" / record["previous"] / "bin" / "python"
    rescued = subprocess.run(
        [python, "-m", "hermes_agent", "update", "--rollback"],
        env={"HOME": str(person), "PATH": "/usr/bin:/bin"},
        cwd=person,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (rescued.returncode, version(person)) == (0, "0.20.0"), rescued.stderr


@FULL
def test_a_daemon_goes_on_with_the_new_version_and_with_the_old_one_after_a_rollback(person: Path, newer: Path) -> None:
    with daemon(person):
        before = json.loads((person / ".hermes" / "gateway_state.json").read_text())
        done = hermes(person, "update", str(newer), "--yes")
        assert done.returncode == 0, done.stdout + done.stderr
        state = json.loads((person / ".hermes" / "gateway_state.json").read_text())
        assert state["started"] > before["started"]
        assert running_code(person) == program(person).resolve()
        assert hermes(person, "update", "--rollback").returncode == 0
        assert running_code(person) == program(person)


def running_code(person: Path) -> Path:
    """Return the environment of the daemon's process."""
    pid = json.loads((person / ".hermes" / "gateway_state.json").read_text())["pid"]
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return Path(os.fsdecode(words[0])).parents[1]


@FULL
def test_a_daemon_that_does_not_get_ready_brings_the_previous_version_back(
    person: Path, wheel: Path, tmp_path: Path
) -> None:
    changes: dict[str, Callable[[str], str]] = {
        "hermes_agent/app/daemon.py": lambda text: text + "\nraise RuntimeError('this version does not serve')\n"
    }
    broken = variant(wheel, "0.22.0", changes, tmp_path)
    with daemon(person):
        done = hermes(person, "update", str(broken), "--yes")
        assert done.returncode == 1
        assert "the new version is not used: the daemon of" in done.stderr
        assert "The previous version is in place again." in done.stderr
        assert version(person) == "0.20.0"
        assert not program(person).is_symlink()
        assert hermes(person, "gateway", "status").returncode == 0
        assert running_code(person) == program(person)
    assert "no previous version" in hermes(person, "update", "--rollback").stderr


@FULL
def test_a_version_that_does_not_start_is_never_switched_to(person: Path, wheel: Path, tmp_path: Path) -> None:
    changes = {"hermes_agent/app/main.py": lambda text: text + "\nraise RuntimeError('broken')\n"}
    done = hermes(person, "update", str(variant(wheel, "0.23.0", changes, tmp_path)), "--yes")
    assert done.returncode == 1
    assert "does not start" in done.stderr and "Nothing has changed." in done.stderr
    assert version(person) == "0.20.0"
    left = {path.name for path in (program(person).parent / "hermes-agent.versions").iterdir() if path.is_dir()}
    assert left == set()


MOMENTS: dict[str, Callable[[Path], bool]] = {
    "the new environment is made": lambda versions: any(versions.glob("2*/bin/python")),
    "its files are copied": lambda versions: any(versions.glob("2*/lib/*/site-packages/hermes_agent/app")),
    "the old copy is removed": lambda versions: (
        any(versions.glob("2*/lib/*/site-packages")) and not any(versions.glob("2*/bin/hermes"))
    ),
    "the switch": lambda versions: versions.with_name("hermes-agent").is_symlink(),
}


@FULL
def test_killed_at_any_moment_it_leaves_a_program_that_works_and_the_next_update_ends(
    person: Path, newer: Path
) -> None:
    versions = program(person).with_name("hermes-agent.versions")
    environ = {"PATH": f"{person}/.local/bin:/usr/bin:/bin", "HOME": str(person), "PIP_NO_INDEX": "1"}
    for moment, holds in MOMENTS.items():
        process = subprocess.Popen(
            [person / ".local" / "bin" / "hermes", "update", str(newer), "--yes"],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        until(lambda: holds(versions) or process.poll() is not None)  # noqa: B023 - called here
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert version(person) in ("0.20.0", "0.21.0"), moment
        assert hermes(person, "config", "check").returncode == 0, moment
    done = hermes(person, "update", str(newer), "--yes")
    assert done.returncode == 0, done.stderr
    assert version(person) == "0.21.0"
    assert len([path for path in versions.iterdir() if path.is_dir()]) == 2, "the present and the previous one"


def test_a_plugin_that_a_new_version_would_not_load_is_named(person: Path, wheel: Path, tmp_path: Path) -> None:
    assert hermes(person, "plugins", "enable", "waits").returncode == 0
    changes = {
        "hermes_agent/plugins/pinned_files.py": lambda text: text.replace("before = pinned.get(name)", "before = None")
    }
    done = hermes(person, "update", str(variant(wheel, "0.24.0", changes, tmp_path)), "--check")
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("plugins "))
    assert line.startswith("plugins   waits: enabled → changed: changed since it was granted: ")
    assert line.endswith("(`hermes plugins grant waits`)")


def test_what_is_no_version_of_the_program_is_refused(person: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "pyproject.toml").write_text('[project]\nname = "something-else"\n')
    for path, said in ((other, "is the program 'something-else'"), (tmp_path, "is neither a source tree nor a wheel")):
        done = hermes(person, "update", str(path))
        assert done.returncode == 2 and said in done.stderr
    done = hermes(person, "update", "--rollback")
    assert done.returncode == 1 and "there is no previous version" in done.stderr


def test_pipx_and_uv_are_named_with_the_extras_that_are_there(tmp_path: Path) -> None:
    extras = 'optional-dependencies = {speech = ["pytest>=7"], other = ["no-such-package"]}'
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "hermes-agent"\n{extras}\n')
    source = find_source(tmp_path)
    for kind, command in (("pipx", "pipx install --force"), ("uv", "uv tool install --force")):
        program = InstalledProgram(cast(Any, kind), Path("/p"), None, Path("/p/bin/python"))
        assert explain_other_owner(program, source).endswith(f": {command} '{tmp_path}[speech]'")
        assert explain_other_owner(program, None).endswith(f": {command} PATH")


def test_without_a_terminal_nothing_is_installed_unless_it_is_said(person: Path, newer: Path) -> None:
    done = hermes(person, "update", str(newer))
    assert done.returncode == 1 and "`hermes update --yes` installs it" in done.stderr
    assert version(person) == "0.20.0"
