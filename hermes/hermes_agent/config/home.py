"""The home of the agent: its config files, its profiles, and which of its files a session may read.

A profile is a home below `HOME/profiles`, selected by `-p NAME` or `hermes profile use NAME`. Files that `find_denial`
does not list are closed to the tools of every session: the agent's state, and files of other principals. Other folders
belong to plugins; sessions of the home's owner may read them. This module imports the standard library alone, because
the search process loads it. Source: plugin contract §2.1 (`profile_name`), §12.1.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import LazyNamedTuple

if TYPE_CHECKING:
    from hermes_agent.system.files import FileStamp

EFFECTIVE = "config.yaml"
LOCAL = "config.local.yaml"
ENV_FILE = ".env"
PLUGINS_STATE = "plugins_state.json"
"""What the plugins of the last load registered (`plugins.plugin_state`)."""
DECLARED = "HERMES_DECLARED_CONFIG"
"""Variable with the path of the config that Nix declares; empty counts as unset."""


def hermes_home(environ: Mapping[str, str] | None = None) -> Path:
    """Return the home: `$HERMES_HOME` if it is not empty, else `~/.hermes`. Read at each call."""
    named = (os.environ if environ is None else environ).get("HERMES_HOME", "")
    return Path(named).expanduser() if named else Path.home() / ".hermes"


def make_home(home: Path) -> None:
    """Create the home with mode 0700 if it does not exist.

    Raises:
        UserError: it cannot be created.
    """
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise UserError(
            f"cannot make the home {home}: {exc.strerror}", hint="Set HERMES_HOME to a directory that you may write."
        ) from exc


PLUGIN_FOLDERS = (
    *("audio_cache", "cron", "hooks", "image_cache", "logs", "memories", "plugins", "sessions", "skills"),
)
"""Folders that each home of upstream has, and that its plugins write to or look for without creating them."""


def make_plugin_folders(home: Path) -> None:
    """Create `PLUGIN_FOLDERS`, each with mode 0700, as far as they are missing.

    Raises:
        OSError: one cannot be created.
    """
    present = {path.name for path in home.iterdir()}  # each plugin that loads asks, and mostly all are there
    for name in PLUGIN_FOLDERS:
        if name not in present:
            (home / name).mkdir(mode=0o700, exist_ok=True)


def place_in_home(new_subpath: str, old_name: str) -> Path:
    """Return `HOME/old_name` if it exists and is not empty, else `HOME/new_subpath`; neither is created."""
    home = hermes_home()
    old = home / old_name
    try:
        used = any(old.iterdir())
    except OSError:
        used = False
    return old if used else home / new_subpath


class HomePaths(LazyNamedTuple):
    """The config files of a home."""

    effective: Path
    """`config.yaml`: the operator's file, or with a declared layer a generated one for plugins that read it."""
    editable: Path
    """The file that `hermes config set` changes."""
    declared: Path | None
    """The file that Nix declares, or None."""
    env: Path


def home_paths(home: Path, environ: Mapping[str, str] | None = None) -> HomePaths:
    """Return the config files of `home`; `HERMES_DECLARED_CONFIG` names the declared layer."""
    declared = (os.environ if environ is None else environ).get(DECLARED, "")
    effective = home / EFFECTIVE
    if not declared:
        return HomePaths(effective, effective, None, home / ENV_FILE)
    return HomePaths(effective, home / LOCAL, Path(declared), home / ENV_FILE)


def stamp(home: Path) -> tuple[FileStamp | None, ...]:
    """Return the stamps of the config files, to detect a change."""
    from hermes_agent.system.files import FileStamp  # most commands only ask where the home is

    where = home_paths(home)
    files = (where.effective, where.editable, where.env, *((where.declared,) if where.declared else ()))
    return tuple(map(FileStamp.of, files))


