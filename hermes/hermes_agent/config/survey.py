"""What a valid config holds that the agent itself does not use: plugins' own keys, keys without effect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hermes_agent.config.document import ConfigDocument
from hermes_agent.config.findings import ConfigFinding, FindingLevel
from hermes_agent.config.keypath import KeyPath, render_path
from hermes_agent.config.schema import OPEN, USED, Node, child, leaves, load_schema, resolve
from hermes_agent.config.values import walk

__all__ = ["count_keys", "plugin_keys", "keys_without_effect"]


def count_keys(value: dict[str, Any]) -> int:
    """Return the number of values that are written in a config; a list counts as one."""
    return len({tuple(part for part in path if isinstance(part, str)) for path, _ in walk(value)} - {()})


def plugin_keys(document: ConfigDocument, schema: Node | None = None) -> list[ConfigFinding]:
    """Return a note for each key that no schema declares, in a place where plugins keep theirs.

    Args:
        schema: the whole schema, when it is not `schema.json`.
    """
    return [
        _note(document, path, _describe_owner(path, owner))
        for path, owner in _undeclared(document.value, load_schema() if schema is None else schema, ())
    ]


def keys_without_effect(document: ConfigDocument) -> list[ConfigFinding]:
    """Return a finding for each key that is accepted and does nothing, one for a block of which all does nothing.

    It is a note; a warning where the key asks for protection; an error where nothing may run without that.
    """
    return [
        _note(
            document, path, f"no effect: `{render_path(path)}`. {node['x-effect']}", _LEVELS[node.get("x-protects", "")]
        )
        for path, node in _idle(_hooks_by_event(document.value), load_schema(), ())
    ]


_LEVELS: dict[str, FindingLevel] = {"": "note", "warn": "warning", "refuse": "error"}


def _note(document: ConfigDocument, path: KeyPath, message: str, level: FindingLevel = "note") -> ConfigFinding:
    spot = document.position(path)
    return ConfigFinding(
        document.name, spot.line if spot else None, spot.column if spot else None, render_path(path), message, level
    )


def _describe_owner(path: KeyPath, owner: str) -> str:
    if owner:
        return f"no effect: `{render_path(path)}`. Plugin `{owner}` declares no such key"
    return f"not ours, kept for plugins: `{render_path(path)}`{_declared_elsewhere(path)}"


def _declared_elsewhere(path: KeyPath) -> str:
    """Return a question when a key of this name is declared in one other place: it may have lost its indentation."""
    places = [place for place, _ in leaves() if place[-1] == path[-1] and "<name>" not in place]
    return f" (did you mean `{render_path(places[0])}`?)" if len(places) == 1 else ""


def _undeclared(value: Any, node: Node, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    node = resolve(node)
    if not isinstance(value, dict):
        return
    for key, item in value.items():
        sub = child(node, key)
        if sub is OPEN:
            if node.get("x-open"):
                yield (*path, key), node.get("x-owner", "")
        elif sub is not None:
            yield from _undeclared(item, sub, (*path, key))


def _idle(value: Any, node: Node, path: KeyPath, above: Node | None = None) -> Iterator[tuple[KeyPath, Node]]:
    """Yield what is written and has no effect, with its schema.

    Args:
        above: the schema of a block without effect that holds `value`: of its keys only those that ask for protection
            are yielded, since the block is one finding.
    """
    for key, item in value.items():
        sub = child(node, key)
        if sub is None or sub is OPEN or item in (None, [], {}):
            continue
        said = sub.get("x-effect", above["x-effect"] if above else USED)
        if said == USED:
            yield from _idle(item, sub, (*path, key)) if isinstance(item, dict) else ()
        elif isinstance(item, dict) and "properties" in sub:
            inner = list(_idle(item, sub, (*path, key), {"x-effect": said}))
            told = [below for below in inner if "x-protects" in below[1]]
            yield from told or ([((*path, key), {**sub, "x-effect": said})] if inner and above is None else inner)
        elif item not in sub.get("x-idle", ()):
            yield (*path, key), {**sub, "x-effect": said}


def _hooks_by_event(value: dict[str, Any]) -> dict[str, Any]:
    """Return the values with `hooks` as a mapping, where it is a list of mappings with `event`."""
    hooks = value.get("hooks")
    if not isinstance(hooks, list):
        return value
    return {**value, "hooks": {str(hook.get("event")): [hook] for hook in hooks if isinstance(hook, dict)}}
