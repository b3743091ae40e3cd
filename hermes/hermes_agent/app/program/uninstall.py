"""`hermes uninstall`: remove the program, list what stays, and export a home before it is deleted."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import sqlite3
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from pathlib import Path

from hermes_agent.app.cli.command import activity
from hermes_agent.app.program.inventory import (
    SYSTEM_UNIT,
    InstalledProgram,
    data_home,
    is_own_file,
    linked_scripts,
    man_folder,
    shell_files,
    system_unit_files,
)
from hermes_agent.app.setup.user_unit import remove_unit, unit_path
from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.service.daemon_state import lock_holder
from hermes_agent.system.installation import NAME, VERSIONS

STOP_S = 120.0
"""Time limit for the daemon to stop, in seconds."""
_DATABASE = "state.db"
_WITH_DATABASE = (f"{_DATABASE}-wal", f"{_DATABASE}-shm")


@lazy_dataclass
class RemovalPlan:
    """What an uninstallation removes and what it leaves."""

    program: InstalledProgram
    home: Path
    files: list[Path] = field(default_factory=list)
    """Completion, man pages, and links to the program."""
    folders: list[Path] = field(default_factory=list)
    """Environments that this program has for itself."""
    command: list[str] = field(default_factory=list)
    """Command that removes the program, where another tool or a shared environment has it."""
    unit: Path | None = None
    """The user unit."""
    daemon: int | None = None
    """Process id of the daemon of the home, 0 if it is unknown."""
    left: list[str] = field(default_factory=list)
    """What stays, with how to remove it."""


def make_plan(program: InstalledProgram, home: Path, environ: Mapping[str, str], *, purges: bool) -> RemovalPlan:
    """Return what an uninstallation would do.

    Raises:
        UserError: Nix installed the program.
    """
    if program.kind == "nix":
        raise UserError(
            "Nix installs this program",
            hint="Remove `services.hermes-agent` or the package from the configuration, and switch to it.",
        )
    plan = RemovalPlan(program, home, unit=unit_path() if unit_path().exists() else None)
    plan.daemon = lock_holder(home) if home.is_dir() else None
    shells = [path for places in shell_files(environ).values() for path in places if path.exists()]
    pages = sorted(man_folder(environ).glob("hermes*.1"))
    plan.files = [path for path in (*shells, *pages) if is_own_file(path)] + linked_scripts()
    if program.kind == "venv" and program.prefix == data_home(environ) / NAME:
        versions = program.prefix.with_name(f"{program.prefix.name}{VERSIONS}")
        plan.folders = [path for path in (versions, program.prefix) if path.exists() or path.is_symlink()]
    elif program.kind == "pipx":
        plan.command = ["pipx", "uninstall", NAME]
    elif program.kind == "uv":
        plan.command = ["uv", "tool", "uninstall", NAME]
    else:
        plan.command = [str(program.python), "-m", "pip", "uninstall", "--yes", NAME]
    plan.left = list(_what_stays(plan, environ, purges=purges))
    return plan


def _what_stays(plan: RemovalPlan, environ: Mapping[str, str], *, purges: bool) -> Iterator[str]:
    if plan.home.is_dir() and not purges:
        yield f"{plan.home}: settings, sessions, plugins and keys; remove it by hand, or with --purge, which exports it"
    cache = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hermes"
    if cache.is_dir():
        yield f"{cache}: downloaded models; rm -r {shlex.quote(str(cache))}"
    state = Path(environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "hermes"
    if state.is_dir():
        yield f"{state}: the key of your sessions with the daemon of this machine"
    if units := [installed for _, installed in system_unit_files()]:
        stop = f"systemctl disable --now {SYSTEM_UNIT.name}; " if SYSTEM_UNIT in units else ""
        yield f"the system service: as root, {stop}rm {shlex.join(map(str, units))}"
    if plan.program.source is not None and plan.program.source.is_dir():
        yield f"{plan.program.source}: the source tree that it was installed from"


def plan_lines(plan: RemovalPlan, archive: Path | None) -> Iterator[str]:
    """Yield a line for each thing that is done, in order."""
    if plan.unit is not None:
        yield f"stop and disable the service, and remove {plan.unit}"
    elif plan.daemon is not None:
        yield f"stop the daemon{f' (pid {plan.daemon})' if plan.daemon else ''}"
    if archive is not None:
        yield f"export {plan.home} to {archive}, and then remove it"
    yield from (f"remove {path}" for path in [*plan.files, *plan.folders])
    if plan.command:
        yield f"run {shlex.join(plan.command)}"
    yield from (f"leave {line}" for line in plan.left)


def carry_out(plan: RemovalPlan, archive: Path | None, say: Callable[[str], None]) -> int:
    """Remove everything of the plan; return the exit status.

    Raises:
        UserError: the daemon does not stop, or the export fails; then nothing is removed.
    """
    if plan.unit is not None:
        remove_unit()
        say(f"removed {plan.unit}, and stopped its service")
    if lock_holder(plan.home) is not None:
        with activity("waiting for the daemon to end"):
            _stop_daemon(plan)
        say("stopped the daemon")
    if archive is not None:
        with activity(f"exporting {plan.home}"):
            count = export_home(plan.home, archive)
        say(f"exported {count} files of {plan.home} to {archive} (with keys: keep it private)")
        say(f"to bring it back: tar -xzf {shlex.quote(str(archive))} -C {shlex.quote(str(plan.home.parent))}")
    for path in plan.files:
        path.unlink(missing_ok=True)
        say(f"removed {path}")
    if archive is not None:
        shutil.rmtree(plan.home)
        say(f"removed {plan.home}")
    for line in plan.left:
        say(f"left {line}")
    for folder in plan.folders:  # at last: this process runs from there
        if folder.is_symlink():
            folder.unlink()
        else:
            shutil.rmtree(folder)
        say(f"removed {folder}")
    if plan.command:
        say(f"running {shlex.join(plan.command)}")
        return subprocess.run(plan.command, check=False).returncode
    return 0


def _stop_daemon(plan: RemovalPlan) -> None:
    environ = os.environ | {"HERMES_HOME": str(plan.home)}
    command = [str(plan.program.script), "gateway", "stop"]
    try:
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=STOP_S, check=False)
        problem = done.stderr.strip() if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as exc:
        problem = str(exc)
    if problem or lock_holder(plan.home) is not None:
        raise UserError(f"the daemon does not stop: {problem}", hint="Nothing is removed. `hermes gateway status`")


def export_home(home: Path, archive: Path) -> int:
    """Write a home to a compressed archive, read it again, and return the number of its files.

    Links stay links. The database is copied with everything that its log holds. Sockets and pipes are left out.

    Raises:
        UserError: a file cannot be read, the archive cannot be written, or it differs from the home.
    """
    hint = "Nothing is removed. `--export FILE` names another place."
    unfinished = archive.with_name(f".{archive.name}.part")
    try:
        with tempfile.TemporaryDirectory(prefix="hermes-export-") as place:
            content = _content(home, Path(place))
            handle = os.open(unfinished, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as made:
                for name, source in content.items():
                    made.add(source, f"{home.name}/{name}" if name else home.name, recursive=False)
            _compare(unfinished, home.name, content)
        unfinished.rename(archive)
    except (OSError, sqlite3.Error, tarfile.TarError, EOFError) as exc:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise UserError(f"{home} cannot be exported to {archive}: {exc}", hint=hint) from exc
    return sum(path.is_file() and not path.is_symlink() for path in content.values())


def _content(home: Path, place: Path) -> dict[str, Path]:
    """Return the path to archive for each name of a home; the database is a copy in `place`."""
    content: dict[str, Path] = {"": home}
    for folder, folders, files in os.walk(home):
        for name in sorted([*folders, *files]):
            path = Path(folder, name)
            relative = str(path.relative_to(home))
            mode = path.lstat().st_mode
            if name in _WITH_DATABASE or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
                continue
            content[relative] = path
            if name == _DATABASE and stat.S_ISREG(mode):
                content[relative] = _copy_database(path, place / f"{len(content)}.db")
    return content


def _copy_database(path: Path, copy: Path) -> Path:
    with contextlib.closing(sqlite3.connect(path)) as source, contextlib.closing(sqlite3.connect(copy)) as target:
        source.backup(target)
        target.execute("PRAGMA journal_mode = DELETE")
    copy.chmod(0o600)
    return copy


def _compare(archive: Path, root: str, content: Mapping[str, Path]) -> None:
    """Check that an archive has each name, and each file with its content.

    Raises:
        OSError: it does not.
    """
    found = set()
    with tarfile.open(archive, "r:gz") as made:
        for member in made:
            name = member.name.removeprefix(root).lstrip("/")
            found.add(name)
            file = made.extractfile(member) if member.isreg() else None
            if file is not None and _digest(file.read()) != _digest(content[name].read_bytes()):
                raise OSError(f"{name} changed while it was exported")
    if lacking := content.keys() - found:
        raise OSError(f"the archive has no {sorted(lacking)[0]}")


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
