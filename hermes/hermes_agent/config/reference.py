"""The reference page of the config; `python -m hermes_agent.config.reference` prints it."""

from __future__ import annotations

import json
import sys
from typing import Any

from hermes_agent.config.schema import USED, KeyPath, Node, effect, load_schema, resolve, types

_HEAD = """# Every key of `config.yaml`

Made from `hermes_agent/config/schema.json` by `python -m hermes_agent.config.reference`; a test compares.
How to use the file: [the operator's guide](../operator/config.md).

`<name>` is a name of your own. "no effect" marks what is accepted, so that plugins can read it, and does nothing by
itself in this release; the sentence says why. Keys of their own may be kept by plugins at the top level and under
`plugins`, `memory`, `auxiliary` and `platforms.<name>`; everywhere else an unknown key is refused.
"""
_TYPES = {"object": "mapping", "array": "list", "string": "text", "boolean": "true/false", "null": "null"}


def markdown() -> str:
    """Return the whole page."""
    parts = [_HEAD]
    single = {key: node for key, node in load_schema()["properties"].items() if not _is_block(resolve(node))}
    for key, node in load_schema()["properties"].items():
        if key not in single:
            parts.append(_block(key, resolve(node)))
    parts.append("## Single keys\n\n" + _table([row for key, node in single.items() for row in _rows((key,), node)]))
    return "\n".join(parts)


def _is_block(node: Node) -> bool:
    return bool(node.get("properties")) or isinstance(node.get("additionalProperties"), dict)


def _block(key: str, node: Node) -> str:
    sentence = effect((key,))
    text = f"## `{key}`\n\n{node['description']}"
    text += "" if sentence == USED else f" **No effect.** {sentence}"
    return f"{text}\n\n{_table(_inner((key,), node))}"


def _inner(path: KeyPath, node: Node) -> list[tuple[KeyPath, Node]]:
    rows: list[tuple[KeyPath, Node]] = []
    for key, sub in node.get("properties", {}).items():
        rows += _rows((*path, key), sub)
    other = node.get("additionalProperties")
    if isinstance(other, dict):
        rows += _rows((*path, "<name>"), other)
    return rows


def _rows(path: KeyPath, node: Node) -> list[tuple[KeyPath, Node]]:
    node = resolve(node)
    own = [(path, node)] if "description" in node or not _is_block(node) else []
    return own + (_inner(path, node) if _is_block(node) else [])


def _table(rows: list[tuple[KeyPath, Node]]) -> str:
    lines = ["| key | type | default | what it is |", "| --- | --- | --- | --- |"]
    lines += [
        f"| `{'.'.join(map(str, path))}` | {_type(node)} | {_default(node)} | {_what(path, node)} |"
        for path, node in rows
    ]
    return "\n".join(lines) + "\n"


def _type(node: Node) -> str:
    if "enum" in node:
        return ", ".join(f"`{_plain(value)}`" for value in node["enum"] if not isinstance(value, bool) and value != "")
    words = " or ".join(_TYPES.get(name, name) for name in types(node)) or "anything"
    if "array" in types(node) and "items" in node:
        words = words.replace("list", f"list of {node.get('x-what', '').removeprefix('a list of ') or 'values'}")
    limits = [f"≥ {node['minimum']}" if "minimum" in node else "", f"≤ {node['maximum']}" if "maximum" in node else ""]
    bounds = " ".join(filter(None, limits))
    unit = f", {node['x-unit']}" if "x-unit" in node else ""
    return f"{words} {bounds}{unit}".replace("  ", " ").replace(" ,", ",").strip()


def _default(node: Node) -> str:
    value = node.get("default", "")
    return "" if "default" not in node else f"`{_plain(value)}`"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def _what(path: KeyPath, node: Node) -> str:
    sentence, above = effect(path), effect(path[:1])
    text = str(node.get("description", "One value."))
    if node.get("x-secret"):
        text += " Secret."
    is_known = sentence == USED or (sentence == above and len(path) > 1)
    return text if is_known else f"{text} **No effect.** {sentence}"


if __name__ == "__main__":
    sys.stdout.write(markdown())
