"""`hermes update`: install another version in a new environment, switch to it, or go back.

Until the switch nothing in use changes. After it the daemons restart; if one does not get ready, the previous version
comes back by itself. `hermes update --rollback` does the same later.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, Protocol

from hermes_agent.app.program.inventory import (
    SYSTEM_UNIT,
    InstalledProgram,
    ProgramEnvironments,
    install_into,
    run_step,
)
from hermes_agent.app.program.release import (
    ReleaseSource,
    ask_program,
    compare_facts,
    compare_plugins,
    compare_requirements,
    describe_release,
    own_command,
    plugin_states,
    staged_code,
    unreadable_owners,
)
from hermes_agent.app.setup.questions import show_progress
from hermes_agent.app.setup.user_unit import UNIT, unit_path
from hermes_agent.config import home_paths
from hermes_agent.config.schema import render_path, walk
from hermes_agent.config.yaml_reader import read_file
from hermes_agent.core.errors import ConfigError, UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.service.daemon_state import lock_holder, read_state
from hermes_agent.store.migrations import create_restore_point, list_restore_points, restore_from_point, versions
from hermes_agent.system.installation import NAME

_DOCTOR = ("doctor", "--offline", "--json")
SYSTEMCTL_S = 180.0
"""Time limit for `systemctl`, in seconds; a restart waits for running turns and for the new daemon."""
READY_S = 60.0
_POLL_S = 0.2


def explain_other_owner(program: InstalledProgram, source: ReleaseSource | None) -> str:
    """Return how to update a program that another tool installs, or "" for an own environment."""
    path = str(source.path) if source is not None else "PATH"
    if program.kind == "nix":
        return (
            "Nix installs this program. In the flake of the host write the new source, and switch to it:\n"
            f'  inputs.hermes-agent.url = "path:{path}";\n'
            "  nix flake update hermes-agent && nixos-rebuild switch\n"
            "The build checks the new version with your plugins and settings.\n"
            "To go back: nixos-rebuild switch --rollback"
        )
    if program.kind == "editable":
        tree = program.source or "the source tree"
        return f"The program runs from {tree}. Update that tree, then run: {program.reinstall or 'make check'}"
    target = shlex.quote(source.with_extras()) if source is not None else path  # they install what is named, alone
    if program.kind == "pipx":
        return f"pipx installs this program: pipx install --force {target}"
    if program.kind == "uv":
        return f"uv installs this program: uv tool install --force {target}"
    if program.kind == "system":
        return f"The program is in the system's Python ({program.prefix}): update it with what installed it."
    return ""


def describe_changes(source: ReleaseSource, home: Path) -> Iterator[str]:
    """Yield a line for each thing that a release would change; its code runs, and nothing is written.

    Raises:
        UserError: the release cannot read the stored data of this home.
    """
    with staged_code(source) as command:
        after = ask_program(command, "self", "describe")
        if not isinstance(after, dict):
            yield f"version   unknown: the code in {source.path} does not describe itself"
        else:
            yield from compare_facts(describe_release(), after, _own_values(home))
        yield from compare_requirements(_own_requirements(), source.requirements)
        yield from compare_plugins(plugin_states(own_command()), plugin_states(command))
        if isinstance(after, dict) and (owners := unreadable_owners(_stored_versions(home), after)):
            raise UserError(
                f"version {after['version']} cannot read {home / 'state.db'}: newer tables of {', '.join(owners)}",
                hint="`hermes state restore-points` lists older copies of the data.",
            )


def _own_values(home: Path) -> dict[str, Any]:
    with contextlib.suppress(ConfigError):
        return {render_path(path): value for path, value in walk(read_file(home_paths(home).editable).value) if path}
    return {}


def _own_requirements() -> list[str]:
    return [text for text in metadata.requires(NAME) or () if ";" not in text]


def _stored_versions(home: Path) -> dict[str, tuple[int, int]]:
    path = home / "state.db"
    if not path.exists():
        return {}
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return versions(connection)


class ProgramUpdate:
    """One update, or one rollback, of an installation in an environment of its own."""

    def __init__(self, program: InstalledProgram, home: Path) -> None:
        self.program = program
        self.home = home
        self.environments = ProgramEnvironments(program.prefix)

    def install(self, source: ReleaseSource) -> list[str]:
        """Install a source, and return what the operator should know.

        Raises:
            UserError: it fails; the previous version is in place and runs.
        """
        environments = self.environments
        with environments.lock():
            environments.remove_others()
            known_faults = self._faults()
            new = self._build(source)
            point = self._save_state()
            old = environments.name_of_current()
            with environments.record.change() as record:
                record.update(previous=old, current=new.name, source=str(source.path), restore_point=point)
            daemons = list(running_daemons(self.program, self.home))
            environments.switch(new)
            problem = self._settle(daemons)
            if problem:
                self._return(old, daemons, point)
                raise UserError(
                    f"the new version is not used: {problem}", hint="The previous version is in place again."
                )
            environments.remove_others()
            found = self._faults()
        new_faults = [f"{line['subject']}: {line['text']}" for line in found or () if line not in (known_faults or ())]
        return [*new_faults, *([f"The data from before is the restore point {point}."] if point else [])]

    def roll_back(self) -> Path:
        """Go back to the version before the last update; return its environment.

        Raises:
            UserError: there is none, or its daemon does not get ready.
        """
        environments = self.environments
        with environments.lock():
            previous = environments.previous()
            if previous is None:
                raise UserError("there is no previous version to go back to", hint="`hermes update PATH` installs one.")
            daemons = list(running_daemons(self.program, self.home))
            name = environments.name_of_current()
            environments.switch(previous)
            with environments.record.change() as record:
                record["previous"], record["current"] = name, previous.name
                point = str(record.get("restore_point") or "")
            if owners := unreadable_owners(_stored_versions(self.home), self._facts()):
                hint = f"Stop the daemon, then `hermes state restore {point}` puts the data from before back."
                raise UserError(
                    f"the previous version is in place, and cannot read the tables of {', '.join(owners)}", hint=hint
                )
            if problem := self._settle(daemons):
                raise UserError(f"the previous version is in place, and its daemon does not run: {problem}")
        return environments.current()

    def _build(self, source: ReleaseSource) -> Path:
        """Make the new environment and check it; nothing in use changes."""
        new = None
        done = show_progress(f"Installing {source.path}")
        try:
            new = self.environments.create(time.strftime("%Y%m%dT%H%M%S"))
            install_into(new, source.with_extras())
            python = [str(new / "bin" / "python"), "-P", "-m", "hermes_agent"]
            run_step([*python, "--version"], "the new version does not start")
            self._check_files(python)
        except BaseException:
            done("failed")
            if new is not None:
                self.environments.remove_others()
            raise
        done("ok")
        return new

    @staticmethod
    def _check_files(python: list[str]) -> None:
        lines = ask_program(python, "self", "check", "--json")
        wrong = [line for line in lines or () if line["level"] == "wrong" and line["subject"] in ("files", "packages")]
        if wrong:
            said = "; ".join(line["text"] for line in wrong)
            raise UserError(f"the new version is not installed as it should be: {said}", hint="Nothing has changed.")

    def _save_state(self) -> str:
        """Copy `state.db` to a restore point and return its name, or "" without stored data."""
        path = self.home / "state.db"
        if not path.exists():
            return ""
        with contextlib.closing(sqlite3.connect(path)) as connection:
            return create_restore_point(connection, path, "update").name

    def _settle(self, daemons: list[RunningDaemon]) -> str:
        """Write the files of shells and systemd again, and restart daemons; return a problem, or ""."""
        script = str(self.program.script)
        try:
            subprocess.run([script, "self", "check", "--fix"], capture_output=True, timeout=120, check=False)
        except (OSError, subprocess.TimeoutExpired) as exc:
            return f"it does not start: {exc}"
        if self._faults() is None:
            return "`hermes doctor` fails"
        for daemon in daemons:
            done = show_progress(f"Restarting {daemon.name}")
            if problem := daemon.restart():
                done("failed")
                return f"{daemon.name} does not get ready: {problem}"
            done("ok")
        return ""

    def _return(self, name: str, daemons: list[RunningDaemon], point: str) -> None:
        """Switch back after a failed update; data that the old version cannot read comes back, too."""
        environments = self.environments
        failed = environments.name_of_current()
        environments.switch(environments.folder / name)
        with environments.record.change() as record:
            record.update(previous="", current=name, failed=failed)
        path = self.home / "state.db"
        if point and unreadable_owners(_stored_versions(self.home), self._facts()):
            saved = next(one for one in list_restore_points(path) if one.name == point)
            restore_from_point(path, saved)
        self._settle([])
        for daemon in daemons:
            problem = daemon.restart()
            if problem and isinstance(daemon, HomeDaemon):
                problem = daemon.start()
            if problem:
                raise UserError(f"the previous version is in place, and {daemon.name} does not run: {problem}")
        environments.remove_others()

    def _faults(self) -> list[dict[str, str]] | None:
        """Return the findings of the doctor in place that are wrong, or None if it does not run."""
        lines = ask_program([str(self.program.script)], *_DOCTOR)
        return [line for line in lines if line["level"] == "wrong"] if isinstance(lines, list) else None

    def _facts(self) -> Mapping[str, Any]:
        facts = ask_program([str(self.program.script)], "self", "describe")
        return facts if isinstance(facts, dict) else {}


class RunningDaemon(Protocol):
    """A daemon that runs from an installation."""

    @property
    def name(self) -> str:
        """Its name for the operator."""
        ...

    def restart(self) -> str:
        """Restart it with the program that P leads to now; return why it does not get ready, or ""."""
        ...


class UnitDaemon(LazyNamedTuple):
    """A daemon in a systemd unit that starts this installation."""

    scope: Literal["user", "system"]

    @property
    def name(self) -> str:
        """The unit, and its manager."""
        return f"{UNIT} of the {'user' if self.scope == 'user' else 'system'} manager"

    def restart(self) -> str:
        """Restart the unit; it is of `Type=notify`, so that systemd waits until the daemon is ready."""
        self._run("daemon-reload")
        self._run("reset-failed", UNIT)
        done = self._run("restart", UNIT)
        if done.returncode == 0:
            return ""
        journal = ["journalctl", *self._manager(), "-u", UNIT, "-n", "5", "--no-pager", "-o", "cat"]
        said = subprocess.run(journal, capture_output=True, text=True, timeout=SYSTEMCTL_S, check=False)
        return " ".join((done.stderr + said.stdout).split())

    def is_active(self) -> bool:
        """Return whether the unit runs, or systemd is about to start it again."""
        return self._run("is-active", UNIT).stdout.strip() in ("active", "activating", "reloading")

    def _manager(self) -> list[str]:
        return ["--user"] if self.scope == "user" else []

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["systemctl", *self._manager(), *arguments]
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=SYSTEMCTL_S, check=False)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, 124, "", f"no answer within {SYSTEMCTL_S:g} seconds")


class HomeDaemon:
    """A daemon of this home without a unit, such as one that was started in a terminal.

    Args:
        script: the program `hermes`, by the path that an update keeps.
    """

    def __init__(self, home: Path, script: Path) -> None:
        self._home = home
        self._script = script
        self.name = f"the daemon of {home}"

    def restart(self) -> str:
        """Let it start its own successor; start one if it has ended, or does not answer."""
        said = ""
        if lock_holder(self._home) is not None:
            done = self._hermes("gateway", "restart")
            if done.returncode == 0:
                return ""
            said = " ".join(done.stderr.split())
            self._end()
            return said or f"`hermes gateway restart` ended with status {done.returncode}"
        return self.start()

    def start(self) -> str:
        """Start a daemon in the background; return why it does not get ready, or ""."""
        environ = os.environ | {"HERMES_HOME": str(self._home)}
        process = subprocess.Popen(
            [str(self._script), "gateway", "run"],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        if _until(lambda: self._hermes("gateway", "status").returncode == 0 or process.poll() is not None, READY_S):
            return "" if process.poll() is None else f"it ended with status {process.returncode}"
        return f"it is not ready within {READY_S:g} seconds"

    def _end(self) -> None:
        """End a process that has the lock of the home and does not answer."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            pid = lock_holder(self._home)
            if not pid:
                return
            os.kill(pid, number)
            _until(lambda: lock_holder(self._home) is None, 10.0)

    def _hermes(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environ = os.environ | {"HERMES_HOME": str(self._home)}
        command = [str(self._script), *arguments]
        try:
            return subprocess.run(
                command, env=environ, capture_output=True, text=True, timeout=SYSTEMCTL_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as exc:
            return subprocess.CompletedProcess(command, 124, "", str(exc))


def running_daemons(program: InstalledProgram, home: Path) -> Iterator[RunningDaemon]:
    """Yield the daemons that run from this installation: of units, and that of the home."""
    units = []
    for scope, path in (("user", unit_path()), ("system", SYSTEM_UNIT)):
        if shutil.which("systemctl") and _starts(path, program.script):
            unit = UnitDaemon("user" if scope == "user" else "system")
            if unit.is_active():
                units.append(unit)
    yield from units
    state = read_state(home)
    if lock_holder(home) is not None and not (units and state is not None and state.unit == UNIT):
        yield HomeDaemon(home, program.script)


def _starts(unit: Path, script: Path) -> bool:
    try:
        return str(script) in unit.read_text(encoding="utf-8")
    except OSError:
        return False


def _until(holds: Callable[[], bool], limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True
