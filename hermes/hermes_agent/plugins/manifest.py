"""Manifest of a plugin: the file `plugin.yaml`, or `plugin.json` of a portable package.

Source: plugin contract §1.3, §1.4; contract of 0.23 §2.2, §4, §12.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.registry import BUILTIN
from hermes_agent.core.secrecy import looks_like_secret_name

if TYPE_CHECKING:
    from hermes_agent.config.bounded_yaml import BoundedDocument


logger = logging.getLogger(__name__)

PACKAGE_MANIFEST = "plugin.json"
MANIFEST_NAMES = ("plugin.yaml", "plugin.yml", PACKAGE_MANIFEST)
"""Names of manifests; the first one in a folder counts."""
KINDS = ("standalone", "backend", "platform", "exclusive", "model-provider")
_CATEGORY_KINDS = {"model-providers": "model-provider"}
MANIFEST_VERSION = 2
"""Highest known `manifest_version`; a plugin with a higher one loads with a warning."""
LIST_KEYS = (
    *("provides_tools", "provides_hooks", "provides_middleware", "hooks"),
    *("python_dependencies", "capabilities", "tags", "emits", "listens"),
)
"""Keys with lists of names."""
PARSED_KEYS = (
    *("name", "author", "requires_env", "optional_env", "config_schema", "requires_plugins", "provides_locales"),
    *LIST_KEYS,
)
"""Keys with values that are parsed beyond plain text."""
TEXT_KEYS = ("version", "description", "kind", "requires_hermes", "license", "homepage", "update_url")
KNOWN_KEYS = frozenset(
    (
        *PARSED_KEYS,
        *TEXT_KEYS,
        *("manifest_version", "api_version", "label", "platforms", "external_dependencies", "pip_dependencies"),
        *("provides_browser_providers", "provides_web_providers", "python_runtime", "requires_auth", "hermes"),
        "depends",
    )
)
"""Known keys; any other key may be a typing error. Source: plugin contract of 0.23 §4.1."""
GUESS_CHARS = 8192
"""Characters of `__init__.py` that are searched for the kind if the manifest has none."""

_NAME = re.compile(r"\w[\w .+@-]{0,99}")


class InvalidManifest(Exception):
    """A manifest that cannot be used; the text begins with the line if it is known."""


class PluginManifest(LazyNamedTuple):
    """A plugin as its manifest or its entry point describes it; attribute names are upstream's."""

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
    """Key of the plugin in `plugins.enabled`: the name, or `category/folder`."""
    distribution: str = ""
    """Extension: `name version` of the Python distribution with the entry point."""
    replaces: str = ""
    """Extension: path of the bundled plugin that this one replaces."""
    config_schema: Mapping[str, Mapping[str, Any]] = {}
    """Options that the plugin declares, by key.

    Each may have `type` (of JSON Schema; absent means any), `default`, `description`, `label`, `required`, `choices`,
    `env` and `secret`; keys that are not given are absent.
    """
    optional_env: Sequence[Any] = ()
    """Variables that the plugin can do without, in the form of `requires_env`."""
    notes: tuple[str, ...] = ()
    """Extension: parts of the manifest that were ignored, with lines."""
    manifest_version: int = 1
    api_version: int | None = None
    requires_hermes: str = ""
    requires_plugins: Sequence[Any] = ()
    """Names, or mappings with `id` and the key "version_range"."""
    python_dependencies: Sequence[str] = ()
    capabilities: Sequence[str] = ()
    """Requested capabilities; only the operator grants them."""
    license: str = ""
    homepage: str = ""
    tags: Sequence[str] = ()
    emits: Sequence[str] = ()
    listens: Sequence[str] = ()
    provides_middleware: Sequence[str] = ()
    provides_locales: Sequence[str] = ()
    """Language ids; `locale_metadata` has the manifest's metadata of each."""
    locale_metadata: Mapping[str, Mapping[str, Any]] = {}
    update_url: str = ""
    portable: bool = False
    """Whether it is an Agent Plugin (`plugin.json`), which has no Python code."""
    skill_namespace: str = ""
    """Namespace of the skills of a portable plugin."""

    @property
    def folder(self) -> str:
        """Name of the plugin's directory; empty for an entry point."""
        return "" if self.source == "entrypoint" else os.path.basename(self.path)  # noqa: PTH119 - a str, upstream's

    @property
    def shown_version(self) -> str:
        """The version to show: the manifest's, else that of the distribution."""
        return self.version or self.distribution.partition(" ")[2]

    def variables(self) -> dict[str, bool]:
        """Return the plugin's variables, each with whether it is declared a secret.

        Variables without such a declaration are left out, and so are options that only their name marks as secret.
        """
        found: dict[str, bool] = {}
        for entry in (*self.requires_env, *self.optional_env):
            declared = entry.get("secret", entry.get("password")) if isinstance(entry, dict) else None
            if declared is not None:
                found[str(entry["name"])] = bool(declared)
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
        """The names that a setting may use for the plugin: key and name."""
        names = (self.key,) if self.key == self.name else (self.key, self.name)
        if self.kind == "platform" and self.source == "bundled":  # upstream's key since 0.20
            names = (*names, f"platforms/{self.folder}")
        return names