DEFAULT_PROFILE = "default"
ACTIVE_PROFILE_FILE = "active_profile"
"""File of the root home with the profile to use if neither `-p` nor `HERMES_HOME` names one."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_OPTIONS = ("-p", "--profile")


class HomeProfile(LazyNamedTuple):
    """One of the homes."""

    name: str
    home: Path


def root_home() -> Path:
    """Return the home that contains the profiles: the home itself, or the one that it is a profile of."""
    home = hermes_home()
    return home.parent.parent if home.parent.name == "profiles" else home


def profile_name(home: Path) -> str:
    """Return `default`, the name of a profile, or `custom` for a home outside of both."""
    try:
        default = Path.home() / ".hermes"
        place = home.expanduser().resolve()
        if place == default.resolve():
            return "default"
        return place.name if place.parent == (default / "profiles").resolve() else "custom"
    except (OSError, RuntimeError):  # no home directory, or a circular link
        return "custom"


def profiles() -> Iterator[HomeProfile]:
    """Yield the root home as `default`, then the profiles by name."""
    root = root_home()
    yield HomeProfile(DEFAULT_PROFILE, root)
    folder = root / "profiles"
    for place in sorted(folder.iterdir()) if folder.is_dir() else ():
        if place.is_dir() and _NAME.fullmatch(place.name):
            yield HomeProfile(place.name, place)


def profile_at(name: str, *, must_exist: bool = True) -> HomeProfile:
    """Return a profile by its name.

    Args:
        must_exist: raise an error if there is no such profile.

    Raises:
        UserError: the name is invalid, or there is no such profile.
    """
    root = root_home()
    if name == DEFAULT_PROFILE:
        return HomeProfile(DEFAULT_PROFILE, root)
    if not _NAME.fullmatch(name):
        raise UserError(
            f"{name!r} cannot be the name of a profile",
            hint="Up to 64 lower-case letters, digits, `-` and `_`, the first a letter or digit.",
        )
    home = root / "profiles" / name
    if must_exist and not home.is_dir():
        names = ", ".join(profile.name for profile in profiles())
        raise UserError(f"there is no profile {name!r}", hint=f"There is: {names}. `hermes profile create` makes one.")
    return HomeProfile(name, home)


def selected_profile(argv: Sequence[str], environ: MutableMapping[str, str]) -> list[str]:
    """Remove `-p NAME` from the start of a command line, and set `HERMES_HOME` to that profile's home.

    Without it, and without `HERMES_HOME`, the profile of `hermes profile use` counts.

    Raises:
        UserError: there is no such profile.
    """
    rest, name = list(argv), ""
    if rest and rest[0] in _OPTIONS:
        if len(rest) < 2:
            raise UserError(f"`{rest[0]}` needs the name of a profile", hint="`hermes profile list` shows them.")
        name, rest = rest[1], rest[2:]
    elif rest and rest[0].startswith("--profile="):
        name, rest = rest[0].partition("=")[2], rest[1:]
    elif not environ.get("HERMES_HOME"):
        name = _active_profile()
        if name and not profile_at(name, must_exist=False).home.is_dir():
            raise UserError(
                f"there is no profile {name!r} any more, which `hermes profile use` chose",
                hint=f"`hermes -p {DEFAULT_PROFILE} profile use {DEFAULT_PROFILE}` lets the default home be used.",
            )
    if name:
        environ["HERMES_HOME"] = str(profile_at(name).home)
    return rest


def _active_profile() -> str:
    try:
        return (root_home() / ACTIVE_PROFILE_FILE).read_text(encoding="utf-8").strip()
    except OSError:  # no profile was selected
        return ""


PRINCIPALS = "cache/people"
"""Folder below the home with one folder for each principal: uploads, long results, generated files."""
WORKSPACE = "workspace"
"""Working directory of a daemon without a configured one; all of its users share it."""
_NOTES = "memories"
_HOOKS = "hook_outputs"
_SHARED = frozenset({"SOUL.md", "plugins", "skills", WORKSPACE})
"""Entries of the home that every session may read."""
_OPERATOR = frozenset({"config.local.yaml", "config.yaml", "cron", "hooks", "pairing", "plugins_trust.json", "scripts"})
"""Additional entries that sessions of the home's owner may read."""
_STATE = frozenset(
    {
        *("cache", "checkpoints", "gateway", "gateway-locks", "imports", "logs", "mcp-tokens", "node", "processes"),
        *("profiles", "restore-points", "run"),
        # of upstream, in homes that both programs use
        *("audio_cache", "backups", "bin", "browser_screenshots", "document_cache", "hermes-agent", "home"),
        *("image_cache", "images", "kanban", "matrix", "platforms", "sandboxes", "sessions", "shared", "skins"),
        *("state-snapshots", "video_cache", "weixin", "whatsapp"),
    }
)
"""Folders of the home that no session may read, except for what is open in them."""
_PARENTS = frozenset({"", "cache", PRINCIPALS, _NOTES, f"{_NOTES}/people", _HOOKS})
"""Parents of open folders; a listing shows only those of their entries that are open."""


class FileAccess(LazyNamedTuple):
    """Which files below the home a call may open."""

    folders: frozenset[str] = frozenset()
    """Names of the folders below `PRINCIPALS`."""
    notes: str | None = None
    """Folder of the notes below `memories/people`; empty for those of the home's owner, None for no notes."""
    is_owner: bool = False
    """Whether the session belongs to the home's owner."""
    session: str = ""
    """The session, which owns long texts of its hooks."""


def find_denial(place: str, reader: FileAccess, *, is_folder: bool = False) -> str | None:
    """Return why a path below the home is not open to a call, or None.

    Args:
        place: resolved, relative to the home; empty for the home itself.
        is_folder: the path is a directory. Not needed for a path with something below it.
    """
    if place in _PARENTS:
        return None
    first = place.partition("/")[0]
    if first in _SHARED or (reader.is_owner and first in _OPERATOR):
        return None
    if place.startswith(f"{PRINCIPALS}/"):
        folder = place.removeprefix(f"{PRINCIPALS}/").partition("/")[0]
        return None if folder in reader.folders else "it belongs to another user"
    if first == _HOOKS:
        return None if place.split("/")[1] == reader.session else "it belongs to another session"
    if first == _NOTES:
        return None if _is_own_note(place, reader) else "it belongs to another user"
    if (is_folder or "/" in place) and first not in _STATE and not first.startswith("."):
        return None if reader.is_owner else "it belongs to a plugin"
    return "it is the agent's own state"


def _is_own_note(place: str, reader: FileAccess) -> bool:
    below = place.removeprefix(f"{_NOTES}/")
    if below.startswith("people/"):
        return bool(reader.notes) and below.split("/")[1] == reader.notes
    return reader.notes == ""
