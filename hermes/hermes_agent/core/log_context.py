"""Fields of a log line that belong to the running task; every handler adds them."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

_NONE: Mapping[str, str] = MappingProxyType({})
_FIELDS: contextvars.ContextVar[Mapping[str, str]] = contextvars.ContextVar("hermes_log_fields", default=_NONE)
_PLUGINS: dict[str, str] = {}
"""Plugin key by the name of the module that the plugin's loggers are named after."""
_EXTRA = re.compile(r"HERMES_([A-Z0-9_]{1,56})")
_PLAIN = re.compile(r"[^\s\"=]+")


@contextlib.contextmanager
def log_context(
    *,
    session: str | None = None,
    turn: str | None = None,
    plugin: str | None = None,
    tool: str | None = None,
) -> Iterator[None]:
    """Add fields to each log line of this task, and of the tasks and worker calls that it starts.

    Args:
        session, turn, plugin, tool: None keeps the value of the outer context, an empty text removes the field.
    """
    given = {"session": session, "turn": turn, "plugin": plugin, "tool": tool}
    merged = {**_FIELDS.get(), **{name: value for name, value in given.items() if value is not None}}
    token = _FIELDS.set({name: value for name, value in merged.items() if value})
    try:
        yield
    finally:
        # An async generator that another task closes ends in the context of that task, which does not have this token.
        with contextlib.suppress(ValueError):
            _FIELDS.reset(token)


def log_fields() -> dict[str, str]:
    """Return the current fields: keys among session, turn, plugin and tool."""
    return dict(_FIELDS.get())


def clear_attributions() -> None:
    """Attribute no logger to a plugin, when a separate log begins or ends."""
    _PLUGINS.clear()


def attribute_loggers(module: str, plugin: str) -> None:
    """Attribute the records of the logger `module` and its children to a plugin.

    A plugin in the log context counts instead.
    """
    _PLUGINS[module] = plugin


def record_fields(record: logging.LogRecord) -> dict[str, str]:
    """Return the fields of a record: of the context, the plugin of its logger, and those in `extra`.

    The latter have keys `HERMES_…`; their names are in lower case, without `HERMES_`.
    """
    fields = log_fields()
    if "plugin" not in fields and (plugin := _plugin_of(record.name)):
        fields["plugin"] = plugin
    for name, value in record.__dict__.items():
        if name[:7] == "HERMES_" and (match := _EXTRA.fullmatch(name)) is not None:
            fields[match[1].lower()] = str(value)
    return fields


def _plugin_of(name: str) -> str:
    while name and name not in _PLUGINS:
        name = name.rpartition(".")[0]
    return _PLUGINS.get(name, "")


def format_fields(fields: Mapping[str, str]) -> str:
    """Return the fields as ` session=… plugin=…`; a value with blanks, quotes or `=` is quoted."""
    return "".join([f" {name}={_quoted(value)}" for name, value in fields.items()])


def _quoted(value: str) -> str:
    if _PLAIN.fullmatch(value):
        return value
    escaped = " ".join(value.split()).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
