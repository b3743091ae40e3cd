"""Upstream's functions over config and `.env`, on top of ours. Source: plugin contract §4.10, §11, §12.3."""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from hermes_agent.config import Config, hermes_home, home_paths, load, stamp
from hermes_agent.config.dotenv import write_env_value
from hermes_agent.config.edit import set_value, unset_value
from hermes_agent.config.effective import dump_yaml
from hermes_agent.config.schema import MISSING, OPEN, default, lookup
from hermes_agent.core.errors import ConfigError, UserError
from hermes_agent.core.redact import looks_like_secret_name, redactor
from hermes_agent.credentials import Credentials
from hermes_agent.host import current
from hermes_agent.io.files import write_atomic

__all__ = [
    "atomic_config_write",
    "cfg_get",
    "fal_key_is_configured",
    "fast_safe_load",
    "get_config_path",
    "get_env_value",
    "get_max_bytes",
    "get_max_line_length",
    "get_max_lines",
    "load_config",
    "load_config_readonly",
    "managed_nous_tools_enabled",
    "prefers_gateway",
    "read_raw_config",
    "save_config",
    "save_env_value",
    "write_platform_config_field",
]

logger = logging.getLogger(__name__)

KeyPath = tuple[str, ...]
_cache: dict[Path, tuple[object, Config]] = {}


def load_config() -> dict[str, Any]:
    """Return a copy of the effective config, read again when one of its files has changed."""
    return copy.deepcopy(_loaded().values)


def load_config_readonly() -> dict[str, Any]:
    """Return the effective config itself; the caller must not change it."""
    return _loaded().values


def read_raw_config() -> dict[str, Any]:
    """Return a copy of what the files say, without defaults."""
    return copy.deepcopy(_loaded().raw)


def save_config(
    config: dict[str, Any],
    *,
    strip_defaults: bool = True,
    preserve_keys: set[KeyPath] | None = None,
    merge_existing: bool = False,
) -> None:
    """Write what differs from the config in effect; comments and order stay.

    A value that came from `${NAME}` and was not changed stays `${NAME}`.

    Args:
        strip_defaults: a value that becomes its default is removed from the file.
        preserve_keys: paths that are written even then.
        merge_existing: a key that `config` lacks stays; otherwise it is removed.

    Raises:
        UserError: a key is declared by Nix, or the file cannot be written.
        ConfigError: the result would not be valid.
    """
    home = hermes_home()
    before = load(home)
    kept = preserve_keys or set()
    for path, value in list(_changes(before.values, config)):
        if strip_defaults and path not in kept and _default_is(before, path, value):
            if _has(before.raw, path):
                unset_value(home, path)
        else:
            set_value(home, path, value)
    if not merge_existing:
        for path in list(_absent(before.raw, config)):
            unset_value(home, path)


def cfg_get(cfg: dict[str, Any] | None, *keys: str, default: Any = None) -> Any:
    """Return the value below `keys`, or `default` where there is none, or it is None."""
    here: Any = cfg
    for key in keys:
        if not isinstance(here, dict):
            return default
        here = here.get(key)
    return default if here is None else here


def get_env_value(key: str) -> str | None:
    """Return the value of a variable or secret; an empty one in the environment counts."""
    if os.environ.get(key) == "":
        return ""
    try:
        return _credentials().get(key)
    except ValueError:  # no variable can have that name
        return None


def save_env_value(key: str, value: str) -> None:
    """Set a variable in `.env` (0600) and in this process.

    Raises:
        UserError: the home is managed, or the name or value cannot be written.
    """
    where = home_paths(hermes_home())
    if where.declared is not None:
        raise UserError(
            f"{key} cannot be stored: the config of this home is declared by Nix",
            hint="Use services.hermes-agent.credentials or environmentFiles.",
        )
    write_env_value(where.env, key, value)
    os.environ[key] = value
    if looks_like_secret_name(key):
        redactor.learn([value])


