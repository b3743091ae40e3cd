"""The transcript. Source: plugin contract §12.1."""

from pathlib import Path as _Path

from hermes_agent.compat.session_db import SessionDB as SessionDB
from hermes_agent.compat.session_db import apply_wal_with_fallback as apply_wal_with_fallback
from hermes_agent.compat.session_db import default_path as _default_path


def __getattr__(name: str) -> _Path:
    if name == "DEFAULT_DB_PATH":
        return _default_path()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
