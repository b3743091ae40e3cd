"""Upstream's functions for the config, `.env` and secrets.

They read and write the home's config and credentials, mask secrets in a text, and cache fetched secrets
(`CachedFetch`). Source: plugin contract §4.10, §11, §12.3.
"""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import yaml

from hermes_agent.config import Config, hermes_home, home_paths, load, stamp
from hermes_agent.config.dotenv import read_env_file, write_env_value
from hermes_agent.config.edit import set_value, unset_value
from hermes_agent.config.effective import dump_yaml
from hermes_agent.config.schema import MISSING, OPEN, default, fill_defaults, lookup, merge
from hermes_agent.core.errors import ConfigError, UserError
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.redaction import redactor
from hermes_agent.core.secrecy import MASK, looks_like_secret_name
from hermes_agent.credentials import Credentials
from hermes_agent.host import current
from hermes_agent.system.files import PRIVATE, write_atomic

logger = logging.getLogger(__name__)

KeyPath = tuple[str, ...]
Key = TypeVar("Key")
_cache: dict[Path, tuple[object, Config]] = {}


def load_config() -> dict[str, Any]:
    """Return a copy of the effective config; a changed file is loaded again."""
    values = copy.deepcopy(_loaded().values)
    return merge(_added(_defaults, fill_defaults({})), values) if _defaults else values


_defaults: dict[str, Any] = {}


def default_config() -> dict[str, Any]:
    """Return the defaults of the config; `load_config` has the keys that plugins add to it."""
    if not _defaults:
        _defaults.update(copy.deepcopy(fill_defaults({})))
    return _defaults


