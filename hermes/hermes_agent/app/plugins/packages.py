"""Plugins that are Python packages, installed and updated with pip; and `hermes plugins index`.

A package is first built or fetched as a wheel, so that its entry points are known before it is installed into the
interpreter's environment. `hermes plugins index` and the Nix build write `plugins.json`: the result of discovery,
which makes the next start faster.
"""

from __future__ import annotations

import argparse
import configparser
import hashlib
import importlib
import json
import os
import sys
import threading
import zipfile
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from hermes_agent.app.cli.command import activity
from hermes_agent.app.manifest_cache import quiet_or_debug
from hermes_agent.app.plugins.consent import ask_for_capabilities, declared_changes
from hermes_agent.app.plugins.doctor import pip_refusal
from hermes_agent.app.plugins.enable import offer_to_enable
from hermes_agent.app.plugins.home import InstalledPlugins
from hermes_agent.app.plugins.sources import PluginSource
from hermes_agent.app.plugins.staged_plugin import fetch, preview_registrations
from hermes_agent.app.plugins.terminal_io import confirmed, printable, progress_printer, registers_lines, table
from hermes_agent.core.errors import EXIT_OK, UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.plugins.discovery import (
    BUNDLED,
    DECLARED,
    ENTRYPOINT,
    Discovery,
    RejectedPlugin,
    entry_point_key,
    index_roots,
    scan_sources,
)
from hermes_agent.plugins.entry_points import (
    FORMAT,
    GROUP,
    GROUPS,
    VARIABLE,
    entry_point_files,
    file_stat,
    find_entry_points,
    program_identity,
)
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.system.processes import run, tool_environment

LIMIT_S = 900.0
OUTPUT_BYTES = 64 * 1024
AGENT = "hermes-agent"
OutputListener = Callable[[bytes], None]


class PluginWheel(LazyNamedTuple):
    """A built package with entry points of plugins."""

    file: Path
    name: str
    version: str
    plugins: dict[str, str]
    """Values of its entry points by plugin key."""
    sha256: str


def build_wheel(requirement: str, place: Path, tell: OutputListener | None = None) -> PluginWheel:
    """Fetch or build the wheel of a requirement, folder, sdist or wheel file, without its dependencies.

    Args:
        place: staging folder; the wheel is written to `wheels` in it.
        tell: receives the output of pip.

    Raises:
        UserError: pip fails, or the package has no plugin.
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
            f"{wheel.name} {wheel.version} contains no plugin: it has no entry point in the group {GROUP}",
            hint="Is it a directory plugin? Then name its repository or folder.",
        )
    return wheel


def install_wheel(wheel: PluginWheel, place: Path, tell: OutputListener | None = None) -> None:
    """Install a wheel and its dependencies; packages that are already installed keep their versions.

    Raises:
        UserError: pip fails; the message has the end of its output.
    """
    constraints = place / "constraints.txt"
    constraints.write_text("".join(f"{line}\n" for line in _installed(besides=wheel.name)), encoding="utf-8")
    _pip("install", "--constraint", str(constraints), "--", str(wheel.file), what=wheel.name, tell=tell)


def uninstall(distribution: str) -> None:
    """Uninstall a package; its dependencies stay installed.

    Raises:
        UserError: pip fails.
    """
    _pip("uninstall", "--yes", "--", distribution, what=distribution, tell=None)


def _pip(command: str, *arguments: str, what: str, tell: OutputListener | None) -> None:
    environ = {k: v for k, v in os.environ.items() if k.startswith("PIP_")}  # the user's settings of pip
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
    """Return the end of pip's output in one line, without notes and links."""
    lines = [line.strip() for line in text.splitlines()]
    useful = [line for line in lines if line and "note: This" not in line and "://" not in line]
    return " ".join("".join(c if c.isprintable() else " " for c in line) for line in useful[-8:])[-1000:]


