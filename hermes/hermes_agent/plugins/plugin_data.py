"""Data files of plugins: `ctx.state`, and the folder and database of "plugins.plugin_storage".

They are stored in `HOME/plugin-data` and stay when the plugin is updated or removed. Source: plugin contract of 0.23
§5.4, §6.3.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hermes_agent.config import hermes_home
from hermes_agent.system.files import PRIVATE, write_atomic
from hermes_agent.system.locks import KeyedLocks, hold_lock

QUOTA_BYTES = 10 * 2**20
FOLDER = "plugin-data"
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_threads = KeyedLocks()


def state_namespace(plugin_id: str) -> str:
    """Return the name of the data folder of a plugin's state and of a portable plugin."""
    slug = re.sub(r"[^a-z0-9_-]", "-", plugin_id.lower()).strip("-_") or "plugin"
    return f"agent-plugin-{slug}-{hashlib.sha256(plugin_id.encode()).hexdigest()[:8]}"


class PluginState:
    """A durable JSON object of one plugin, shared by threads and processes.

    Args:
        plugin_id: the plugin's key.
        home: returns the home; looked up at each call.
    """

    quota_bytes = QUOTA_BYTES

    def __init__(self, plugin_id: str, home: Callable[[], Path] = hermes_home) -> None:
        self.plugin_id = plugin_id
        self._home = home

    @property
    def data_dir(self) -> Path:
        """The folder of the state; it may hold other files of the plugin."""
        return self._home() / FOLDER / state_namespace(self.plugin_id)

    @property
    def path(self) -> Path:
        """The file of the state."""
        return self.data_dir / "state.json"

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value, or `default` if there is none.

        Raises:
            ValueError: the key is unusable.
            RuntimeError: the file is damaged.
        """
        return self._read(self.path).get(_checked_key(key), default)

    def set(self, key: str, value: Any) -> None:
        """Store a value durably.

        Raises:
            ValueError: the key is unusable, the value is no JSON, or the state would exceed its quota.
            RuntimeError: the file is damaged; it stays as it is.
        """
        _checked_key(key)
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            raise ValueError(f"Plugin state value for '{key}' is not JSON-serializable") from None
        path = self.path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _threads.hold(str(path)), hold_lock(path):
            text = json.dumps({**self._read(path), key: value}, ensure_ascii=False)
            size = len(text.encode("utf-8", "surrogatepass"))
            if size > self.quota_bytes:
                raise ValueError(
                    f"Plugin state quota exceeded: {size} bytes with '{key}', at most {self.quota_bytes} are kept"
                )
            write_atomic(path, text, mode=PRIVATE)

    def _read(self, path: Path) -> dict[str, Any]:
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as exc:
            raise RuntimeError(f"Cannot parse plugin state {path}: {exc}; repair or remove the file") from exc
        if not isinstance(value, dict):
            raise RuntimeError(f"Cannot parse plugin state {path}: it is no JSON object; repair or remove the file")
        return value


def _checked_key(key: str) -> str:
    if not isinstance(key, str) or _KEY.fullmatch(key) is None or ".." in key:
        raise ValueError(f"plugin state key {key!r} is not usable: expected letters, digits and `_.:-`, at most 128")
    return key


def plugin_data_dir(name: str) -> Path:
    """Return the data folder of a plugin by its plain name; create it if it is missing.

    Raises:
        ValueError: the name cannot be that of a folder.
    """
    if not isinstance(name, str) or _NAME.fullmatch(name) is None or ".." in name:
        raise ValueError(f"plugin name {name!r} is not usable: expected letters, digits and `._-`, at most 64")
    folder: Path = hermes_home() / FOLDER / name
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def plugin_db(name: str, filename: str = "data.db") -> sqlite3.Connection:
    """Open a database in the data folder of a plugin, for any thread, with a write-ahead log.

    Raises:
        ValueError: the plugin's name or the file's name is unusable.
    """
    if _NAME.fullmatch(filename) is None or ".." in filename:
        raise ValueError(f"file name {filename!r} is not usable: expected letters, digits and `._-`, at most 64")
    connection = sqlite3.connect(plugin_data_dir(name) / filename, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    return connection
