"""Filters and scripts of the routes of upstream's webhook adapter.

A filter names a field with dots (`payload.action`, `headers.X-Event`, `event_type`) and one operator. A script of
`HOME/scripts` gets the payload on standard input; what it prints replaces the payload, and nothing drops the event.

Source: plugin contract §8.2.
"""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hermes_agent.compat.config import redact_sensitive_text
from hermes_agent.config import hermes_home
from hermes_agent.system.processes import tool_environment

logger = logging.getLogger(__name__)

DEFAULT_SCRIPT_TIMEOUT_SECONDS = 30
_MISSING = object()
_SHELLS = frozenset({".sh", ".bash"})


class WebhookRouteProcessor:
    """Decides whether a route takes an event, and changes its payload.

    Args:
        script_timeout_seconds: limit of a script.
    """

    def __init__(self, *, script_timeout_seconds: int = DEFAULT_SCRIPT_TIMEOUT_SECONDS) -> None:
        self.script_timeout_seconds = max(1, int(script_timeout_seconds))

    def route_filters_match(
        self, route_config: Mapping[str, Any], payload: dict[str, Any], event_type: str, headers: Any
    ) -> bool:
        """Return whether an event passes all filters of a route; a malformed list passes nothing."""
        filters = route_config.get("filters") or []
        if isinstance(filters, Mapping):
            filters = [filters]
        if not isinstance(filters, list):
            logger.warning("webhook: `filters` is %s: a list or a mapping is needed", type(filters).__name__)
            return False
        return all(self.filter_matches(spec, payload, event_type, headers) for spec in filters)

    def filter_matches(self, spec: Any, payload: dict[str, Any], event_type: str, headers: Any) -> bool:
        """Return whether an event passes one filter: `all`, `any`, `not`, or a field with an operator."""
        if not isinstance(spec, Mapping):
            logger.warning("webhook: filter %r is no mapping; the event is dropped", spec)
            return False

        def passes(inner: Any) -> bool:
            return self.filter_matches(inner, payload, event_type, headers)

        for name, combine in (("all", all), ("any", any)):
            if name in spec:
                return isinstance(spec[name], list) and combine(passes(inner) for inner in spec[name])
        if "not" in spec:
            return not passes(spec["not"])
        operator = next((name for name in _OPERATORS if name in spec), None)
        if operator is None:
            logger.warning("webhook: filter %r has no operator: %s", dict(spec), ", ".join(_OPERATORS))
            return False
        found = self.resolve_filter_field(spec.get("field"), payload, event_type, headers)
        return _OPERATORS[operator](found, spec[operator])

    def resolve_filter_field(self, field: Any, payload: dict[str, Any], event_type: str, headers: Any) -> Any:
        """Return what a field names in the payload, the event or the headers."""
        steps = [step for step in field.strip().split(".") if step] if isinstance(field, str) else []
        roots = {
            "payload": payload.get("payload", payload),
            "event": event_type,
            "event_type": event_type,
            "headers": dict(headers or {}),
        }
        found: Any = roots.get(steps[0], payload) if steps else _MISSING
        for step in steps[1:] if steps and steps[0] in roots else steps:
            if isinstance(found, Mapping):
                found = found.get(step, _MISSING)
            elif isinstance(found, list) and step.isdigit() and int(step) < len(found):
                found = found[int(step)]
            else:
                return _MISSING
        return found

    def run_route_script(self, script_value: Any, payload: dict[str, Any]) -> tuple[bool, dict[str, Any] | None]:
        """Run a route's script; return whether the event goes on, and its new payload (None: as it was).

        The script gets no secret of the environment. A failure drops the event, and the log says why.
        """
        try:
            path = _script_path(script_value)
            command = ["bash", str(path)] if path.suffix.lower() in _SHELLS else [sys.executable, str(path)]
            done = subprocess.run(
                command,
                input=json.dumps(payload),
                capture_output=True,
                text=True,
                timeout=self.script_timeout_seconds,
                cwd=path.parent,
                env=tool_environment(os.environ),
                check=True,
            )
        except (ValueError, OSError, subprocess.SubprocessError) as exc:
            logger.warning("webhook: event dropped: script %r failed: %s", script_value, exc)
            return False, None
        return _printed(redact_sensitive_text(done.stdout.strip()), payload)


def _script_path(value: Any) -> Path:
    """Return a script below `HOME/scripts`.

    Raises:
        ValueError: it is not there, or is no file.
    """
    scripts = (hermes_home() / "scripts").resolve()
    text = os.path.expandvars(str(value or "").strip())
    if not text:
        raise ValueError("no path is given")
    named = hermes_home() / text.removeprefix("~/.hermes/") if text.startswith("~/.hermes/") else Path(text)
    path = (scripts / named.expanduser()).resolve()
    if not path.is_relative_to(scripts):
        raise ValueError(f"it is not in {scripts}")
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    return path


def _printed(text: str, payload: dict[str, Any]) -> tuple[bool, dict[str, Any] | None]:
    """Return what a script's output means; a text that is no JSON becomes the field `script_output`."""
    if not text or text == "[SILENT]":
        return False, None
    try:
        found = json.loads(text)
    except ValueError:
        return True, {**payload, "script_output": text}
    if not isinstance(found, dict):
        logger.warning("webhook: event dropped: its script printed a JSON value that is no object")
        return False, None
    if found.get("[SILENT]") is True or found.get("__hermes_ignore__") is True:
        return False, None
    return True, found


def _text(value: Any) -> str:
    if value is _MISSING:
        return ""
    return json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else str(value)


def _contains(found: Any, wanted: Any) -> bool:
    if found is _MISSING:
        return False
    if isinstance(found, Mapping | list):
        return wanted in found
    return str(wanted) in _text(found)


def _in_file(found: Any, name: Any) -> bool:
    path = hermes_home() / os.path.expandvars(str(name)).removeprefix("~/.hermes/")
    try:
        text = path.expanduser().read_text(encoding="utf-8")
    except OSError as exc:
        logger.warning("webhook: the filter's file %s cannot be read: %s", path, exc)
        return False
    try:
        values = json.loads(text)
    except ValueError:
        values = [line.strip() for line in text.splitlines() if line.strip()]
    return found in (values if isinstance(values, list | dict) else [values])


def _matches(found: Any, pattern: Any) -> bool:
    try:
        return found is not _MISSING and re.search(str(pattern), _text(found)) is not None
    except re.error as exc:
        logger.warning("webhook: the filter's pattern %r is no regular expression: %s", pattern, exc)
        return False


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "exists": lambda found, wanted: (found is not _MISSING) is bool(wanted),
    "missing": lambda found, wanted: (found is _MISSING) is bool(wanted),
    "equals": lambda found, wanted: found is not _MISSING and found == wanted,
    "not_equals": lambda found, wanted: found is _MISSING or found != wanted,
    "contains": _contains,
    "in": lambda found, wanted: isinstance(wanted, list) and found in wanted,
    "in_file": _in_file,
    "regex": _matches,
}
"""By name: whether a field's value passes."""