def name_problem(name: str) -> str | None:
    """Return why `name` cannot name a plugin, or None."""
    if name == BUILTIN:
        return f"name {name!r} is reserved for the agent itself"
    if _NAME.fullmatch(name) is None:
        return (
            f"name {name[:120]!r} cannot be used: it must begin with a letter or digit and have only letters, digits, "
            "blanks and . _ - + @, at most 100"
        )
    return None


def read_manifest(file: str, *, source: str, category: str = "") -> PluginManifest:
    """Read the manifest at `file`; the directory of the file is the plugin's directory.

    Args:
        category: folder between root and plugin; the key is then `category/folder`.

    Raises:
        InvalidManifest: the manifest cannot be used.
    """
    from hermes_agent.config.bounded_yaml import YamlRejected, read_yaml  # a cached listing does not need PyYAML

    directory = os.path.dirname(file)  # noqa: PTH120 - 100 manifests in a few ms: no Path objects here
    if file.endswith(f"/{PACKAGE_MANIFEST}"):
        return _read_portable(file, directory, source, category)
    folder = os.path.basename(directory)  # noqa: PTH119
    try:
        document = read_yaml(file, PARSED_KEYS)
    except YamlRejected as exc:
        raise InvalidManifest(str(exc)) from exc
    except OSError as exc:
        raise InvalidManifest(exc.strerror or str(exc)) from exc
    notes: list[str] = []
    name = _name(document, folder)
    key = f"{category}/{folder}" if category else name
    texts: dict[str, Any] = {field: document.scalars.get(field, "") for field in TEXT_KEYS if field != "kind"}
    required_variables = _variables(document, "requires_env", notes)
    lists: dict[str, Any] = {field: _names(document, field, notes) for field in LIST_KEYS}
    locales = _locales(document, notes)
    hooks = lists.pop("hooks")
    if "provides_hooks" not in document.lines:
        lists["provides_hooks"] = hooks
    manifest = PluginManifest(
        name=name,
        author=_author(document),
        requires_env=required_variables,
        source=source,
        path=directory,
        kind=_kind(document, name, directory, category, notes),
        key=key,
        config_schema=_config_schema(document, notes),
        optional_env=_variables(document, "optional_env", notes),
        manifest_version=_number(document, "manifest_version", notes) or 1,
        api_version=_number(document, "api_version", notes),
        requires_plugins=_required_plugins(document, notes),
        provides_locales=list(locales),
        locale_metadata=locales,
        notes=tuple(notes),
        **texts,
        **lists,
    )
    _log_fields(manifest, document)
    return manifest


def _read_portable(file: str, directory: str, source: str, category: str) -> PluginManifest:
    from hermes_agent.plugins.plugin_data import state_namespace  # few homes have portable packages
    from hermes_agent.plugins.portable import InvalidPackage, read_package

    try:
        package = read_package(file)
    except InvalidPackage as exc:
        raise InvalidManifest(str(exc)) from exc
    folder = os.path.basename(directory)  # noqa: PTH119
    key = f"{category}/{folder}" if category else package.name
    return PluginManifest(
        name=package.name,
        version=package.texts.get("version", ""),
        description=package.texts.get("description", ""),
        author=package.author,
        license=package.texts.get("license", ""),
        homepage=package.texts.get("homepage", package.texts.get("repository", "")),
        tags=list(package.keywords),
        source=source,
        path=directory,
        key=key,
        portable=True,
        skill_namespace=state_namespace(key),
        notes=package.notes,
    )


def _log_fields(manifest: PluginManifest, document: BoundedDocument) -> None:
    """Log manifest keys of newer versions that this program does not know; the plugin still loads."""
    if manifest.manifest_version > MANIFEST_VERSION:
        logger.warning(
            "Plugin %s: manifest_version %d is newer than %d, which this program knows; it loads all the same",
            *(manifest.key, manifest.manifest_version, MANIFEST_VERSION),
        )
    unknown = sorted(set(document.lines) - KNOWN_KEYS)
    if unknown:
        logger.log(
            logging.WARNING if manifest.manifest_version > 1 else logging.DEBUG,
            "Plugin %s: unknown manifest field(s) ignored: %s (newer manifest schema or typo; plugin still loads)",
            *(manifest.key, ", ".join(unknown)),
        )


