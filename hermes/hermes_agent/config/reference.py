"""The reference page of the config and the types of its values; `make docs` writes both.

`python -m hermes_agent.config.reference` prints the page, with the argument `types` the types.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from hermes_agent.config.schema import USED, KeyPath, Node, effect, expand_shorthand, load_schema, resolve, types

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


_STUB = """# Made from schema.json by `make docs`; a test compares.
from typing import Any, Literal

from hermes_agent.config.settings import Section
"""
_SCALARS = {"string": "str", "boolean": "bool", "integer": "int", "number": "float", "object": "dict[str, Any]"}


def stub() -> str:
    """Return `schema_types.pyi`: a class for each mapping with declared keys."""
    classes: dict[str, str] = {}
    _add_class("Settings", load_schema(), classes)
    return "\n".join([_STUB, *classes.values()])


def _add_class(name: str, node: Node, classes: dict[str, str]) -> None:
    rows = [
        f"    {key}: {_value_type(name, key, sub, classes)}\n"
        for key, sub in node["properties"].items()
        if key.isidentifier() and not key.startswith("_")
    ]
    classes[name] = f"class {name}(Section):\n{''.join(rows)}"


def _value_type(above: str, key: str, node: Node, classes: dict[str, str]) -> str:
    """Return the type of a key, and add the classes that it needs."""
    shared, node = node.get("$ref", ""), resolve(node)
    if node.get("properties"):
        words = shared.rpartition("/")[2] if shared else f"{above.removesuffix('Section')}_{key}"
        name = "".join(word[:1].upper() + word[1:] for word in words.removeprefix("Settings").split("_")) + "Section"
        if name not in classes:
            _add_class(name, node, classes)
        return name
    kinds = [kind for kind in types(node) if kind != "null"]
    if _is_choice(node):
        words = [expand_shorthand(value, node) for value in node["enum"] if value is not None]
        text = f"Literal[{', '.join(dict.fromkeys(map(_literal, words)))}]"
    elif len(kinds) == 1:
        text = _SCALARS.get(kinds[0]) or f"list[{_SCALARS.get(str(resolve(node.get('items', {})).get('type')), 'Any')}]"
    else:
        return "Any"
    return f"{text} | None" if "null" in types(node) or ("default" not in node and "object" not in kinds) else text


def _is_choice(node: Node) -> bool:
    """Return whether a value is one of some words; a text of which empty is one is no choice."""
    return "string" in types(node) and "enum" in node and "" not in node["enum"]


def _literal(value: Any) -> str:
    return repr(value) if isinstance(value, bool) else json.dumps(value)


if __name__ == "__main__":
    sys.stdout.write(stub() if sys.argv[1:] == ["types"] else markdown())
