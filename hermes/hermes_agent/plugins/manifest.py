"""`plugin.yaml`: what a plugin says about itself. Source: plugin contract §1.3, §1.4."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes_agent.core.registry import BUILTIN
from hermes_agent.core.secrecy import looks_like_secret_name

if TYPE_CHECKING:
    from hermes_agent.config.bounded_yaml import BoundedDocument


logger = logging.getLogger(__name__)

MANIFEST_NAMES = ("plugin.yaml", "plugin.yml")
KINDS = ("standalone", "backend", "platform", "exclusive", "model-provider")
_CATEGORY_KINDS = {"model-providers": "model-provider"}
PARSED_KEYS = ("name", "requires_env", "optional_env", "provides_tools", "provides_hooks", "config_schema")
"""Keys whose values are looked at as more than text."""
GUESS_CHARS = 8192
"""How much of `__init__.py` tells the kind when the manifest does not."""

_NAME = re.compile(r"\w[\w .+@-]{0,99}")


class InvalidManifest(Exception):
    """A manifest that cannot be used; the text begins with the line where it is known."""


class PluginManifest(NamedTuple):
    """A plugin as its manifest (or its entry point) describes it; the attribute names are upstream's."""

    name: str
    version: str = ""
    description: str = ""
    author: str = ""
    requires_env: Sequence[Any] = ()
    """Names, or mappings with `name`, `description`, `url`, `secret`."""
    provides_tools: Sequence[str] = ()
    provides_hooks: Sequence[str] = ()
    source: str = ""
    """`bundled`, `declared`, `entrypoint`, `user` or `project`."""
    path: str = ""
    """The plugin's directory, or the value of its entry point."""
    kind: str = "standalone"
    key: str = ""
    """What `plugins.enabled` names: the name, or `category/folder`."""
    distribution: str = ""
    """Ours: `name version` of the Python distribution that brings the entry point."""
    replaces: str = ""
    """Ours: the path of the bundled plugin that this one stands in for."""
    config_schema: Mapping[str, Mapping[str, Any]] = {}
    """Options that the plugin declares, by key: `type` (of JSON Schema, absent: any), `default`, `description`,
    `label`, `required`, `choices`, `env`, `secret`; those that are not given are absent."""
    optional_env: Sequence[Any] = ()
    """As `requires_env`: variables that it can do without."""
    notes: tuple[str, ...] = ()
    """Ours: what is odd in the manifest and was passed over, with lines."""

    @property
    def folder(self) -> str:
        """Name of the plugin's directory; empty for an entry point."""
        return "" if self.source == "entrypoint" else os.path.basename(self.path)  # noqa: PTH119 - a str, upstream's

    @property
    def shown_version(self) -> str:
        """The version for people: the manifest's, else that of the distribution."""
        return self.version or self.distribution.partition(" ")[2]

    def variables(self) -> dict[str, bool]:
        """Return, by variable, whether the plugin declares it a secret; one whose name alone says so is left out."""
        found: dict[str, bool] = {}
        for entry in (*self.requires_env, *self.optional_env):
            told = entry.get("secret", entry.get("password")) if isinstance(entry, dict) else None
            if told is not None:
                found[str(entry["name"])] = bool(told)
        for spec in self.config_schema.values():
            name, secret = str(spec.get("env") or ""), spec.get("secret") is True
            if name and (secret or not looks_like_secret_name(name)):
                found[name] = found.get(name, False) or secret
        return found

    @property
    def env_names(self) -> list[str]:
        """The names in `requires_env`."""
        names = [entry.get("name") if isinstance(entry, dict) else entry for entry in self.requires_env]
        return [name for name in names if isinstance(name, str) and name]

    @property
    def answers_to(self) -> tuple[str, ...]:
        """What a setting may call it: key and name."""
        return (self.key,) if self.key == self.name else (self.key, self.name)


def name_problem(name: str) -> str | None:
    """Return why `name` cannot name a plugin, or None."""
    if name == BUILTIN:
        return f"name {name!r} stands for the agent itself"
    if _NAME.fullmatch(name) is None:
        return (
            f"name {name[:120]!r} cannot be used: it must begin with a letter or digit and have only letters, digits, "
            "blanks and . _ - + @, at most 100"
        )
    return None


def read_manifest(file: str, *, source: str, category: str = "") -> PluginManifest:
    """Read the manifest at `file`; the plugin's directory is the one that it lies in.

    Args:
        category: folder between root and plugin; the key is then `category/folder`.

    Raises:
        InvalidManifest: it cannot be used.
    """
    from hermes_agent.config.bounded_yaml import YamlRejected, read_yaml  # PyYAML: not where every manifest is known

    directory = os.path.dirname(file)  # noqa: PTH120 - 100 manifests in a few ms: no Path objects here
    folder = os.path.basename(directory)  # noqa: PTH119
    try:
        document = read_yaml(file, PARSED_KEYS)
    except YamlRejected as exc:
        raise InvalidManifest(str(exc)) from exc
    except OSError as exc:
        raise InvalidManifest(exc.strerror or str(exc)) from exc
    notes: list[str] = []
    name = _name(document, folder)
    return PluginManifest(
        name=name,
        version=document.scalars.get("version", ""),
        description=document.scalars.get("description", ""),
        author=document.scalars.get("author", ""),
        requires_env=_variables(document, "requires_env", notes),
        provides_tools=_names(document, "provides_tools", notes),
        provides_hooks=_names(document, "provides_hooks", notes),
        source=source,
        path=directory,
        kind=_kind(document, name, directory, category, notes),
        key=f"{category}/{folder}" if category else name,
        config_schema=_config_schema(document, notes),
        optional_env=_variables(document, "optional_env", notes),
        notes=tuple(notes),
    )