def _author(document: BoundedDocument) -> str:
    """Return the author; a mapping is joined to one line."""
    value = document.values.get("author")
    if isinstance(value, dict):
        return ", ".join(str(value[k]) for k in ("name", "email", "url") if value.get(k))
    return document.scalars.get("author", "")


def _number(document: BoundedDocument, key: str, notes: list[str]) -> int | None:
    written = document.scalars.get(key, "").strip()
    if written.isdigit():
        return int(written)
    if key in document.lines and (written or document.values.get(key) is not None):
        notes.append(f"line {document.lines[key]}: {key} is {written!r}: expected a number; ignored")
    return None


def _required_plugins(document: BoundedDocument, notes: list[str]) -> list[Any]:
    value = document.values.get("requires_plugins")
    if value is None:
        return []
    entries = value if isinstance(value, list) else [value]
    usable = [
        e for e in entries if (isinstance(e, str) and e) or (isinstance(e, dict) and isinstance(e.get("id"), str))
    ]
    if len(usable) < len(entries):
        line = document.lines["requires_plugins"]
        notes.append(
            f"line {line}: requires_plugins must be a list of names or of mappings with `id`; the rest is ignored"
        )
    return usable


def _locales(document: BoundedDocument, notes: list[str]) -> dict[str, dict[str, Any]]:
    value = document.values.get("provides_locales")
    found: dict[str, dict[str, Any]] = {}
    for entry in value if isinstance(value, list) else [] if value is None else [value]:
        name = entry.get("id") if isinstance(entry, dict) else entry
        if isinstance(name, str) and name:
            found[name] = dict(entry) if isinstance(entry, dict) else {}
        else:
            line = document.lines["provides_locales"]
            notes.append(f"line {line}: provides_locales has {entry!r}: expected a language id, or a mapping with `id`")
    return found


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
        # the folder `model-providers` determines the kind as well
        return _CATEGORY_KINDS.get(category) or guess_kind(directory)
    if written in KINDS:
        return written
    valid = ", ".join(KINDS)
    logger.warning("Plugin %s: unknown kind '%s' (valid: %s); treating as 'standalone'", name, written, valid)
    notes.append(f"line {document.lines['kind']}: unknown kind {written!r} (valid: {valid}); treated as standalone")
    return "standalone"


def guess_kind(directory: str) -> str:
    """Return the kind of a plugin without one in its manifest, from words in its source as upstream does."""
    try:
        fd = os.open(f"{directory}/__init__.py", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            head = os.read(fd, 4 * GUESS_CHARS).decode("utf-8", "replace")[:GUESS_CHARS]
        finally:
            os.close(fd)
    except OSError:
        return "standalone"  # the loader reports what is missing
    return kind_of_source(head)


def kind_of_source(head: str) -> str:
    """Return the kind of a plugin by the first characters of its source."""
    if any(mark in head for mark in ("register_memory_provider", "MemoryProvider")):
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
    if isinstance(value, str) and key in ("python_dependencies", "capabilities", "tags", "emits", "listens"):
        return [value]
    notes.append(f"line {document.lines[key]}: {key} is a {_kind_of(value)}: expected a list of names; ignored")
    return []


def _variables(document: BoundedDocument, key: str, notes: list[str]) -> list[Any]:
    value = document.values.get(key)
    if value is None:
        return []
    line = document.lines[key]
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        notes.append(f"line {line}: {key} is a {_kind_of(value)}: expected a list; ignored")
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
"""Types of `config_schema` (contract of 0.23 §4.4) and their names in JSON Schema."""


def _config_schema(document: BoundedDocument, notes: list[str]) -> dict[str, dict[str, Any]]:
    value = document.values.get("config_schema")
    if value is None:
        return {}
    line = document.lines["config_schema"]
    if not isinstance(value, dict):
        notes.append(f"line {line}: config_schema is a {_kind_of(value)}: expected a mapping of options; ignored")
        return {}
    options: dict[str, dict[str, Any]] = {}
    for key, spec in value.items():
        if isinstance(key, str) and isinstance(spec, dict):
            options[key] = _option(f"line {line}: config_schema.{key}", spec, notes)
        else:
            notes.append(f"line {line}: config_schema.{key} is a {_kind_of(spec)}: expected a mapping; ignored")
    return options


def _option(at: str, spec: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """Return one option with its keys renamed to the names that this program uses."""
    given = str(spec.get("type") or "")
    option: dict[str, Any] = {}
    if given.lower() in _OPTION_TYPES:
        option["type"] = _OPTION_TYPES[given.lower()]
    elif given:
        notes.append(f"{at}.type is {given!r} (valid: {', '.join(_OPTION_TYPES)}); any value is accepted")
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
