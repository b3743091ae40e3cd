"""Cache of the manifests and settings that a listing reads: `plugins_seen.json` in the home.

An entry is valid while the size, times and inode of its file are unchanged and the program is the same. With it a
listing imports neither PyYAML nor the rules of the config, which cost more than the rest of the listing. The settings
under `plugins` contain no secret. Settings that name a variable are not cached, since they depend on it.

`quiet_or_debug` sends the log of the plugin loader to stderr with HERMES_PLUGINS_DEBUG=1, and nowhere otherwise. Source
of that format: plugin contract §1.10.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.config import home_paths, load
from hermes_agent.plugins.activation import PluginSettings
from hermes_agent.plugins.discovery import Discovery, discover, is_on
from hermes_agent.plugins.entry_points import program_identity
from hermes_agent.plugins.manifest import PluginManifest, read_manifest

if TYPE_CHECKING:
    from hermes_agent.config.schema import Node

logger = logging.getLogger(__name__)

PLUGIN_LOGGERS = ("hermes_agent.plugins", "hermes_agent.app.plugins", "hermes_agent.app.manifest_cache")
"""Loggers of the plugin loader and of its administration."""


def quiet_or_debug(environ: Mapping[str, str]) -> None:
    """Keep the log out of the output of a command, unless the user debugs plugins."""
    if is_on(environ.get("HERMES_PLUGINS_DEBUG")):
        handler: logging.Handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("[plugins] %(levelname)s %(message)s"))
        for name in PLUGIN_LOGGERS:
            _add_handler(name, handler, logging.DEBUG)
    else:  # without a handler Python prints warnings to stderr
        _add_handler("hermes_agent", logging.NullHandler(), logging.NOTSET)


def _add_handler(name: str, handler: logging.Handler, level: int) -> None:
    log = logging.getLogger(name)
    if not log.handlers:
        log.setLevel(level or log.level)
        log.addHandler(handler)


CACHE_NAME = "plugins_seen.json"
SETTLED_NS = 2_000_000_000
"""A file that changed less than this before it was read is not cached: its next change may keep the time."""


class ManifestCache:
    """The cached reads of one home."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._program = [program_identity(), PluginManifest._fields, PluginSettings._fields]
        self._stored = self._read()
        self._current: dict[str, Any] = {}

    def manifest(self, file: str, *, source: str, category: str = "") -> PluginManifest:
        """Return the manifest as `read_manifest` does."""

        def read() -> tuple[PluginManifest, bool]:
            manifest = read_manifest(file, source=source, category=category)
            return manifest, not manifest.notes  # notes are logged each time

        files = (file, f"{os.path.dirname(file)}/__init__.py")  # noqa: PTH120 - the kind is in one of them
        return PluginManifest(*self._recall("\0".join((source, category, file)), files, read))

    def settings(self) -> PluginSettings:
        """Return the settings of the home.

        Raises:
            ConfigError: a setting is wrong.
        """

        def read() -> tuple[PluginSettings, bool]:
            config = load(self._home)
            return PluginSettings.of(config.values), "${" not in str(config.raw)

        where = home_paths(self._home)
        kept = self._recall("settings", [str(file) for file in (where.editable, where.declared) if file], read)
        values: Any = (tuple(value) if isinstance(value, list) else value for value in kept)
        return PluginSettings(*values)

    def save(self) -> None:
        """Write new entries; a home without write access keeps none."""
        if self._current == self._stored:
            return
        from hermes_agent.system.files import PRIVATE, write_atomic  # an unchanged listing writes nothing

        try:
            text = json.dumps({"program": self._program, "seen": self._current})
            write_atomic(self._home / CACHE_NAME, text, mode=PRIVATE)
        except OSError as exc:
            logger.debug("%s is not written: %s", CACHE_NAME, exc)

    def _read(self) -> dict[str, Any]:
        try:
            document = json.loads((self._home / CACHE_NAME).read_bytes())
            as_written = json.loads(json.dumps(self._program))
            return dict(document["seen"]) if document["program"] == as_written else {}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as exc:
            logger.debug("%s is not used: %r", CACHE_NAME, exc)
            return {}

    def _recall(
        self, name: str, files: Sequence[str], read: Callable[[], tuple[tuple[Any, ...], bool]]
    ) -> Sequence[Any]:
        """Return the cached value, or that of `read`, which also says whether it may be cached."""
        stamps = [_stamp(file) for file in files]
        entry = self._stored.get(name)
        if entry is None or entry[0] != stamps:
            values, keep = read()
            settled = time.time_ns() - SETTLED_NS
            if not keep or any(stamp and stamp[1] > settled for stamp in stamps):
                return values
            plain = [list(value) if isinstance(value, tuple) else value for value in values]
            if not _is_json(plain):
                return values
            entry = [stamps, plain]
        self._current[name] = entry
        kept: list[Any] = entry[1]
        return kept


def _stamp(file: str) -> list[int] | None:
    try:
        info = os.stat(file)  # noqa: PTH116 - two for each plugin
    except OSError:
        return None
    return [info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino]


def _is_json(value: list[Any]) -> bool:
    """Say whether JSON keeps a value unchanged: YAML has dates, and keys that are not text."""
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError):
        return False


def find_plugins(home: Path) -> Discovery:
    """Return all plugins of a home, also disabled ones; nothing is loaded."""
    quiet_or_debug(os.environ)
    return discover(home, os.environ, Path.cwd(), read=ManifestCache(home).manifest)


def declared_schema(home: Path, found: Discovery | None = None) -> Node:
    """Return the schema with the options of all plugins of a home.

    Args:
        found: the plugins; None scans for them.
    """
    from hermes_agent.plugins.config_schema import schema_with_options  # a listing does not need it

    return schema_with_options((found or find_plugins(home)).plugins.values())
