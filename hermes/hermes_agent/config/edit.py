"""Edits of one key of a config file: comments and order stay; the result is valid or nothing changes.

Each way to edit yields candidate texts. `_write` reads a candidate back, compares its values with the wanted ones, and
writes the first that matches. docs/decisions/0012-own-reader-of-env-files.md says why ruamel.yaml is not the only way.
"""

from __future__ import annotations

import io
import os
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hermes_agent.config.effective import dump_yaml, is_generated
from hermes_agent.config.home import HomePaths, home_paths
from hermes_agent.config.load import check_document
from hermes_agent.config.schema import (
    MISSING,
    KeyPath,
    Node,
    expand_shorthand,
    find_value,
    lookup,
    nested,
    normalise,
    render_path,
    types,
    walk,
)
from hermes_agent.config.validate import describe_violation, validate
from hermes_agent.config.yaml_document import ConfigDocument, ConfigFinding, Position, config_error
from hermes_agent.config.yaml_reader import read_file, read_text
from hermes_agent.core.errors import ConfigError, UserError
from hermes_agent.system.files import write_atomic
from hermes_agent.system.locks import hold_lock

MOST_CANDIDATES = 400
"""Most lines that are tried for the length of a value; each costs a reading of the file."""
_WIDE = 100_000

_LIST_ITEM = re.compile(r"^( *)[^\s#][^\n]*:[ \t]*(?:#[^\n]*)?\n(?:[ \t]*(?:#[^\n]*)?\n)*( *)- ", re.MULTILINE)


def append_key(text: str, path: KeyPath, value: Any) -> Iterator[str]:
    """Yield `text` with the key as a new block at its end."""
    yield _with_end(text) + dump_yaml(_nested(path, value), width=_WIDE)


def insert_key(text: str, document: ConfigDocument, path: KeyPath, value: Any) -> Iterator[str]:
    """Yield `text` with the key below the last key of its mapping, further down with each candidate."""
    depth = next(d for d in range(len(path), -1, -1) if isinstance(find_value(document.value, path[:d]), dict))
    siblings = document.keys.get(id(find_value(document.value, path[:depth])), {}).values()
    if not siblings:
        return
    last = max(siblings, key=lambda spot: spot.line)
    block = _block(_with_end(text), last, _nested(path[depth:], value))
    if block is None:
        return
    lines = _with_end(text).splitlines(keepends=True)
    for end in range(last.line, min(len(lines), last.line + MOST_CANDIDATES) + 1):
        yield "".join([*lines[:end], block, *lines[end:]])


def replace_key(text: str, document: ConfigDocument, path: KeyPath, value: Any) -> Iterator[str]:
    """Yield `text` with the lines of the key at `path` replaced, one more with each candidate."""
    spot = document.position(path)
    if spot is None or (block := _block(text, spot, {path[-1]: value})) is None:
        return
    lines = text.splitlines(keepends=True)
    for end in range(spot.line, min(len(lines), spot.line + MOST_CANDIDATES) + 1):
        yield "".join([*lines[: spot.line - 1], block, *lines[end:]])


def remove_lines(text: str, line: int) -> Iterator[str]:
    """Yield `text` without the key in `line` (from 1), one more line removed with each candidate."""
    lines = text.splitlines(keepends=True)
    for end in range(line, min(len(lines), line + MOST_CANDIDATES) + 1):
        yield "".join(lines[: line - 1] + lines[end:])


def _nested(path: KeyPath, value: Any) -> Any:
    for part in reversed(path):
        value = {part: value}
    return value