def _added(table: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of `table`, at any depth, that `own` lacks."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if key not in own:
            found[key] = copy.deepcopy(value)
        elif isinstance(value, dict) and isinstance(own[key], dict) and (below := _added(value, own[key])):
            found[key] = below
    return found


def load_config_readonly() -> dict[str, Any]:
    """Return the effective config without copying; the caller must not change it."""
    return _loaded().values


def read_raw_config() -> dict[str, Any]:
    """Return a copy of the values in the config files, without defaults."""
    return copy.deepcopy(_loaded().raw)


def save_config(
    config: dict[str, Any],
    *,
    strip_defaults: bool = True,
    preserve_keys: set[KeyPath] | None = None,
    merge_existing: bool = False,
) -> None:
    """Write the differences from the effective config; comments and order are preserved.

    An unchanged value that came from `${NAME}` stays `${NAME}`.

    Args:
        strip_defaults: remove a value from the file if it becomes its default.
        preserve_keys: paths that are written even if they have their default.
        merge_existing: keep a key that `config` lacks; otherwise it is removed.

    Raises:
        UserError: a key is declared by Nix, or the file cannot be written.
        ConfigError: the result would be invalid.
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
    """Return the value at the path `keys`, or `default` if it is missing or None."""
    here: Any = cfg
    for key in keys:
        if not isinstance(here, dict):
            return default
        here = here.get(key)
    return default if here is None else here


def get_env_value(key: str) -> str | None:
    """Return a variable or secret, or None; an empty variable in the environment is returned as ""."""
    if os.environ.get(key) == "":
        return ""
    try:
        return _credentials().get(key)
    except ValueError:  # an invalid name of a variable
        return None


def get_env_path() -> Path:
    """Return the path of `.env` of the home."""
    return home_paths(hermes_home()).env


def load_env() -> dict[str, str]:
    """Return the variables of `.env`; an unreadable file is empty, with a warning in the log."""
    try:
        return read_env_file(get_env_path())
    except (ConfigError, OSError) as exc:
        logger.warning("%s", exc)
        return {}


def remove_env_value(key: str) -> bool:
    """Remove a variable from `.env` and from this process; return whether the file had it.

    Raises:
        UserError: the home is managed by Nix.
    """
    where = home_paths(hermes_home())
    if where.declared is not None:
        raise UserError(
            f"{key} cannot be removed: the config of this home is declared by Nix",
            hint="Use services.hermes-agent.credentials or environmentFiles.",
        )
    had = key in load_env()
    if had:
        write_env_value(where.env, key, None)
    os.environ.pop(key, None)
    return had


def save_env_value(key: str, value: str) -> None:
    """Set a variable in `.env` (mode 0600) and in this process.

    Raises:
        UserError: the home is managed by Nix, or the name or value is invalid.
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


def write_platform_config_field(platform_key: str, field_key: str, value: Any, *, raw: bool = False) -> None:
    """Set a field of `platforms.<platform_key>`.

    Args:
        field_key: its name; dots separate nested keys.
        raw: keep the type of `value`; otherwise it is written as text.

    Raises:
        UserError: the key is declared by Nix, or the file cannot be written.
        ConfigError: the result would be invalid.
    """
    set_value(hermes_home(), ("platforms", platform_key, *field_key.split(".")), value if raw else str(value))


def atomic_config_write(config_path: Path | str, data: Any, **kwargs: Any) -> None:
    """Replace a YAML file atomically.

    Args:
        kwargs: passed to `yaml.safe_dump`; without any, the config's style is used.
    """
    text = yaml.safe_dump(data, **kwargs) if kwargs else dump_yaml(data)
    write_atomic(Path(config_path), text)


def get_config_path() -> Path:
    """Return the path of the effective `config.yaml`."""
    return home_paths(hermes_home()).effective


def fast_safe_load(stream: Any) -> Any:
    """Parse YAML safely, with the C loader if it is available."""
    return yaml.load(stream, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def prefers_gateway(config_section: str) -> bool:
    """Return whether `<config_section>.use_gateway` is on; False if the config cannot be read."""
    try:
        wish = cfg_get(load_config_readonly(), config_section, "use_gateway", default=False)
    except ConfigError:
        return False
    return str(wish).strip().lower() in ("1", "true", "yes", "on")


def fal_key_is_configured() -> bool:
    """Return whether there is a key for FAL in any credential source."""
    return bool((get_env_value("FAL_KEY") or "").strip())


def managed_nous_tools_enabled(**options: Any) -> bool:
    """Return False: there is no client of upstream's paid tool gateway."""
    return False


def get_max_bytes() -> int:
    """Return the maximum size of a command's output for the model, in bytes."""
    return _limit("max_bytes", 50_000)


def get_max_lines() -> int:
    """Return the maximum number of lines of a file for the model at once."""
    return _limit("max_lines", 2_000)


def get_max_line_length() -> int:
    """Return the maximum length of a line for the model, in characters."""
    return _limit("max_line_length", 2_000)


def _limit(name: str, default: int) -> int:
    value = (load_config_readonly().get("tool_output") or {}).get(name)
    return value if isinstance(value, int) and value > 0 else default


def _loaded() -> Config:
    """Return the home's config; while a file is invalid, the last valid config."""
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
    """Yield each path with a new or different value."""
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


_IN_URL = re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)|(?<=[?&])((?:api_?key|token|secret|password)=)[^&\s#]+", re.I)


class UnscopedSecretError(RuntimeError):
    """A secret was requested outside its scope; never raised, since a process serves a single home."""


def get_secret(name: str, default: str | None = None) -> str | None:
    """Return the secret or variable `name` of this home, or `default` if it does not exist."""
    value = get_env_value(name)
    return default if value is None else value


def redact_sensitive_text(
    text: str,
    *,
    force: bool = False,
    code_file: bool = False,
    file_read: bool = False,
    redact_url_credentials: bool = False,
) -> str:
    """Return `text` with known secrets, and what looks like a secret, masked.

    Args:
        force: mask even if `security.redact_secrets` is off.
        code_file: accepted and ignored; the result does not depend on it.
        file_read: accepted and ignored.
        redact_url_credentials: also mask user, password and key parameters of URLs.
    """
    if not text or not isinstance(text, str):
        return text
    security = load_config_readonly().get("security") or {}
    if not force and security.get("redact_secrets") is False:
        return text
    masked = redactor(text)
    if redact_url_credentials:
        masked = _IN_URL.sub(lambda m: (m.group(1) or "") + MASK, masked)
    return masked


@lazy_dataclass
class CachedFetch:
    """Secrets with the time at which they were fetched."""

    secrets: dict[str, str]
    fetched_at: float
    """Seconds since the epoch."""

    def is_fresh(self, ttl_seconds: float) -> bool:
        """Return whether the secrets are younger than `ttl_seconds`; always False for 0 or less."""
        return 0 <= time.time() - self.fetched_at < ttl_seconds


class DiskCache(Generic[Key]):
    """Cache of fetched secrets in a file in `HOME/cache/`, readable only by its owner.

    Args:
        basename: a name without folders, such as `vault_cache.json`.
        key_serializer: converts a key to text.
    """

    def __init__(self, basename: str, *, key_serializer: Callable[[Key], str] = str) -> None:
        if Path(basename).name != basename:
            raise ValueError(f"{basename!r} is no file name")
        self._filename = basename
        self._text = key_serializer

    def path(self, home_path: Path | None = None) -> Path:
        """Return the path of the file in `home_path`; None means the current home."""
        return (home_path or hermes_home()) / "cache" / self._filename

    def read(self, key: Key, ttl_seconds: float, home_path: Path | None = None) -> CachedFetch | None:
        """Return the secrets stored under `key`, or None if they are missing or older than `ttl_seconds`."""
        kept = self._entries(home_path).get(self._text(key))
        if not isinstance(kept, Mapping):
            return None
        secrets, fetched_at = kept.get("secrets"), kept.get("fetched_at")
        if not isinstance(secrets, Mapping) or not isinstance(fetched_at, int | float):
            return None
        found = CachedFetch({str(k): str(v) for k, v in secrets.items()}, float(fetched_at))
        return found if found.is_fresh(ttl_seconds) else None

    def write(self, key: Key, entry: CachedFetch, ttl_seconds: float, home_path: Path | None = None) -> None:
        """Store `entry`, unless `ttl_seconds` is 0 or less; a write error is only logged."""
        if ttl_seconds <= 0:
            return
        entries = self._entries(home_path)
        entries[self._text(key)] = {"secrets": dict(entry.secrets), "fetched_at": entry.fetched_at}
        file = self.path(home_path)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(file, json.dumps(entries), mode=PRIVATE)
        except OSError as exc:
            logger.warning("fetched secrets cannot be kept in %s: %s", file, exc.strerror or exc)

    def clear(self, home_path: Path | None = None) -> None:
        """Remove the file."""
        with contextlib.suppress(OSError):
            self.path(home_path).unlink()

    def _entries(self, home_path: Path | None) -> dict[str, Any]:
        try:
            loaded = json.loads(self.path(home_path).read_text(encoding="utf-8"))
        except (OSError, ValueError):  # missing or damaged: a cache starts empty
            return {}
        return loaded if isinstance(loaded, dict) else {}
