"""Plugins that are Python packages: looked at as a wheel first, then installed by the interpreter's own pip."""

from __future__ import annotations

import configparser
import hashlib
import os
import sys
import threading
import zipfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from hermes_agent.core.errors import UserError
from hermes_agent.io.environment import tool_environment
from hermes_agent.io.processes import run
from hermes_agent.plugins.discovery import entry_point_key
from hermes_agent.plugins.entry_points import GROUP, GROUPS

__all__ = ["PluginWheel", "build_wheel", "install_wheel", "uninstall"]

LIMIT_S = 900.0
OUTPUT_BYTES = 64 * 1024
AGENT = "hermes-agent"
OutputListener = Callable[[bytes], None]


class PluginWheel(NamedTuple):
    """A built package that brings plugins."""

    file: Path
    name: str
    version: str
    plugins: dict[str, str]
    """Entry points of the groups: value by the key of the plugin."""
    sha256: str


def build_wheel(requirement: str, place: Path, tell: OutputListener | None = None) -> PluginWheel:
    """Fetch or build the wheel of a requirement, a folder, an sdist or a wheel, without its dependencies.

    Raises:
        UserError: pip cannot; or the package brings no plugin.
    """
    wheels = place / "wheels"
    wheels.mkdir()
    _pip("wheel", "--no-deps", "--wheel-dir", str(wheels), "--", requirement, what=requirement, tell=tell)
    built = sorted(wheels.glob("*.whl"))
    if len(built) != 1:
        raise UserError(f"{requirement}: pip gave {len(built)} wheels where one was expected")
    wheel = _read(built[0])
    if not wheel.plugins:
        raise UserError(
            f"{wheel.name} {wheel.version} brings no plugin: it has no entry point in the group {GROUP}",
            hint="Is it a directory plugin? Then name its repository or folder.",
        )
    return wheel


def install_wheel(wheel: PluginWheel, place: Path, tell: OutputListener | None = None) -> None:
    """Install the wheel and what it requires; nothing that is installed already changes its version.

    Raises:
        UserError: pip cannot; its own words are in the message.
    """
    constraints = place / "constraints.txt"
    constraints.write_text("".join(f"{line}\n" for line in _installed(besides=wheel.name)), encoding="utf-8")
    _pip("install", "--constraint", str(constraints), "--", str(wheel.file), what=wheel.name, tell=tell)


def uninstall(distribution: str) -> None:
    """Remove a package that `install_wheel` brought; what it required stays.

    Raises:
        UserError: pip cannot.
    """
    _pip("uninstall", "--yes", "--", distribution, what=distribution, tell=None)


def _pip(command: str, *arguments: str, what: str, tell: OutputListener | None) -> None:
    environ = {k: v for k, v in os.environ.items() if k.startswith("PIP_")}  # the person's own settings of pip
    done = run(
        [sys.executable, "-m", "pip", command, "--no-input", "--disable-pip-version-check", *arguments],
        cwd=Path.cwd(),
        env={**tool_environment(os.environ), **environ},
        timeout_s=LIMIT_S,
        output_limit_bytes=OUTPUT_BYTES,
        cancelled=threading.Event(),
        on_output=tell,
    )
    if done.exit_code == 0:
        return
    text = done.output.decode("utf-8", "replace")
    if "No module named pip" in text:
        raise UserError(f"{sys.executable} has no pip", hint=f"Install {what} with what installed hermes-agent.")
    raise UserError(f"pip {command} {what} failed: {_last_line(text) or done.exit_code}")


def _last_line(text: str) -> str:
    """Return what pip said about its failure, in one line."""
    lines = [line.strip() for line in text.splitlines()]
    told = [line for line in lines if line and "note: This" not in line and "://" not in line]
    return " ".join("".join(c if c.isprintable() else " " for c in line) for line in told[-8:])[-1000:]


def _installed(*, besides: str) -> list[str]:
    """Return `name==version` of every installed package, so that an install cannot change the agent's own."""
    found: dict[str, str] = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name and name.lower() not in (AGENT, besides.lower()):
            found.setdefault(name.lower(), f"{name}=={distribution.version}")
    return sorted(found.values())


def _read(file: Path) -> PluginWheel:
    name, version = file.name.split("-")[:2]
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        with zipfile.ZipFile(file) as opened:
            for member in opened.namelist():
                if member.endswith(".dist-info/entry_points.txt"):
                    parser.read_string(opened.read(member).decode("utf-8"))
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
    except (OSError, zipfile.BadZipFile, configparser.Error, UnicodeDecodeError) as exc:
        raise UserError(f"{file.name} is no wheel that can be read: {exc}") from exc
    plugins = {
        entry_point_key(group, name): value
        for group in GROUPS
        if parser.has_section(group)
        for name, value in parser[group].items()
    }
    return PluginWheel(file, name.replace("_", "-"), version, plugins, digest)
