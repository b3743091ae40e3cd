"""Upstream's functions for places: the home, its profiles, the machine it is on, and checks of paths.

A process serves one home, so there is no override of the home for a task. Source: plugin contract §2.1, §11.2, §11.3.
"""

from __future__ import annotations

import functools
import os
import shutil
import stat
from pathlib import Path

from hermes_agent.config import hermes_home
from hermes_agent.config.home import (
    ACTIVE_PROFILE_FILE,
    DEFAULT_PROFILE,
    make_home,
    make_plugin_folders,
    profile_at,
    root_home,
)
from hermes_agent.core.errors import UserError

CONTAINER_MARKS = ("docker", "podman", "lxc", "kubepods", "containerd")
"""Words of `/proc/1/cgroup` in a container."""
LEAST_PARTS = 3
"""Parts of a path that `secure_parent_dir` changes: never `/` or a folder in it."""


def ensure_hermes_home() -> None:
    """Create the home and its folders for state, readable only by their owner, as far as they are missing.

    Raises:
        UserError: the home cannot be created.
    """
    home = hermes_home()
    make_home(home)
    make_plugin_folders(home)


def get_project_root() -> Path:
    """Return the directory that contains the installed package."""
    return Path(__file__).resolve().parents[2]


def get_hermes_home_override() -> str | None:
    """Return None: a process serves one home, and no task has another one."""
    return None


def get_real_home(env: dict[str, str] | None = None) -> str:
    """Return the user's home directory: `HOME`, or that of the account if `HOME` lies in the agent's home."""
    named = (os.environ if env is None else env).get("HOME", "")
    if named and not Path(named).is_relative_to(hermes_home()):
        return named
    import pwd  # needed only if HOME is the agent's

    return pwd.getpwuid(os.getuid()).pw_dir


def get_subprocess_home(env: dict[str, str] | None = None) -> str | None:
    """Return the `HOME` that a child process needs in place of the inherited one, or None."""
    named = (os.environ if env is None else env).get("HOME", "")
    real = get_real_home(env)
    return None if real == named else real


def apply_subprocess_home_env(env: dict[str, str]) -> None:
    """Set `HOME` in the environment of a child process if the inherited one lies in the agent's home."""
    home = get_subprocess_home(env)
    if home is not None:
        env["HOME"] = home


def iter_hermes_node_dirs(home: Path | None = None) -> list[Path]:
    """Return the folders of the home that may hold Node.js, the preferred one first."""
    node = (home or hermes_home()) / "node"
    return [node / "bin", node]


def find_hermes_node_executable(command: str) -> str | None:
    """Return the path of `node`, `npm`, … in the home's own Node.js, or None."""
    return shutil.which(command, path=os.pathsep.join(map(str, iter_hermes_node_dirs())))


def find_node_executable_on_path(command: str) -> str | None:
    """Return the path of `node`, `npm`, … on the PATH, or None."""
    return shutil.which(command)


@functools.cache
def is_container() -> bool:
    """Return whether this process runs in a container."""
    if os.environ.get("KUBERNETES_SERVICE_HOST") or any(map(os.path.exists, ("/.dockerenv", "/run/.containerenv"))):
        return True
    return any(mark in _text("/proc/1/cgroup") for mark in CONTAINER_MARKS)


def is_termux() -> bool:
    """Return whether this process runs in Termux on Android."""
    return bool(os.environ.get("TERMUX_VERSION")) or "com.termux" in os.environ.get("PREFIX", "")


@functools.cache
def is_wsl() -> bool:
    """Return whether this process runs in the Windows Subsystem for Linux."""
    return "microsoft" in _text("/proc/version").lower()


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def secure_parent_dir(path: Path) -> None:
    """Make the directory of a file accessible to its owner alone.

    The root directory, the directories in it, and a directory of another account stay unchanged.
    """
    folder = Path(path).resolve().parent
    try:
        found = folder.stat()
        if len(folder.parts) >= LEAST_PARTS and found.st_uid == os.getuid():
            folder.chmod(stat.S_IRWXU)
    except OSError:
        return


def validate_within_dir(path: Path, root: Path) -> str | None:
    """Return why a path leads out of `root`, links followed, or None if it does not."""
    try:
        place, limit = Path(path).resolve(), Path(root).resolve()
    except (OSError, RuntimeError, ValueError) as exc:
        return f"Path {str(path)!r} cannot be resolved: {exc}"
    return None if place.is_relative_to(limit) else f"Path escapes allowed directory: {place} is not in {limit}"


def has_traversal_component(path_str: str) -> bool:
    """Return whether a part of a path is `..`."""
    return ".." in Path(path_str.replace("\\", "/")).parts


def get_profile_dir(name: str) -> Path:
    """Return the home of a profile, which need not exist.

    Raises:
        ValueError: the name is invalid.
    """
    try:
        return profile_at(normalize_profile_name(name), must_exist=False).home
    except UserError as exc:
        raise ValueError(exc.message) from exc


def profile_exists(name: str) -> bool:
    """Return whether a profile exists; `default` always does."""
    try:
        return normalize_profile_name(name) == DEFAULT_PROFILE or get_profile_dir(name).is_dir()
    except ValueError:
        return False


def normalize_profile_name(name: str) -> str:
    """Return the name of a profile as its folder has it.

    Raises:
        ValueError: it is empty.
    """
    wanted = str(name or "").strip().lower()
    if not wanted:
        raise ValueError("the name of a profile is empty")
    return wanted


def validate_profile_name(name: str) -> None:
    """Raise ValueError if a profile cannot have this name.

    Raises:
        ValueError: the message says which names are valid.
    """
    try:
        profile_at(name, must_exist=False)
    except UserError as exc:
        raise ValueError(f"{exc.message}. {exc.hint}") from exc


def get_active_profile() -> str:
    """Return the profile that `hermes profile use` selected, or `default`."""
    return _text(str(root_home() / ACTIVE_PROFILE_FILE)).strip() or DEFAULT_PROFILE
