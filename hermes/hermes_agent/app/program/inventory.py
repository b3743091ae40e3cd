"""The parts of an installation of the program: environment, files of shells and of systemd.

Only the standard library is used, so that a damaged installation can still be described.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from hermes_agent.system.installation import NAME, SHIPPED, origin, stable_prefix, stable_python

ProgramKind = Literal["nix", "editable", "pipx", "uv", "venv", "system"]
"""Who owns the files: Nix; a source tree that is run in place; pipx; uv; an environment of pip; the system's Python."""

SYSTEM_UNITS = {
    "hermes-agent.service": Path("/etc/systemd/system"),
    "hermes-exec.socket": Path("/etc/systemd/system"),
    "hermes-exec@.service": Path("/etc/systemd/system"),
    "hermes-agent.sysusers.conf": Path("/etc/sysusers.d/hermes-agent.conf"),
    "hermes-agent.tmpfiles.conf": Path("/etc/tmpfiles.d/hermes-agent.conf"),
}
"""Shipped files of the system service, and the folder or the file where docs/operator/service.md puts each."""


@dataclass(frozen=True)
class InstalledProgram:
    """The installation that runs this process."""

    kind: ProgramKind
    prefix: Path
    """Its Python environment, by a path that an update keeps."""
    source: Path | None
    """The tree or the wheel that it was installed from, if that is a path of this machine."""

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return stable_python()

    @property
    def script(self) -> Path:
        """The program `hermes` of the environment."""
        return stable_python().with_name("hermes")

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
    return InstalledProgram(_kind(is_editable=is_editable), stable_prefix(), path)


def _kind(*, is_editable: bool) -> ProgramKind:
    prefix = Path(sys.prefix)
    if sys.prefix.startswith("/nix/store/"):
        return "nix"
    if is_editable or not _has_metadata():
        return "editable"
    if (prefix / "pipx_metadata.json").is_file():
        return "pipx"
    if (prefix / "uv-receipt.toml").is_file():
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
    folders = dict.fromkeys([*os.environ.get("PATH", "").split(os.pathsep), str(Path.home() / ".local" / "bin")])
    found = []
    for folder in filter(None, folders):
        path = Path(folder) / "hermes"
        if path.is_symlink() and path.readlink() == own:
            found.append(path)
    return found
