"""Show a config without its secrets."""

from __future__ import annotations

import re
from typing import Any

from hermes_agent.config.keypath import KeyPath
from hermes_agent.config.load import Config
from hermes_agent.config.schema import MISSING, Node, is_secret
from hermes_agent.config.values import fill_defaults, find_value, has_variable
from hermes_agent.core.redact import MASK, redactor

__all__ = ["masked"]

_USER_INFO = re.compile(r"(?<=://)[^/@\s]+@")


def masked(config: Config, path: KeyPath = (), *, changed: bool = False, schema: Node | None = None) -> Any:
    """Return the value in effect at `path` as it may be shown; `MISSING` when there is none.

    Secrets are masked. A text with a variable is shown as it was written, so that what it stands for is not.

    Args:
        changed: leave the defaults out.
        schema: the whole schema with the options of plugins: their defaults are shown, their secrets masked.
    """
    written = config.written
    values = written if changed else config.values if schema is None else fill_defaults(config.values, schema)
    return _masked(find_value(values, path), path, written, schema)


def _masked(value: Any, path: KeyPath, written: dict[str, Any], schema: Node | None) -> Any:
    if isinstance(value, dict):
        return {key: _masked(item, (*path, key), written, schema) for key, item in value.items()}
    if isinstance(value, list):
        return [_masked(item, (*path, index), written, schema) for index, item in enumerate(value)]
    original = find_value(written, path)
    if original is not MISSING and has_variable(original):
        return original
    if not isinstance(value, str):
        return MASK if value is not MISSING and _is_number(value) and is_secret(path, schema) else value
    if value and is_secret(path, schema):
        return MASK
    return _USER_INFO.sub(f"{MASK}@", redactor(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
