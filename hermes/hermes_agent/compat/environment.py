"""Upstream's functions for environment variables, the home and its profiles, packages and files.

A profile is a home at `~/.hermes/profiles/NAME`. Upstream's `tools/lazy_deps.py` installs missing packages of a
feature; here nothing is installed at run time (docs/architecture.md, "where nothing is installed"). Checks of paths
use the rules of the file tools. Source: plugin contract §2.1, §11.2, §11.3.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from hermes_agent import __version__
from hermes_agent.compat.agent import host
from hermes_agent.compat.config import get_env_value
from hermes_agent.config import hermes_home
from hermes_agent.config.dotenv import read_env_file
from hermes_agent.config.home import DEFAULT_PROFILE, FileAccess, profile_at, profile_name, profiles
from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.system.files import write_atomic
from hermes_agent.workspace.paths import closed_reason, secret_reason

logger = logging.getLogger(__name__)

ON = ("1", "true", "yes", "on")


def env_int(key: str, default: int = 0) -> int:
    """Return a variable as an integer, or `default` if it is unset or invalid."""
    try:
        return int(os.environ.get(key, "").strip() or default)
    except ValueError:
        return default


def env_float(key: str, default: float = 0.0) -> float:
    """Return a variable as a number, or `default` if it is unset or invalid."""
    try:
        return float(os.environ.get(key, "").strip() or default)
    except ValueError:
        return default


def env_bool(key: str, default: bool = False) -> bool:
    """Return whether a variable is 1, true, yes or on, or `default` if it is unset or empty."""
    value = os.environ.get(key, "").strip().lower()
    return value in ON if value else default


def env_var_enabled(name: str, default: str = "") -> bool:
    """Return whether a variable, or `default` if it is unset, is 1, true, yes or on."""
    return os.environ.get(name, default).strip().lower() in ON


def load_hermes_dotenv(
    *, hermes_home: str | os.PathLike[str] | None = None, project_env: str | os.PathLike[str] | None = None
) -> list[Path]:
    """Set the variables of the home's `.env` and of `project_env` in this process.

    The home's file overrides the environment; the project's file only sets missing variables.

    Returns:
        The files that exist.
    """
    files = [(_home(hermes_home) / ".env", True)]
    if project_env is not None:
        files.append((Path(project_env), False))
    read = []
    for file, wins in files:
        if not file.is_file():
            continue
        read.append(file)
        for name, value in read_env_file(file).items():
            if wins or name not in os.environ:
                os.environ[name] = value
    return read


XAI_BASE_URL = "https://api.x.ai/v1"


def has_xai_credentials() -> bool:
    """Return whether a key for xAI is configured."""
    return bool(resolve_xai_http_credentials()["api_key"])


def hermes_xai_user_agent() -> str:
    """Return the user agent of requests to xAI."""
    return f"Hermes-Agent/{__version__}"


def resolve_xai_http_credentials(*, force_refresh: bool = False, api_key_hint: str | None = None) -> dict[str, str]:
    """Return `provider`, `api_key` ("" for none) and `base_url` for requests to xAI.

    Args:
        force_refresh: ignored, like `api_key_hint`: a key does not expire.
    """
    base_url = get_env_value("XAI_BASE_URL") or XAI_BASE_URL
    return {"provider": "xai", "api_key": get_env_value("XAI_API_KEY") or "", "base_url": base_url.rstrip("/")}


def register_env_passthrough(var_names: Iterable[str]) -> None:
    """Log which of these variables `terminal.env_passthrough` does not pass to commands.

    Upstream passes them. Here only the config does, so that no plugin can give a key to the model's commands
    (docs/architecture.md, "secrets and plugins").
    """
    allowed = set(host().config.settings.terminal.env_passthrough)
    missing = sorted({str(name) for name in var_names} - allowed)
    if missing:
        logger.warning(
            "a plugin asks that commands see %s: add it to terminal.env_passthrough in the config to allow that",
            ", ".join(missing),
        )


def windows_hide_flags() -> int:
    """Return the process creation flags that hide the console window; 0 except on Windows."""
    return int(getattr(__import__("subprocess"), "CREATE_NO_WINDOW", 0))


def windows_detach_popen_kwargs() -> dict[str, Any]:
    """Return `Popen` keywords for a process that outlives this one."""
    return {"start_new_session": True} if os.name == "posix" else {"creationflags": windows_hide_flags()}


def _home(given: str | os.PathLike[str] | None) -> Path:
    return hermes_home() if given is None else Path(given)


def display_hermes_home() -> str:
    """Return the home for display, such as `~/.hermes`."""
    home = hermes_home()
    try:
        below = home.relative_to(Path.home())
    except (ValueError, RuntimeError):
        return str(home)
    return f"~/{below}" if below.parts else "~"


def get_memory_dir() -> Path:
    """Return the directory of memories, `HOME/memories`."""
    return hermes_home() / "memories"


def find_node_executable(command: str) -> str | None:
    """Return the path of `node`, `npm`, … in `HOME/node/bin` or on the PATH, or None."""
    return shutil.which(command, path=with_hermes_node_path()["PATH"])


def with_hermes_node_path(env: dict[str, str] | None = None) -> dict[str, str]:
    """Return a copy of `env` with `HOME/node/bin`, if it exists, first on the PATH.

    Args:
        env: None means the environment of the process.
    """
    result = dict(os.environ if env is None else env)
    path = result.get("PATH", os.defpath)
    own = hermes_home() / "node" / "bin"
    result["PATH"] = f"{own}{os.pathsep}{path}" if own.is_dir() else path
    return result


@lazy_dataclass(frozen=True)
class Profile:
    """A profile of the agent."""

    name: str
    path: Path
    is_default: bool
    is_active: bool


def get_active_profile_name() -> str:
    """Return the profile of this process: `default`, its name, or `custom` for another home."""
    return profile_name(hermes_home())


def list_profiles() -> list[Profile]:
    """Return the default home and every profile, sorted by name."""
    here = hermes_home()
    return [Profile(one.name, one.home, one.name == DEFAULT_PROFILE, one.home == here) for one in profiles()]


def resolve_profile_env(profile_name: str) -> str:
    """Return the `HERMES_HOME` of a profile.

    Raises:
        FileNotFoundError: the profile does not exist.
    """
    try:
        return str(profile_at(profile_name or DEFAULT_PROFILE).home)
    except UserError as exc:
        raise FileNotFoundError(exc.message) from exc


FEATURES: dict[str, dict[str, str]] = {
    "memory.honcho": {"honcho": "honcho-ai"},
    "memory.mem0": {"mem0": "mem0ai"},
    "platform.discord": {"discord": "discord.py"},
    "platform.matrix": {"nio": "matrix-nio"},
    "platform.slack": {"slack_bolt": "slack-bolt", "slack_sdk": "slack-sdk"},
    "platform.telegram": {"telegram": "python-telegram-bot"},
    "provider.anthropic": {"anthropic": "anthropic"},
    "provider.bedrock": {"boto3": "boto3"},
    "search.exa": {"exa_py": "exa-py"},
    "search.firecrawl": {"firecrawl": "firecrawl-py"},
    "search.parallel": {"parallel": "parallel-web"},
    "stt.faster_whisper": {"faster_whisper": "faster-whisper"},
    "tts.edge": {"edge_tts": "edge-tts"},
    "tts.elevenlabs": {"elevenlabs": "elevenlabs"},
}
"""By feature: import names with the distributions that provide them."""


class FeatureUnavailable(RuntimeError):
    """Packages of a feature are missing; the message says how to add them."""

    def __init__(self, feature: str, missing: tuple[str, ...], reason: str) -> None:
        super().__init__(f"{feature} is not available: {reason}")
        self.feature, self.missing, self.reason = feature, missing, reason


def feature_missing(feature: str) -> tuple[str, ...]:
    """Return the distributions that a feature lacks.

    Raises:
        FeatureUnavailable: the feature is unknown.
    """
    needed = FEATURES.get(feature)
    if needed is None:
        raise FeatureUnavailable(feature, (), f"it is unknown; known are {', '.join(sorted(FEATURES))}")
    return tuple(dist for module, dist in needed.items() if PathFinder.find_spec(module) is None)


def ensure(feature: str, *, prompt: bool = True) -> None:
    """Check that the packages of a feature are installed.

    Args:
        prompt: ignored; upstream offers to install them.

    Raises:
        FeatureUnavailable: packages are missing; `reason` says how to add them.
    """
    missing = feature_missing(feature)
    if missing:
        raise FeatureUnavailable(feature, missing, how_to_add(missing))


def ensure_and_bind(
    feature: str, importer: Callable[[], dict[str, Any]], target_globals: dict[str, Any], *, prompt: bool = False
) -> bool:
    """Add the names that `importer` returns to `target_globals`; return False if packages are missing.

    A failure is logged.
    """
    try:
        ensure(feature, prompt=prompt)
        target_globals.update(importer())
    except (FeatureUnavailable, ImportError) as exc:
        logger.warning("%s", exc)
        return False
    return True


def pip_install(
    args: Sequence[str], *, timeout: int = 300, capture_output: bool = True
) -> subprocess.CompletedProcess[str]:
    """Install nothing; return the result of a failed command with instructions as its error output."""
    packages = [arg for arg in args if not arg.startswith("-")]
    text = how_to_add(packages) + "\n"
    if not capture_output:
        print(text, end="")
    return subprocess.CompletedProcess(["pip", "install", *args], 1, "", text)


def how_to_add(packages: Sequence[str]) -> str:
    """Return instructions for the operator to install packages."""
    names = " ".join(packages)
    return (
        f"nothing is installed while the agent runs. Add {names or 'what is missing'} where hermes-agent is installed"
        f" (`{sys.executable} -m pip install {names}`; on NixOS services.hermes-agent.extraPythonPackages)"
        " and start it again"
    )


def get_read_block_error(path: str) -> str | None:
    """Return why a tool may not read `path`, or None if it may."""
    from hermes_agent.compat.agent import host_or_none  # the operator's additions, if there is a host

    added = host_or_none(lambda host: list(host.config.settings.terminal.sandbox_paths)) or []
    reason = closed_reason(str(path), hermes_home(), resolve_agent_cwd(), _reader(), added)
    return None if reason is None else f"{path} must not be read: {reason}"


def get_write_denied_error(path: str, *, verb: str = "Write") -> str | None:
    """Return why a tool may not write to `path`, or None if it may.

    A path that only needs an approval (outside the working directory) is not denied: the tool requests the approval.

    Args:
        verb: accepted and ignored.
    """
    reason = secret_reason(str(path), hermes_home(), resolve_agent_cwd(), _reader())
    return None if reason is None else f"{path} must not be written: {reason}"


def raise_if_read_blocked(path: str) -> None:
    """Raise PermissionError if a tool may not read `path`.

    Raises:
        PermissionError: the message has the reason.
    """
    reason = get_read_block_error(path)
    if reason is not None:
        raise PermissionError(reason)


def resolve_agent_cwd() -> Path:
    """Return the working directory of the conversation, else `$TERMINAL_CWD`, else that of the process."""
    from hermes_agent.tools import current_scope  # few of these names need the tools

    scope = current_scope.get()
    if scope is not None:
        return scope.cwd
    return Path(os.environ.get("TERMINAL_CWD") or ".").expanduser().resolve()


def _reader() -> FileAccess:
    """Return the current principal's access to files of the home; without a host, that of `local`."""
    from hermes_agent.compat.agent import host
    from hermes_agent.sessions import LOCAL, Principals  # few of these names need it
    from hermes_agent.tools.call_scope import file_access

    try:
        return file_access(host().people)
    except RuntimeError:
        return Principals().reader(LOCAL)


def atomic_json_write(
    path: str | Path, data: Any, *, indent: int = 2, mode: int | None = None, **dump_kwargs: Any
) -> None:
    """Write `data` as JSON atomically; create missing parent directories.

    Args:
        mode: permissions; None keeps those of the existing file.
        dump_kwargs: passed to `json.dumps`.

    Raises:
        TypeError: `data` cannot be written as JSON; the file is unchanged.
    """
    text = json.dumps(data, indent=indent, **{"ensure_ascii": False, **dump_kwargs})
    place = Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(place, text, mode=mode)


def atomic_replace(tmp_path: str | Path, target: str | Path) -> str:
    """Move the file at `tmp_path` to `target`, following links, and return the path that was replaced."""
    place = os.path.realpath(target)
    os.replace(tmp_path, place)  # noqa: PTH105 - the arguments may be text
    return place
