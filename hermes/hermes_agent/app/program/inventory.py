"""The parts of an installation of the program: environment, files of shells and of systemd.

Only the standard library is used, so that a damaged installation can still be described.

The program lives at a fixed path P, such as `~/.local/share/hermes-agent`. An update makes a new environment in
`P.versions/` and then lets P lead there by a symbolic link. The first update exchanges the directory P with that link.
At each moment P is a complete environment; the previous one stays for a rollback.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.system.files import JsonFile, exchange
from hermes_agent.system.installation import (
    NAME,
    PIPX_FILE,
    SHIPPED,
    UV_FILE,
    VERSIONS,
    origin,
    stable_prefix,
    stable_python,
)
from hermes_agent.system.locks import FileLock

ProgramKind = Literal["nix", "editable", "pipx", "uv", "venv", "system"]
"""Who owns the files: Nix; a source tree that is run in place; pipx; uv; an environment of pip; the system's Python."""

ORIGINAL = "original"
"""Name of the environment that was a directory at P before the first update."""
INSTALL_S = 1800.0
"""Time limit for pip, in seconds."""
_SHEBANG = b"#!"

SYSTEM_UNITS = {
    "hermes-agent.service": Path("/etc/systemd/system"),
    "hermes-exec.socket": Path("/etc/systemd/system"),
    "hermes-exec@.service": Path("/etc/systemd/system"),
    "hermes-agent.sysusers.conf": Path("/etc/sysusers.d/hermes-agent.conf"),
    "hermes-agent.tmpfiles.conf": Path("/etc/tmpfiles.d/hermes-agent.conf"),
}
"""Shipped files of the system service, and the folder or the file where docs/operator/service.md puts each."""

SYSTEM_UNIT = Path("/etc/systemd/system/hermes-agent.service")
"""The unit of the system service."""


@lazy_dataclass(frozen=True)
class InstalledProgram:
    """The installation that runs this process."""

    kind: ProgramKind
    prefix: Path
    """Its Python environment, by a path that an update keeps."""
    source: Path | None
    """The tree or the wheel that it was installed from, if that is a path of this machine."""
    python: Path
    """Its interpreter, by such a path."""

    @property
    def script(self) -> Path:
        """The program `hermes` of the environment."""
        return self.python.with_name("hermes")

    @property
    def reinstall(self) -> str:
        """The command that installs the same files again; "" if the source is unknown or it is Nix's."""
        if self.kind == "pipx":
            return f"pipx reinstall {NAME}"
        if self.kind == "uv":
            return f"uv tool upgrade --reinstall {NAME}"
        if self.source is None or self.kind == "nix":
            return ""
        own = ["--editable"] if self.kind == "editable" else ["--force-reinstall", "--no-deps"]
        return shlex.join([str(self.python), "-m", "pip", "install", *own, str(self.source)])


def describe_installation() -> InstalledProgram:
    """Return the installation of this process."""
    recorded = origin()
    parts = urlsplit(str(recorded.get("url") or ""))
    path = Path(unquote(parts.path)) if parts.scheme == "file" else None
    directory = recorded.get("dir_info")
    is_editable = isinstance(directory, Mapping) and bool(directory.get("editable"))
    return InstalledProgram(_kind(is_editable=is_editable), stable_prefix(), path, stable_python())


def _kind(*, is_editable: bool) -> ProgramKind:
    prefix = Path(sys.prefix)
    if sys.prefix.startswith("/nix/store/"):
        return "nix"
    if is_editable or not _has_metadata():
        return "editable"
    if (prefix / PIPX_FILE).is_file():
        return "pipx"
    if (prefix / UV_FILE).is_file():
        return "uv"
    return "venv" if sys.prefix != sys.base_prefix else "system"


def _has_metadata() -> bool:
    from importlib import metadata  # takes 20 ms of a start

    try:
        metadata.distribution(NAME)
    except metadata.PackageNotFoundError:
        return False
    return True