def _installed(*, besides: str) -> list[str]:
    """Return `name==version` of all installed packages, as constraints that keep their versions."""
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


def install_package(
    here: InstalledPlugins, requirement: str, source: PluginSource, place: Path, args: argparse.Namespace
) -> int:
    """Install a package with plugins, and offer to enable each of them.

    Raises:
        UserError: pip must not install packages here, pip fails, or the name of a plugin is taken.
    """
    refusal = pip_refusal(here.home)
    if refusal is not None:
        raise UserError(f"{source.label} is a Python package, and none is installed here: {refusal}")
    wheel = build_wheel(requirement, place, progress_printer())
    _refuse_collision(here, wheel, force=args.force)
    install_wheel(wheel, place, progress_printer())
    print(f"Installed {wheel.name} {wheel.version}.")
    after = InstalledPlugins()
    for name in wheel.plugins:
        seen = preview_registrations(name, directory=None)
        print(name)
        print("\n".join(table([("from", f"{wheel.name} {wheel.version}"), *registers_lines(seen.registers)])))
        for problem in seen.problems:
            print(f"  ! {printable(problem)}")
        _record(after, name, wheel, source)
        offer_to_enable(name, args)
    return EXIT_OK


def update_package(
    here: InstalledPlugins, manifest: PluginManifest, source: PluginSource, place: Path, args: argparse.Namespace
) -> bool:
    """Fetch or build the package again, and install it if its version differs.

    Return False if the user did not agree or cannot be asked.

    Raises:
        UserError: pip must not install packages here, pip fails, or the new version lacks the plugin.
    """
    refusal = pip_refusal(here.home)
    if refusal is not None:
        raise UserError(f"{manifest.key} is a Python package, and none is installed here: {refusal}")
    requirement = source.location
    if source.kind != "pip":
        requirement = str(fetch(source, place, progress_printer())[0])
    wheel = build_wheel(requirement, place, progress_printer())
    if manifest.key not in wheel.plugins:
        raise UserError(
            f"{wheel.name} {wheel.version} no longer contains the plugin `{manifest.key}`; the old one stays"
        )
    old = manifest.distribution.partition(" ")[2]
    if wheel.version == old:
        print(f"{manifest.key} {old} is up to date.")
        return True
    print(f"{manifest.key}: {old} -> {wheel.version}")
    unasked = f"`hermes plugins update {manifest.key} --yes` does it"
    if not confirmed(f"Update {wheel.name}?", "updated", unasked, yes=args.yes, default=True):
        return False
    install_wheel(wheel, place, progress_printer())
    _record(InstalledPlugins(), manifest.key, wheel, source)
    print(f"{manifest.key} is updated; a running daemon keeps the old one until its next start.")
    importlib.invalidate_caches()
    after = InstalledPlugins()
    fresh = after.find(manifest.key)
    for line in declared_changes(manifest, fresh, after.settings.entry(fresh)):
        print(line)
    ask_for_capabilities(after, fresh)
    return True


def _refuse_collision(here: InstalledPlugins, wheel: PluginWheel, *, force: bool) -> None:
    for name in wheel.plugins:
        present = here.found.plugins.get(name)
        if present is None or present.source == BUNDLED:
            continue
        if present.source == ENTRYPOINT and _same(present.distribution.partition(" ")[0], wheel.name):
            if not force:
                raise UserError(
                    f"`{name}` is installed already, by {present.distribution}",
                    hint=f"`hermes plugins update {name}` renews it; --force replaces it.",
                )
            continue
        where = present.distribution or present.path
        raise UserError(
            f"`{name}` is already the {present.source} plugin {where}; {wheel.name} {wheel.version} contains another",
            hint=f"Remove one of them: `hermes plugins remove {name}`.",
        )


def _same(one: str, other: str) -> bool:
    return one.replace("_", "-").replace(".", "-").lower() == other.replace("_", "-").replace(".", "-").lower()


