"""The door for tests: describe a container once, run scripts in it, look at what came out."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from run_in_systemd.booted import Booted, Sink
from run_in_systemd.cgroups import own_cgroup
from run_in_systemd.directory import run_directory
from run_in_systemd.plan import INSIDE, NAME, PATH, Bind, HarnessError, Plan, Process, process_unit

__all__ = ["Container", "Outcome"]

BOOT_S, STOP_S = 30.0, 120.0
ENVIRONMENT = {
    "PATH": PATH,
    "HOME": "/root",
    "USER": "root",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "PAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "SYSTEMD_COLORS": "0",
    "SYSTEMD_URLIFY": "0",
    "RUN_IN_SYSTEMD": "1",
}
"""What a script starts with."""


@dataclass(frozen=True)
class Outcome:
    """What one run left."""

    status: int
    """The script's exit status."""
    stdout: str
    stderr: str
    state: str
    """What `systemctl is-system-running` said after the boot: `running`, or `degraded` when a unit had failed."""
    journal: list[dict[str, Any]]
    """Every entry, shutdown included, as `journalctl -o json --all` gives them."""

    def entries(self, **fields: str) -> list[dict[str, Any]]:
        """Return the journal's entries that have these fields (`_SYSTEMD_UNIT="x.service"`, `HERMES_SESSION="s"`)."""
        return [e for e in self.journal if all(e.get(name) == value for name, value in fields.items())]

    def succeeded(self) -> Outcome:
        """Return itself; fail with everything there is to see when the script's status is not 0."""
        if self.status:
            said = _said(self.journal)
            raise AssertionError(
                f"status {self.status}\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}\n--- journal\n{said}"
            )
        return self