def data_home(environ: Mapping[str, str]) -> Path:
    """Return the folder for data of this user."""
    return Path(environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")


def config_home(environ: Mapping[str, str]) -> Path:
    """Return the folder for settings of this user."""
    return Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")


def shell_files(environ: Mapping[str, str]) -> dict[str, tuple[Path, ...]]:
    """Return where `make install` and `hermes completion install` put the completion of each shell."""
    data, config = data_home(environ), config_home(environ)
    return {
        "bash": (data / "bash-completion" / "completions" / "hermes",),
        "zsh": (data / "zsh" / "site-functions" / "_hermes", data / "hermes" / "completion.zsh"),
        "fish": (config / "fish" / "completions" / "hermes.fish",),
    }


def man_folder(environ: Mapping[str, str]) -> Path:
    """Return where `hermes completion install` puts man pages."""
    return data_home(environ) / "man" / "man1"


def is_own_file(path: Path) -> bool:
    """Return whether a completion script or man page was written by this program."""
    try:
        return "hermes" in path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def system_unit_files() -> list[tuple[Path, Path]]:
    """Return the shipped and the installed file for each installed unit of the system service."""
    found = []
    for name, place in SYSTEM_UNITS.items():
        target = place if place.suffix == ".conf" else place / name
        if target.exists():
            found.append((SHIPPED / "systemd" / name, target))
    return found


def linked_scripts() -> list[Path]:
    """Return the links to the program in folders of the PATH, such as `~/.local/bin/hermes`."""
    own = stable_python().with_name("hermes")
    named = [os.environ.get("HERMES_BIN", ""), str(Path.home() / ".local" / "bin")]  # the first: of `make install`
    folders = dict.fromkeys([*os.environ.get("PATH", "").split(os.pathsep), *named])
    found = []
    for folder in filter(None, folders):
        path = Path(folder) / "hermes"
        if path.is_symlink() and path.readlink() == own:
            found.append(path)
    return found


class ProgramEnvironments:
    """The environments of one installation.

    Args:
        prefix: path P of the current environment.
    """

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        self.folder = prefix.with_name(f"{prefix.name}{VERSIONS}")
        self.record = JsonFile(self.folder / "versions.json", mode=0o644)

    def lock(self) -> FileLock:
        """Return the lock that one update at a time holds."""
        self.folder.mkdir(exist_ok=True)
        return FileLock(self.folder / ".lock", timeout_s=0, subject="the update of the program", mode=0o644)

    def current(self) -> Path:
        """Return the directory that P leads to."""
        return self.prefix.resolve()

    def previous(self) -> Path | None:
        """Return the environment before the last switch, or None."""
        name = str(self.record.read().get("previous") or "")
        path = self.folder / name
        return path if name and path.is_dir() and not path.is_symlink() and path != self.current() else None

    def remove_others(self) -> None:
        """Remove environments that are neither the current nor the previous one, such as unfinished ones."""
        kept = {self.current(), self.previous()}
        for path in self.folder.iterdir():
            if path.is_symlink():
                path.unlink()
            elif path.is_dir() and path not in kept:
                shutil.rmtree(path)

    def create(self, name: str) -> Path:
        """Make an environment with the packages, scripts and data of the current one; return its directory.

        Raises:
            UserError: it cannot be made.
        """
        new, old = self.folder / name, self.current()
        configured = (old / "pyvenv.cfg").read_text(encoding="utf-8")
        options = ["--system-site-packages"] if "include-system-site-packages = true" in configured else []
        base = getattr(sys, "_base_executable", sys.executable)
        run_step([base, "-m", "venv", "--without-pip", *options, str(new)], "a new environment cannot be made")
        try:
            for site in dict.fromkeys(sysconfig.get_path(key) for key in ("purelib", "platlib")):
                relative = Path(site).resolve().relative_to(old)
                shutil.copytree(old / relative, new / relative, symlinks=True, dirs_exist_ok=True)
            for data in ("share", "etc"):
                if (old / data).is_dir():
                    shutil.copytree(old / data, new / data, symlinks=True, dirs_exist_ok=True)
            self._copy_scripts(old, new)
        except (OSError, shutil.Error) as exc:
            raise UserError(f"the environment cannot be copied to {new}: {exc}", hint="Nothing has changed.") from exc
        return new

    def _copy_scripts(self, old: Path, new: Path) -> None:
        """Copy the programs of installed packages; their first line names the new interpreter."""
        for script in (old / "bin").iterdir():
            target = new / "bin" / script.name
            if target.exists() or target.is_symlink() or script.is_symlink() or not script.is_file():
                continue
            content = script.read_bytes()
            line, newline, rest = content.partition(b"\n")
            if line.startswith(_SHEBANG):
                for place in (old, self.prefix):
                    line = line.replace(os.fsencode(f"{place}/bin/"), os.fsencode(f"{new}/bin/"))
                content = line + newline + rest
            target.write_bytes(content)
            shutil.copymode(script, target)

    def switch(self, to: Path) -> None:
        """Let P lead to an environment, in one step.

        Raises:
            UserError: the file system cannot exchange two names.
        """
        link = self.folder / ORIGINAL
        try:
            if to == link:  # the first environment comes back as a directory
                exchange(self.prefix, link)
                link.unlink()
            elif self.prefix.is_symlink():
                fresh = self.folder / f"{to.name}.link"
                fresh.unlink(missing_ok=True)
                fresh.symlink_to(self._target(to))
                fresh.replace(self.prefix)
            else:
                link.unlink(missing_ok=True)
                link.symlink_to(self._target(to))
                exchange(self.prefix, link)
        except OSError as exc:
            raise UserError(
                f"{self.prefix} cannot be switched to {to.name}: {exc.strerror or exc}",
                hint="Nothing has changed. Install the new version by hand (README.md, Install).",
            ) from exc

    def _target(self, to: Path) -> str:
        return f"{self.folder.name}/{to.name}"

    def name_of_current(self) -> str:
        """Return the name that the current environment has, or will have, in the folder of versions."""
        current = self.current()
        return current.name if current.parent == self.folder else ORIGINAL


def install_into(environment: Path, target: str) -> None:
    """Install the program into an environment that nothing uses yet.

    Args:
        target: a requirement of pip: a tree or a wheel, with extras.

    Raises:
        UserError: pip is missing, or fails.
    """
    pip = [str(environment / "bin" / "python"), "-m", "pip"]
    hint = f"`{sys.executable} -m ensurepip` adds pip to the environment."
    run_step([*pip, "--version"], "the environment has no pip", hint=hint)
    quiet = ["--quiet", "--disable-pip-version-check"]
    run_step([*pip, "uninstall", *quiet, "--yes", NAME], "the copy of the present version cannot be removed")
    run_step([*pip, "install", *quiet, target], "the new version cannot be installed")


def run_step(command: Sequence[str], problem: str, *, hint: str = "Nothing has changed.") -> str:
    """Run a program of an update and return its output.

    Raises:
        UserError: it fails; the message has the end of its output.
    """
    try:
        done = subprocess.run(
            list(command), capture_output=True, text=True, timeout=INSTALL_S, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise UserError(f"{problem}: {exc}", hint=hint) from exc
    if done.returncode != 0:
        said = "\n".join((done.stderr or done.stdout).strip().splitlines()[-8:])
        raise UserError(
            f"{problem}: `{' '.join(command[:4])} …` ended with status {done.returncode}\n{said}", hint=hint
        )
    return done.stdout