def _name(document: BoundedDocument, folder: str) -> str:
    line = document.lines.get("name", 0)
    at = f"line {line}: " if line else ""
    name = document.scalars.get("name", "").strip()
    if not name:
        if document.values.get("name") is not None and "name" not in document.scalars:
            raise InvalidManifest(f"{at}name is a {_kind_of(document.values['name'])}: expected text")
        name = folder
    problem = name_problem(name)
    if problem is not None:
        raise InvalidManifest(at + problem)
    return name


def _kind(document: BoundedDocument, name: str, directory: str, category: str, notes: list[str]) -> str:
    written = document.scalars.get("kind", "").strip().lower()
    if not written:
        # the folder `model-providers` says it, too
        return _CATEGORY_KINDS.get(category) or guess_kind(directory)
    if written in KINDS:
        return written
    valid = ", ".join(KINDS)
    logger.warning("Plugin %s: unknown kind '%s' (valid: %s); treating as 'standalone'", name, written, valid)
    notes.append(f"line {document.lines['kind']}: unknown kind {written!r} (valid: {valid}); taken as standalone")
    return "standalone"


def guess_kind(directory: str) -> str:
    """Tell the kind of a plugin that does not say it, as upstream does: by words in its source."""
    try:
        fd = os.open(f"{directory}/__init__.py", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            head = os.read(fd, 4 * GUESS_CHARS).decode("utf-8", "replace")[:GUESS_CHARS]
        finally:
            os.close(fd)
    except OSError:
        return "standalone"  # the loader says what is missing
    if "register_memory_provider" in head or "MemoryProvider" in head:
        return "exclusive"
    if "register_provider" in head and "ProviderProfile" in head:
        return "model-provider"
    return "standalone"


def _names(document: BoundedDocument, key: str, notes: list[str]) -> list[str]:
    value = document.values.get(key)
    if value is None:
        return []
    if isinstance(value, list):
        return [str(item) for item in value if not isinstance(item, dict | list)]
    notes.append(f"line {document.lines[key]}: {key} is a {_kind_of(value)}: expected a list of names; passed over")
    return []


def _variables(document: BoundedDocument, key: str, notes: list[str]) -> list[Any]:
    value = document.values.get(key)
    if value is None:
        return []
    line = document.lines[key]
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        notes.append(f"line {line}: {key} is a {_kind_of(value)}: expected a list; passed over")
        return []
    usable: list[Any] = []
    for entry in value:
        name = entry.get("name") if isinstance(entry, dict) else entry
        if isinstance(name, str) and name.strip():
            usable.append(entry)
        else:
            notes.append(f"line {line}: {key} has {entry!r}: expected a name, or a mapping with `name`")
    return usable


_OPTION_TYPES = {
    **dict.fromkeys(("str", "string", "secret"), "string"),
    **dict.fromkeys(("int", "integer"), "integer"),
    **dict.fromkeys(("float", "number"), "number"),
    **dict.fromkeys(("bool", "boolean"), "boolean"),
    **dict.fromkeys(("list", "array"), "array"),
    **dict.fromkeys(("dict", "object"), "object"),
}
"""The types of `config_schema` (contract of 0.23 §4.4), as JSON Schema names them."""


def _config_schema(document: BoundedDocument, notes: list[str]) -> dict[str, dict[str, Any]]:
    value = document.values.get("config_schema")
    if value is None:
        return {}
    line = document.lines["config_schema"]
    if not isinstance(value, dict):
        notes.append(f"line {line}: config_schema is a {_kind_of(value)}: expected a mapping of options; passed over")
        return {}
    options: dict[str, dict[str, Any]] = {}
    for key, spec in value.items():
        if isinstance(key, str) and isinstance(spec, dict):
            options[key] = _option(f"line {line}: config_schema.{key}", spec, notes)
        else:
            notes.append(f"line {line}: config_schema.{key} is a {_kind_of(spec)}: expected a mapping; passed over")
    return options


def _option(at: str, spec: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """Return one option in one spelling of its keys."""
    given = str(spec.get("type") or "")
    option: dict[str, Any] = {}
    if given.lower() in _OPTION_TYPES:
        option["type"] = _OPTION_TYPES[given.lower()]
    elif given:
        notes.append(f"{at}.type is {given!r} (valid: {', '.join(_OPTION_TYPES)}); any value is taken")
    option |= {key: str(spec[key]) for key in ("description", "env") if isinstance(spec.get(key), str)}
    if label := spec.get("label") or spec.get("title"):
        option["label"] = str(label)
    choices = spec.get("choices", spec.get("enum"))
    if isinstance(choices, list) and choices:
        option["choices"] = choices
    if spec.get("required") is True:
        option["required"] = True
    if spec.get("secret") is True or given.lower() == "secret":
        option["secret"] = True
    if spec.get("default") is not None:
        option["default"] = spec["default"]
    return option


def _kind_of(value: object) -> str:
    words = {dict: "mapping", list: "list", str: "text", bool: "boolean", int: "number", float: "number"}
    return words.get(type(value), type(value).__name__)
