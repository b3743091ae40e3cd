"""`hermes self check`: compare what is installed with what it should be.

It works without the packages that the program depends on, since a missing one is a finding.
"""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path

import hermes_agent
from hermes_agent import __version__
from hermes_agent.app.cli.command import Diagnosis, Level
from hermes_agent.app.cli.completion import completion_script, man_pages
from hermes_agent.app.program.inventory import (
    InstalledProgram,
    man_folder,
    shell_files,
    system_unit_files,
)
from hermes_agent.app.setup.user_unit import home_of_unit, unit_path, unit_text
from hermes_agent.plugins.closure import requirement, satisfies
from hermes_agent.system.installation import NAME, SHIPPED, extras, install_hint

MAX_NAMED = 5
"""Files named in one finding; the others are counted."""
_GIT_S = 20.0

OF_EACH_KIND = {
    "nix": "in the Nix store",
    "editable": "run from a source tree",
    "pipx": "installed by pipx",
    "uv": "installed by uv",
    "venv": "in an environment of its own",
    "system": "in the system's Python",
}


_STARTS = re.compile(rb"^from hermes_agent\.\S+ import main$", re.MULTILINE)
"""The line of a launcher that imports this program."""


def run_self_check(program: InstalledProgram, environ: Mapping[str, str]) -> Iterator[Diagnosis]:
    """Yield a finding for each part of the installation."""
    version = f"hermes-agent {__version__}, {OF_EACH_KIND[program.kind]}: {program.prefix}"
    yield Diagnosis("ok", "program", f"{version} (Python {platform.python_version()})")
    if program.kind == "nix":
        text = "the Nix store guarantees files and versions; it is read-only, and each path is the hash of its inputs"
        yield Diagnosis("ok", "files", text, "`nix-store --verify-path` compares a path with its hash.")
    else:
        yield from _check_files(program)
        yield from _check_dependencies(program)
    yield from _check_extras()
    yield from _check_entry(program, environ)
    if program.kind != "nix":
        yield from _check_shells(environ)
    yield from _check_user_unit()
    yield from _check_system_units()


# --- files ---------------------------------------------------------------------------------------------------


def _is_launcher_of_pipx(program: InstalledProgram, path: Path, data: bytes) -> bool:
    """Return whether a file is `hermes`, of which pipx writes the first line again."""
    return program.kind == "pipx" and path == program.script.resolve() and _STARTS.search(data) is not None


def _check_files(program: InstalledProgram) -> Iterator[Diagnosis]:
    """Compare each file with its hash in RECORD, and look for files that RECORD does not have."""
    package = Path(hermes_agent.__file__).resolve().parent
    try:
        distribution = metadata.distribution(NAME)
    except metadata.PackageNotFoundError:
        text = f"{package} runs without being installed: versions and extras cannot be compared"
        yield Diagnosis("note", "files", text, "`make install` in the source tree installs it.")
        return
    missing, changed, known = [], [], set()
    for file in distribution.files or ():
        path = Path(str(file.locate())).resolve()
        known.add(path)
        if file.hash is None:  # bytecode, and RECORD itself
            continue
        try:
            data = path.read_bytes()
        except OSError:
            missing.append(path)
            continue
        digest = hashlib.new(file.hash.mode, data).digest()
        is_same = base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == file.hash.value
        if not is_same and not _is_launcher_of_pipx(program, path, data):
            changed.append(path)
    remedy = f"`{program.reinstall}` installs them again." if program.reinstall else "Install the program again."
    for paths, what in ((missing, "missing"), (changed, "not as installed")):
        if paths:
            yield Diagnosis("wrong", "files", f"{_count(len(paths))} {what}: {_named(paths, program.prefix)}", remedy)
    if program.kind == "editable":
        yield from _check_tree(package)
        return
    other = [path for path in _package_files(package) if path not in known]
    if other:
        text = f"{_count(len(other))} not of this release: {_named(other, program.prefix)}"
        yield Diagnosis("note", "files", text, remedy)
    if package / "__init__.py" not in known:
        text = f"another copy runs, {package}: the installed one is {distribution.locate_file('')}"
        yield Diagnosis("wrong", "files", text, "Unset PYTHONPATH, or start the installed program.")
    elif not missing and not changed:
        yield Diagnosis("ok", "files", f"{len(known)} files are as installed")