@dataclass(frozen=True)
class Container:
    """A container to be booted; each `run` boots a fresh one.

    Args:
        units: name of a unit, or of a drop-in directory (`x.service.d`), to its text or its path on the host.
        enable: units that start with the boot.
        binds: path of the host to a path in the container, read-only; a target that ends in `:rw` is writable.
        files: path in the container to a text; one that begins with `#!` is executable.
        processes: run beside the units, started and listening before the script begins.
        environment: for scripts, on top of `ENVIRONMENT`.
        root: another root file system as lower layer, e.g. one with a newer systemd.
        kept: folder of the host, not below `root`, on a file system that can be an upper layer. The next container with
            it boots with what this one wrote, as a machine does; units and files are given to the first one.
        logins: run logind, and with it the managers of users.
    """

    units: Mapping[str, str | Path] = field(default_factory=dict)
    enable: Sequence[str] = ()
    binds: Mapping[str | Path, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    processes: Sequence[Process] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    root: str = "/"
    kept: Path | None = None
    logins: bool = False

    def run(self, script: str | Path | Sequence[str], *args: str, timeout_s: float = 90) -> Outcome:
        """Boot, run a script as root, shut down.

        Args:
            script: its text (bash, unless it begins with `#!`), its path on the host, or a command of the container.
            timeout_s: limit for the script.

        Raises:
            HarnessError: no boot, the script ran too long, or the container ended before it.
        """
        out, err = bytearray(), bytearray()
        with run_directory() as directory:
            status, state = self.stream(directory, script, args, out.extend, err.extend, timeout_s=timeout_s)
            return Outcome(status, _text(out), _text(err), state, read_journal(directory))

    def stream(
        self,
        directory: Path,
        script: str | Path | Sequence[str],
        args: Sequence[str],
        out: Sink,
        err: Sink,
        *,
        timeout_s: float,
    ) -> tuple[int, str]:
        """Do what `run` does in a run directory of the caller; return the status and the state after the boot."""
        for name in ("io", "journal", "mnt", "input"):
            (directory / name).mkdir()
        (directory / "journal").chmod(0o755)
        plan = self._plan(directory)
        os.mkdir(plan.cgroup)
        plan_file = directory / "plan.json"
        plan_file.write_text(plan.to_json())
        self._write_runner(directory / "io", script, args)
        booted = Booted(directory, plan_file, out, err)
        try:
            booted.wait_booted(BOOT_S)
            status = booted.wait_script(timeout_s)
            if not booted.stop(STOP_S):
                raise HarnessError(f"no shutdown within {STOP_S:g} s")
        except HarnessError as exc:
            booted.kill()
            raise HarnessError(f"{exc}\n{_tail(directory)}") from exc
        except BaseException:
            booted.kill()
            raise
        return status, booted.state or ""

    def _plan(self, directory: Path) -> Plan:
        cgroup = f"{own_cgroup()}/{NAME}-{directory.name}"
        (directory / "cgroup").write_text(cgroup + "\n")
        given: dict[str, str | Path] = {**self.units}
        given |= {f"{process.name}.service": process_unit(process) for process in self.processes}
        inputs = directory / "input"
        return Plan(
            directory=str(directory),
            cgroup=cgroup,
            parent=os.getpid(),
            hostname=f"ris-{directory.name}",
            root=os.path.realpath(self.root),
            kept="" if self.kept is None else str(self.kept.resolve()),
            logins=self.logins,
            units={name: _on_host(inputs, f"unit-{n}", unit) for n, (name, unit) in enumerate(given.items())},
            enable=[*self.enable, *(f"{process.name}.service" for process in self.processes)],
            binds=[_bind(source, target) for source, target in self.binds.items()],
            files={path: _on_host(inputs, f"file-{n}", text) for n, (path, text) in enumerate(self.files.items())},
        )

    def _write_runner(self, io: Path, script: str | Path | Sequence[str], args: Sequence[str]) -> None:
        command = [*args]
        if isinstance(script, str | Path):
            text = script.read_text() if isinstance(script, Path) else script
            (io / "script").write_text(text)
            (io / "script").chmod(0o755)
            command = [*([] if text.startswith("#!") else ["/bin/bash"]), f"{INSIDE}/script", *command]
        else:
            command = [*script, *command]
        environment = {**ENVIRONMENT, **self.environment}
        beside = [
            f"systemctl is-active --quiet {p.name} || {{ echo '{p.name} does not run' >&2;"
            f" systemctl status --no-pager -l {p.name} >&2; echo 'status 125' >{INSIDE}/ctl; exit; }}"
            for p in self.processes
        ]
        lines = [
            "#!/bin/sh",
            "state=$(timeout 25 systemctl is-system-running --wait 2>&1)",
            f'echo "started ${{state:-starting}}" >{INSIDE}/ctl',
            *(f"export {name}={shlex.quote(value)}" for name, value in environment.items()),
            "cd /",
            *beside,
            shlex.join(command),
            f'echo "status $?" >{INSIDE}/ctl',
            "",
        ]
        (io / "runner").write_text("\n".join(lines))


def read_journal(directory: Path) -> list[dict[str, Any]]:
    """Return every entry of a run's journal, oldest first."""
    told = subprocess.run(
        ["journalctl", "-D", str(directory / "journal"), "--no-pager", "-q", "-o", "json", "--all"],
        capture_output=True,
        timeout=60,
        check=False,
    )
    return [json.loads(line) for line in told.stdout.splitlines()]


def _bind(source: str | Path, target: str) -> Bind:
    if not Path(source).exists():
        raise HarnessError(f"cannot bind {source}: it is not there")
    return Bind(os.path.realpath(source), target.removesuffix(":rw"), not target.endswith(":rw"))


def _on_host(inputs: Path, name: str, given: str | Path) -> str:
    """Return the path of a file with this content."""
    if isinstance(given, Path):
        if not given.exists():
            raise HarnessError(f"{given} is not there")
        return str(given.resolve())
    path = inputs / name
    path.write_text(given)
    path.chmod(0o755 if given.startswith("#!") else 0o644)
    return str(path)


def _tail(directory: Path) -> str:
    return _said(read_journal(directory))


def _said(journal: list[dict[str, Any]]) -> str:
    """The end of what services said and of what systemd said about them; not the boot and not the shutdown."""
    told = [e for e in journal if e.get("_PID") != "1" or _is_own(e.get("UNIT", ""))]
    return "\n".join(f"{e.get('SYSLOG_IDENTIFIER')}[{e.get('_PID')}]: {e.get('MESSAGE')}" for e in told[-60:])


def _is_own(unit: str) -> bool:
    return unit.endswith(".service") and not unit.startswith(("systemd-", "dbus"))


def _text(data: bytearray) -> str:
    return data.decode("utf-8", "backslashreplace")