def write_platform_config_field(platform: str, field: str, value: Any, *, raw: bool = False) -> None:
    """Set a field of `platforms.<platform>`.

    Args:
        field: its name; dots lead into mappings.
        raw: keep the type of `value`; otherwise it is written as text.

    Raises:
        UserError: the key is declared by Nix, or the file cannot be written.
        ConfigError: the result would not be valid.
    """
    set_value(hermes_home(), ("platforms", platform, *field.split(".")), value if raw else str(value))


def atomic_config_write(config_path: Path | str, data: Any, **kwargs: Any) -> None:
    """Replace a YAML file as a whole.

    Args:
        kwargs: passed on to `yaml.safe_dump`; none: the style of the config.
    """
    text = yaml.safe_dump(data, **kwargs) if kwargs else dump_yaml(data)
    write_atomic(Path(config_path), text)


def get_config_path() -> Path:
    """Return the path of the effective `config.yaml`."""
    return home_paths(hermes_home()).effective


def fast_safe_load(stream: Any) -> Any:
    """Parse YAML with the C loader where there is one."""
    return yaml.load(stream, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def prefers_gateway(config_section: str) -> bool:
    """Say whether `<config_section>.use_gateway` of the config is on; False while the config cannot be read."""
    try:
        wish = cfg_get(load_config_readonly(), config_section, "use_gateway", default=False)
    except ConfigError:
        return False
    return str(wish).strip().lower() in ("1", "true", "yes", "on")


def fal_key_is_configured() -> bool:
    """Say whether there is a key for FAL, wherever credentials are looked up."""
    return bool((get_env_value("FAL_KEY") or "").strip())


def managed_nous_tools_enabled(**options: Any) -> bool:
    """Say whether tools can be reached through upstream's paid gateway: never, this release has no client of it."""
    return False


def get_max_bytes() -> int:
    """Return the most bytes of a command's output that the model sees."""
    return _limit("max_bytes", 50_000)


def get_max_lines() -> int:
    """Return the most lines of a file that the model sees at once."""
    return _limit("max_lines", 2_000)


def get_max_line_length() -> int:
    """Return the most characters of a line that the model sees."""
    return _limit("max_line_length", 2_000)


def _limit(name: str, default: int) -> int:
    value = (load_config_readonly().get("tool_output") or {}).get(name)
    return value if isinstance(value, int) and value > 0 else default


def _loaded() -> Config:
    """Return the config of the home; while a file of it is broken, the last that was not."""
    home = hermes_home()
    now = stamp(home)
    known = _cache.get(home)
    if known is not None and known[0] == now:
        return known[1]
    try:
        config = load(home)
    except ConfigError as exc:
        if known is None:
            raise
        logger.warning("the config of %s is broken, plugins are given the last that was not: %s", home, exc)
        return known[1]
    _cache[home] = (now, config)
    return config


def _credentials() -> Credentials:
    try:
        host = current()
    except RuntimeError:
        return Credentials(hermes_home(), os.environ)
    return host.credentials if host.home == hermes_home() else Credentials(hermes_home(), os.environ)


def _changes(before: Any, after: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield each path whose value is new or different."""
    for key, value in after.items():
        here = (*path, str(key))
        old = before.get(key) if isinstance(before, dict) else None
        if isinstance(value, dict) and isinstance(old, dict):
            yield from _changes(old, value, here)
        elif not (isinstance(before, dict) and key in before and old == value):
            yield here, value


def _absent(written: Any, after: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield each written path that `after` lacks."""
    for key, value in written.items():
        if key not in after:
            yield (*path, str(key))
        elif isinstance(value, dict) and isinstance(after[key], dict):
            yield from _absent(value, after[key], (*path, str(key)))


def _has(values: Any, path: KeyPath) -> bool:
    for part in path:
        if not isinstance(values, dict) or part not in values:
            return False
        values = values[part]
    return True


def _default_is(config: Config, path: KeyPath, value: Any) -> bool:
    node = lookup(path)
    return node is not None and node is not OPEN and default(node) is not MISSING and default(node) == value