def _with_end(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def _block(text: str, spot: Position, mapping: Any) -> str | None:
    """Return `mapping` as lines indented like the key at `spot`; None if the key does not begin a line."""
    before = text.splitlines()[spot.line - 1][: spot.column - 1]
    return textwrap.indent(dump_yaml(mapping, width=_WIDE), before) if not before.strip() else None


def edited_text(text: str, path: KeyPath, value: Any) -> Iterator[str]:
    """Yield `text` with the key set, or removed if the value is `MISSING`, by ruamel.yaml."""
    # takes 100 ms to import, and only edits need it
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedMap
    from ruamel.yaml.error import YAMLError

    editor = YAML(typ="rt")
    editor.preserve_quotes = True
    editor.width = _WIDE
    editor.explicit_start = text.startswith("---")
    editor.indent(mapping=2, sequence=2 + _list_offset(text), offset=_list_offset(text))
    try:
        root = editor.load(text)
    except YAMLError:
        return
    here = root if root is not None else CommentedMap()
    root = here
    for depth, part in enumerate(path[:-1], 1):
        below = here.get(part)
        if not isinstance(below, CommentedMap):
            below = _spelled_out(path[:depth], below)
            here[part] = below
        here = below
    if value is MISSING:
        del here[path[-1]]
    else:
        key = path[-1] if path[-1] in here else _in_style(path[-1], None)
        here[key] = _in_style(value, here.get(path[-1]))
    buffer = io.StringIO()
    editor.dump(root, buffer)
    # the comments below a replaced value are lost with it
    if _comments(text) == _comments(buffer.getvalue()):
        yield buffer.getvalue()


def _comments(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.lstrip().startswith("#")]


def _spelled_out(path: KeyPath, value: Any) -> Any:
    """Return the mapping that a scalar abbreviates (`model: name`), or an empty one."""
    from ruamel.yaml.comments import CommentedMap

    spelled = CommentedMap()
    node = lookup(path) or {}
    if isinstance(value, str) and "x-text-is" in node:
        spelled[node["x-text-is"]] = value
    return spelled


def _list_offset(text: str) -> int:
    """Return the indentation of list items below their key: that of the first list in the file, else 2."""
    match = _LIST_ITEM.search(text)
    return max(0, len(match[2]) - len(match[1])) if match else 2


def _in_style(value: Any, before: Any) -> Any:
    """Return `value` for ruamel.yaml, in the style of the value that it replaces if possible."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString, ScalarString

    if isinstance(value, str):
        if isinstance(before, ScalarString) and "\n" not in value and "\n" not in before:
            return type(before)(value)
        return value if _reads_back(value) else DoubleQuotedScalarString(value)
    if isinstance(value, list):
        sequence = CommentedSeq(_in_style(item, None) for item in value)
        if not isinstance(before, CommentedSeq) or before.fa.flow_style():
            sequence.fa.set_flow_style()
        return sequence
    if isinstance(value, dict):
        return CommentedMap((_in_style(key, None), _in_style(item, None)) for key, item in value.items())
    return value


def _reads_back(text: str) -> bool:
    """Return whether a YAML 1.1 reader reads unquoted `text` as the same text, as a value and as a key."""
    return "\n" not in text and read_text(f"k: {text}\n{text}: 1\n", "").value == {"k": text, text: 1}


OPTION = "services.hermes-agent.settings"
"""The NixOS option that declares the config."""


def parse_value(path: KeyPath, text: str, schema: Node | None = None) -> Any:
    """Return the value that `text` means for the key at `path`.

    The text is YAML (`5`, `true`, `[a, b]`, `{a: 1}`), or the value itself if the key accepts only texts.

    Args:
        schema: the whole schema; None is `schema.json`.

    Raises:
        UserError: the text is not YAML.
    """
    node = lookup(path, schema)
    if node is not None and set(types(node)) - {"null"} == {"string"}:
        return text
    document = read_text("value:" + ("\n" + textwrap.indent(text, "  ") if "\n" in text else f" {text}"), "")
    if document.findings or set(document.value) != {"value"}:
        reason = document.findings[0].message if document.findings else "it is more than one value"
        raise UserError(
            f"the value for `{render_path(path)}` is not YAML: {reason}", hint="quote it twice: '\"a text\"'"
        )
    value = document.value["value"]
    return expand_shorthand(value, node or {})


def set_value(
    home: Path,
    path: KeyPath,
    value: Any,
    *,
    environ: Mapping[str, str] | None = None,
    schema: Node | None = None,
) -> Path:
    """Set the key at `path` in the editable file of `home`, and return the file.

    Args:
        schema: the whole schema that checks the value; None is `schema.json`.

    Raises:
        ConfigError: the value is rejected, or the file would be invalid; the file does not change.
        UserError: the key is declared by Nix, or the file cannot be changed.
    """
    where = _editable(home, path, environ)
    _check_value(path, value, schema)
    with hold_lock(where.editable):
        document = _present(where.editable)
        wanted = _with(document.value, path, value)
        _write(where.editable, document, wanted, _edits(document, path, wanted))
    return where.editable


def unset_value(home: Path, path: KeyPath, *, environ: Mapping[str, str] | None = None) -> Path:
    """Remove the key at `path` from the editable file of `home`, and mappings that become empty.

    Raises:
        ConfigError: the file would be invalid; it does not change.
        UserError: the key is not set, is declared by Nix, or the file cannot be changed.
    """
    where = _editable(home, path, environ)
    with hold_lock(where.editable):
        document = _present(where.editable)
        if find_value(document.value, path) is MISSING:
            raise UserError(f"`{render_path(path)}` is not set in {where.editable}")
        while len(path) > 1 and len(find_value(document.value, path[:-1])) == 1:
            path = path[:-1]
        spot = document.position(path)
        ways = (
            lambda text: remove_lines(text, spot.line if spot else 1),
            lambda text: edited_text(text, path, MISSING),
        )
        _write(where.editable, document, _without(document.value, path), ways)
    return where.editable


Edit = Callable[[str], Iterator[str]]
"""Returns candidate texts for a text."""


def _edits(document: ConfigDocument, path: KeyPath, wanted: dict[str, Any]) -> tuple[Edit, ...]:
    """Return the ways to set the key at `path`, the one with the smallest change first."""
    value = find_value(wanted, path)
    target = next((above for above in _prefixes(path) if not isinstance(find_value(document.value, above), dict)), path)
    before = find_value(document.value, target)

    def by_editor(text: str) -> Iterator[str]:
        return edited_text(text, path, value)

    if before is MISSING and len(target) == 1:
        return lambda text: append_key(text, path, value), by_editor
    if before is MISSING:
        return lambda text: insert_key(text, document, path, value), by_editor
    return by_editor, lambda text: replace_key(text, document, target, find_value(wanted, target))


def _prefixes(path: KeyPath) -> list[KeyPath]:
    return [path[:end] for end in range(1, len(path) + 1)]


def _editable(home: Path, path: KeyPath, environ: Mapping[str, str] | None) -> HomePaths:
    if not path or any(isinstance(part, int) for part in path):
        raise UserError(f"`{render_path(path)}` is an item of a list; set the whole list")
    where = home_paths(home, os.environ if environ is None else environ)
    if where.declared is not None:
        _refuse_declared(path, read_file(where.declared).value)
    elif is_generated(where.effective):
        raise UserError(
            f"{where.effective} is generated: this home is managed by a service with a declared config",
            hint="use the `hermes` command that the service's module installs, which knows the declared config",
        )
    home.mkdir(parents=True, exist_ok=True)
    return where


def _refuse_declared(path: KeyPath, declared: dict[str, Any]) -> None:
    """Raise UserError if the declared layer sets the key, a part of it, or a value above it."""
    declared = normalise(declared) if not validate(declared) else declared
    here: Any = declared
    for index, part in enumerate(path):
        if not isinstance(here, dict):
            path = path[:index]
            break
        if part not in here:
            return
        here = here[part]
    inner = next((below for below, _ in walk(here)), ())
    taken = tuple(part for part in (*path, *inner) if isinstance(part, str))
    raise UserError(
        f"`{render_path(taken)}` is declared by Nix and cannot be set here",
        hint=f"change {OPTION}.{render_path(taken)} and rebuild",
    )


def _check_value(path: KeyPath, value: Any, schema: Node | None) -> None:
    """Raise ConfigError if the value is invalid.

    The finding names the key and no line, since no file has it yet.
    """
    whole = nested(path, value)
    document = ConfigDocument("", value=whole)
    findings = [describe_violation(violation, document, schema) for violation in validate(whole, schema)]
    if findings:
        raise config_error(findings)


def _present(path: Path) -> ConfigDocument:
    document = read_file(path)
    if document.findings:
        raise config_error(document.findings)
    return document


def _write(path: Path, document: ConfigDocument, wanted: dict[str, Any], ways: tuple[Edit, ...]) -> None:
    """Write the first candidate text that reads back as the wanted values."""
    try:
        text = path.read_bytes().decode("utf-8-sig") if document.exists else ""
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    newline = "\r\n" if "\r\n" in text else "\n"
    for way in ways:
        for candidate in way(text.replace("\r\n", "\n")):
            result = read_text(candidate, str(path))
            if result.findings or _normal(result.value) != _normal(wanted):
                continue
            _refuse_invalid(result)
            _replace(path, candidate.replace("\n", newline))
            return
    raise UserError(
        f"{path} cannot be changed without changing something else in it",
        hint="an alias or an unusual layout stands in the way; edit the file by hand",
    )


def _normal(value: dict[str, Any]) -> dict[str, Any]:
    """Return `value` with shorthands expanded, so that two spellings of one config compare equal."""
    normal: dict[str, Any] = value if validate(value) else normalise(value)
    return normal


def _refuse_invalid(document: ConfigDocument) -> None:
    findings: list[ConfigFinding] = check_document(document, lambda _: None, at_build=True)[1]
    if findings:
        raise config_error(findings)


def _replace(path: Path, text: str) -> None:
    try:
        if not path.exists():  # an empty file is a valid config; creating it here applies the umask
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o660))
        write_atomic(path, text)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from error


def _with(value: dict[str, Any], path: KeyPath, item: Any) -> dict[str, Any]:
    first, rest = path[0], path[1:]
    assert isinstance(first, str)
    if not rest:
        return {**value, first: item}
    below = value.get(first)
    if isinstance(below, str) and _normal({first: below}) != {first: below}:
        below = normalise({first: below})[first]
    if below is not None and not isinstance(below, dict):
        raise ConfigError(
            f"`{first}` holds a value, so there is no `{render_path(path)}` in it", hint=f"unset `{first}` first"
        )
    return {**value, first: _with(below or {}, rest, item)}


def _without(value: dict[str, Any], path: KeyPath) -> dict[str, Any]:
    first, rest = path[0], path[1:]
    if not rest:
        return {key: item for key, item in value.items() if key != first}
    return {key: _without(item, rest) if key == first else item for key, item in value.items()}