def _package_files(package: Path) -> Iterator[Path]:
    for path in package.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.resolve()


def _check_tree(package: Path) -> Iterator[Diagnosis]:
    """Yield how a source tree differs from its last commit."""
    tree = package.parents[1]
    command = ["git", "-C", str(tree), "status", "--porcelain", "--untracked-files=no"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        done = None
    if done is None or done.returncode != 0:
        yield Diagnosis("note", "files", f"{tree} is no git checkout: there is nothing to compare it with")
    elif changed := done.stdout.splitlines():
        text = f"{_count(len(changed))} not as in the last commit of {tree}"
        yield Diagnosis("note", "files", text, f"`git -C {tree} status` names them.")
    else:
        yield Diagnosis("ok", "files", f"{tree} is as its last commit")


def _named(paths: list[Path], prefix: Path) -> str:
    root = prefix.resolve()
    names = [str(path.relative_to(root) if path.is_relative_to(root) else path) for path in paths[:MAX_NAMED]]
    more = len(paths) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def _count(number: int) -> str:
    return "1 file is" if number == 1 else f"{number} files are"


# --- dependencies --------------------------------------------------------------------------------------------


def _check_dependencies(program: InstalledProgram) -> Iterator[Diagnosis]:
    try:
        declared = [text for text in metadata.requires(NAME) or () if ";" not in text]
    except metadata.PackageNotFoundError:
        return
    faults = list(filter(None, map(requirement_fault, declared)))
    again = program.reinstall.replace(" --no-deps", "")
    remedy = f"`{again}` installs what it needs." if again else "Install the program again."
    for fault in faults:
        yield Diagnosis("wrong", "packages", fault, remedy)
    if not faults:
        yield Diagnosis("ok", "packages", f"{len(declared)} required packages have a version that fits")


def requirement_fault(text: str) -> str:
    """Return why a requirement is not met by the installed packages, or "" if it is."""
    name, wanted = requirement(text)
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return f"{name} is missing (needed: {wanted or 'any version'})"
    return "" if satisfies(version, wanted) else f"{name} is {version}, and {wanted} is needed"


def _check_extras() -> Iterator[Diagnosis]:
    complete = []
    for name, requirements in extras().items():
        faults = [fault for text in requirements if (fault := requirement_fault(text))]
        if not faults:
            complete.append(name)
        elif any(" is missing " in fault for fault in faults):  # extras share packages: a part says nothing
            yield Diagnosis("idle", "extras", f"{name} is not installed", install_hint(name))
        else:
            yield Diagnosis("wrong", "extras", f"{name}: {'; '.join(faults)}", install_hint(name))
    if complete:
        yield Diagnosis("ok", "extras", f"installed: {', '.join(complete)}")


# --- what the shell and systemd find -------------------------------------------------------------------------


def _check_entry(program: InstalledProgram, environ: Mapping[str, str]) -> Iterator[Diagnosis]:
    own = Path(sys.argv[0]) if program.kind == "nix" else program.script
    found = shutil.which("hermes", path=environ.get("PATH"))
    if program.kind != "nix" and not own.exists():
        remedy = f"`{program.reinstall}` makes it." if program.reinstall else "Install the program again."
        yield Diagnosis("wrong", "command", f"{own} is missing", remedy)
    elif found is None:
        in_home = program.kind == "venv" and program.prefix.is_relative_to(Path.home())
        folder = next((path.parent for path in _user_links() if path.exists()), own.parent)
        remedy = f"Add `export PATH={folder}:$PATH` to ~/.profile, and open a new shell."
        level: Level = "wrong" if in_home or program.kind in ("pipx", "uv") else "note"
        yield Diagnosis(level, "command", "`hermes` is not on the PATH of this shell", remedy)
    elif program.kind == "nix" or os.path.realpath(found) == os.path.realpath(own):
        yield Diagnosis("ok", "command", f"`hermes` is {found}")
    else:
        yield Diagnosis("note", "command", f"`hermes` on the PATH is another one: {found}", f"This one is {own}.")


def _user_links() -> tuple[Path, ...]:
    return (Path.home() / ".local" / "bin" / "hermes",)


def _check_shells(environ: Mapping[str, str]) -> Iterator[Diagnosis]:
    """Compare the installed completion scripts and man pages with those of this release."""
    from hermes_agent.app.command_line import build_parser  # it imports the module of this command

    parser = build_parser()
    current: list[str] = []
    for shell, places in shell_files(environ).items():
        for path in filter(Path.exists, places):
            try:
                text = completion_script(shell, parser)
            except ImportError:  # `packages` names it
                yield Diagnosis("note", "completion", f"{path} cannot be compared: shtab is missing")
                continue
            if path.read_text(encoding="utf-8", errors="replace") == text:
                current.append(shell)
            else:
                yield _outdated("completion", path)
    if current:
        yield Diagnosis("ok", "completion", f"up to date: {', '.join(dict.fromkeys(current))}")
    elif not any(path.exists() for places in shell_files(environ).values() for path in places):
        yield Diagnosis("idle", "completion", "not installed for this user", "`hermes completion install`")
    yield from _check_man_pages(man_folder(environ), man_pages(parser))


def _check_man_pages(folder: Path, pages: Mapping[str, str]) -> Iterator[Diagnosis]:
    installed = {path.stem: path for path in folder.glob("hermes*.1")}
    if not installed:
        inside = Path(sys.prefix) / "share" / "man" / "man1" / "hermes.1"
        text = f"`man -l {inside}` shows them" if inside.exists() else "not installed for this user"
        yield Diagnosis("idle", "man pages", text, "`hermes completion install`")
        return
    wrong = [path for name, path in installed.items() if _text(path) != pages.get(name)]
    if wrong or len(installed) < len(pages):
        yield _outdated("man pages", folder)
    else:
        yield Diagnosis("ok", "man pages", f"{len(pages)} in {folder}")


def _outdated(subject: str, path: Path) -> Diagnosis:
    return Diagnosis("wrong", subject, f"{path}: of another release", "`hermes self check --fix` writes them again.")


def _check_user_unit() -> Iterator[Diagnosis]:
    path = unit_path()
    text = _text(path)
    if text is None:
        yield Diagnosis("idle", "unit", "no service of this user", "`hermes setup --service user` makes one.")
        return
    program = re.search(r'^ExecStart="?([^"\n]+?)"? gateway run$', text, re.MULTILINE)
    again = "`hermes self check --fix` writes it again."
    if program is not None and not Path(program[1]).exists():
        yield Diagnosis("wrong", "unit", f"{path} starts {program[1]}, which does not exist", again)
    elif text != unit_text(home_of_unit(text)):
        remedy = f"{again} Your own changes belong into a drop-in: `systemctl --user edit hermes-agent`."
        yield Diagnosis("note", "unit", f"{path} is not as this release writes it", remedy)
    else:
        yield Diagnosis("ok", "unit", str(path))


def _check_system_units() -> Iterator[Diagnosis]:
    if not (SHIPPED / "systemd").is_dir():
        yield Diagnosis("note", "unit", f"the shipped units are not there: {SHIPPED / 'systemd'}")
        return
    for shipped, installed in system_unit_files():
        if _text(shipped) == _text(installed):
            yield Diagnosis("ok", "unit", str(installed))
        else:
            remedy = f"`cp {shipped} {installed} && systemctl daemon-reload`, as root; own changes go into a drop-in."
            yield Diagnosis("wrong", "unit", f"{installed} is not the unit of this release", remedy)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def write_user_files(environ: Mapping[str, str], write: Callable[[Path, str], None]) -> list[Path]:
    """Write the installed completion, man pages and user unit again; return the files that changed."""
    from hermes_agent.app.command_line import build_parser  # as above

    parser = build_parser()
    wanted: dict[Path, str] = {}
    for shell, places in shell_files(environ).items():
        wanted |= {path: completion_script(shell, parser) for path in places if path.exists()}
    folder = man_folder(environ)
    if (folder / "hermes.1").exists():
        wanted |= {folder / f"{name}.1": page for name, page in man_pages(parser).items()}
    if (unit := _text(unit_path())) is not None:
        wanted[unit_path()] = unit_text(home_of_unit(unit))
    changed = [path for path, text in wanted.items() if _text(path) != text]
    for path in changed:
        write(path, wanted[path])
    return changed
