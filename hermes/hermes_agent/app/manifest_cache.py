"""Where the loader's log goes in commands that configure no log: nowhere, or, with HERMES_PLUGINS_DEBUG=1, to stderr.

Source of the format: plugin contract §1.10. The variable is read at each call.

What a listing has read, kept so that the next one parses nothing that is as it was: `plugins_seen.json` in the home.

What came of a file counts while its size, times and inode are those that were seen, and while this is the program that
read it. PyYAML and the rules of the config, which cost more than all else of a listing, are then not even imported.
The settings under `plugins` hold no secret; those of a config that names a variable depend on more, and are not kept.
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
    """Keep the package's log out of the command's output, unless the user debugs plugins."""
    if is_on(environ.get("HERMES_PLUGINS_DEBUG")):
        handler: logging.Handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("[plugins] %(levelname)s %(message)s"))
        for name in PLUGIN_LOGGERS:
            _add_handler(name, handler, logging.DEBUG)
    else:  # without any handler Python prints warnings to stderr
        _add_handler("hermes_agent", logging.NullHandler(), logging.NOTSET)


def _add_handler(name: str, handler: logging.Handler, level: int) -> None:
    log = logging.getLogger(name)
    if not log.handlers:
        log.setLevel(level or log.level)
        log.addHandler(handler)


CACHE_NAME = "plugins_seen.json"
SETTLED_NS = 2_000_000_000
"""A file that was changed less than this before it was read may change again without a new time: it is not kept."""


class ManifestCache:
    """What was read in one home."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._program = [program_identity(), PluginManifest._fields, PluginSettings._fields]
        self._stored = self._read()
        self._current: dict[str, Any] = {}

    def manifest(self, file: str, *, source: str, category: str = "") -> PluginManifest:
        """Return what `read_manifest` would."""

        def read() -> tuple[PluginManifest, bool]:
            manifest = read_manifest(file, source=source, category=category)
            return manifest, not manifest.notes  # what is odd is said each time

        files = (file, f"{os.path.dirname(file)}/__init__.py")  # noqa: PTH120 - the kind is in one of them
        return PluginManifest(*self._recall("\0".join((source, category, file)), files, read))

    def settings(self) -> PluginSettings:
        """Return the settings of the home.

        Raises:
            ConfigError: one is wrong.
        """

        def read() -> tuple[PluginSettings, bool]:
            config = load(self._home)
            return PluginSettings.of(config.values), "${" not in str(config.raw)

        where = home_paths(self._home)
        kept = self._recall("settings", [str(file) for file in (where.editable, where.declared) if file], read)
        values: Any = (tuple(value) if isinstance(value, list) else value for value in kept)
        return PluginSettings(*values)

    def save(self) -> None:
        """Write what is new; a home that cannot be written goes without."""
        if self._current == self._stored:
            return
        from hermes_agent.system.files import PRIVATE, write_atomic  # a listing like the one before writes nothing

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
        """Return what came of the files: as it was kept, or as `read` gives it, which also says whether to keep it."""
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
    """Say whether JSON gives it back as it is: YAML has dates, and keys that are no text."""
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError):
        return False


def find_plugins(home: Path) -> Discovery:
    """Return every plugin that is there, enabled or not; nothing is loaded."""
    quiet_or_debug(os.environ)
    return discover(home, os.environ, Path.cwd(), read=ManifestCache(home).manifest)


def declared_schema(home: Path, found: Discovery | None = None) -> Node:
    """Return the whole schema with the options of every plugin that is there.

    Args:
        found: the plugins; None looks for them.
    """
    from hermes_agent.plugins.config_schema import schema_with_options  # a listing does not need it

    return schema_with_options((found or find_plugins(home)).plugins.values())
