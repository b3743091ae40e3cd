"""Show a config without its secrets."""

from __future__ import annotations

import re
from typing import Any

from hermes_agent.config.keypath import KeyPath
from hermes_agent.config.load import Config
from hermes_agent.config.schema import MISSING, is_secret
from hermes_agent.config.values import find, has_variable
from hermes_agent.core.redact import MASK, redactor

__all__ = ["shown"]

_USER_INFO = re.compile(r"(?<=://)[^/@\s]+@")


def shown(config: Config, path: KeyPath = (), *, changed: bool = False) -> Any:
    """Return the value in effect at `path` as it may be shown; `MISSING` when there is none.

    Secrets are masked. A text with a variable is shown as it was written, so that what it stands for is not.

    Args:
        changed: leave the defaults out.
    """
    written = config.written
    return _shown(find(written if changed else config.values, path), path, written)


def _shown(value: Any, path: KeyPath, written: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        return {key: _shown(item, (*path, key), written) for key, item in value.items()}
    if isinstance(value, list):
        return [_shown(item, (*path, index), written) for index, item in enumerate(value)]
    original = find(written, path)
    if original is not MISSING and has_variable(original):
        return original
    if not isinstance(value, str):
        return MASK if value is not MISSING and _is_number(value) and is_secret(path) else value
    if value and is_secret(path):
        return MASK
    return _USER_INFO.sub(f"{MASK}@", redactor(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