def _record(here: InstalledPlugins, name: str, wheel: PluginWheel, source: PluginSource) -> None:
    manifest = here.find(name)
    origin: dict[str, Any] = {
        **source.as_origin(),
        "distribution": wheel.name,
        "version": wheel.version,
        "sha256": wheel.sha256,
        "installed_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    here.trust.note_origin(manifest, origin)
    here.trust.save()


MAX_FILES = 5_000
"""Largest number of files of a plugin with a hash; a plugin with more files has none."""


class _RecordedDiscovery(Discovery):
    """A discovery that records the plugins that it finds, in order, and the paths that it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, Any]] = []
        self.seen: list[str] = []

    def add_dependency(self, path: str) -> None:
        self.seen.append(path)

    def add(self, manifest: PluginManifest) -> None:
        self.found.append({"source": manifest.source, "manifest": manifest._asdict(), "hash": _hash(manifest.path)})
        self.seen += [manifest.path, os.path.join(manifest.path, "__init__.py")]  # noqa: PTH118

    def reject(self, rejected: RejectedPlugin) -> None:
        entry = {"source": rejected.source, "name": rejected.name, "path": rejected.path, "reason": rejected.reason}
        self.found.append(entry)


def index_document(environ: Mapping[str, str], path: Sequence[str] | None = None) -> dict[str, Any]:
    """Scan bundled and declared directories and installed packages; return the content of `plugins.json`.

    Args:
        path: import path on which packages are searched; None means `sys.path`.
    """
    places = list(sys.path if path is None else path)
    recorder = _RecordedDiscovery()
    scan_sources(recorder, environ, (BUNDLED, DECLARED))
    return {
        "index": FORMAT,
        "program": program_identity(),
        "roots": [list(root) for root in index_roots(environ)],
        "seen": {each: file_stat(each) for each in sorted(set(recorder.seen))},
        "found": recorder.found,
        "search_path": [[place, file_stat(place or ".")] for place in places],
        "entry_points": [list(point) for point in find_entry_points(places)],
        "entry_point_files": {file: file_stat(file) for file in entry_point_files(places)},
    }


def write_index(document: Mapping[str, Any], file: Path) -> None:
    """Write the index to a file atomically.

    Raises:
        OSError: the file cannot be written.
    """
    from hermes_agent.system.files import write_atomic

    write_atomic(file, json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n", mode=0o644)


def _hash(directory: str) -> str:
    """Return a hash of names and contents of a plugin's files, or "" if there are more than `MAX_FILES`."""
    digest, count = hashlib.sha256(), 0
    for folder, folders, files in os.walk(directory):
        folders[:] = sorted(f for f in folders if f not in ("__pycache__", ".git"))
        for name in sorted(files):
            place = os.path.join(folder, name)  # noqa: PTH118
            count += 1
            if count > MAX_FILES:
                return ""
            digest.update(f"{os.path.relpath(place, directory)}\0".encode("utf-8", "surrogateescape"))
            try:
                with open(place, "rb") as handle:  # noqa: PTH123
                    digest.update(hashlib.file_digest(handle, "sha256").digest())
            except OSError:  # a dangling link, for example
                digest.update(b"-")
    return f"sha256:{digest.hexdigest()}"


def run_index(args: argparse.Namespace) -> int:
    """Print the index of plugins, or write it to a file."""
    quiet_or_debug(os.environ)
    with activity("reading the plugins"):
        document = index_document(os.environ)
    if not args.output:
        print(json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False))
        return EXIT_OK
    file = Path(args.output)
    try:
        write_index(document, file)
    except OSError as exc:
        raise UserError(f"cannot write {file}: {exc.strerror}") from exc
    usable = sum("manifest" in each for each in document["found"])
    packages = len(document["entry_points"])
    print(
        f"{file}: {usable} plugin folder(s), {packages} package(s). A start uses it with {VARIABLE}={file.absolute()}"
    )
    return EXIT_OK
