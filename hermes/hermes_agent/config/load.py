"""Loading of a home's config: the declared layer over the local layer over the defaults."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from hermes_agent.config.home import DECLARED, HomePaths, home_paths
from hermes_agent.config.schema import (
    MISSING,
    OPEN,
    KeyPath,
    Node,
    default,
    expand,
    fill_defaults,
    find_value,
    has_variable,
    load_schema,
    lookup,
    merge,
    normalise,
    parse_path,
    render_path,
    take_former_keys,
)
from hermes_agent.config.settings import Settings
from hermes_agent.config.validate import Violation, near_miss, validate
from hermes_agent.config.yaml_document import ConfigDocument, ConfigFinding, config_error
from hermes_agent.config.yaml_reader import read_file
from hermes_agent.core.lazy_types import LazyNamedTuple

Origin = Literal["declared", "local", "default"]
LookUp = Callable[[str], str | None]
"""Returns the value of a variable, or None if it is not set."""


class Layer(LazyNamedTuple):
    """One valid file of the config."""

    origin: Origin
    document: ConfigDocument
    written: dict[str, Any]
    """Shorthands expanded, variables as written."""
    values: dict[str, Any]
    """Shorthands and variables expanded."""


class Config(LazyNamedTuple):
    """The config of a home; `values` and `raw` are never changed."""

    path: Path
    """The effective `config.yaml`; it may not exist."""
    values: dict[str, Any]
    """The effective values: all layers, variables expanded, defaults filled in."""
    raw: dict[str, Any]
    """The values as written: without defaults, variables not expanded."""
    places: HomePaths
    layers: tuple[Layer, ...] = ()
    """The layers, weakest first."""

    def get(self, path: str, fallback: Any = None) -> Any:
        """Return the effective value at a dotted path that is known at run time alone, with its default.

        Code that knows its key reads `settings`.

        Args:
            fallback: for a key without a default, and for a missing key of a plugin.

        Raises:
            KeyError: the schema has no such key, and plugins cannot have it: an error in the calling code.
        """
        parts: KeyPath = tuple(path.split(".")) if '"' not in path and "[" not in path else parse_path(path)
        value = find_value(self.values, parts)
        if value is not MISSING:
            return value
        from hermes_agent.config.validate import describe_unknown  # here and below: only for errors

        node = lookup(parts)
        if node is None:
            raise KeyError(describe_unknown(parts, lookup(parts[:-1]) or OPEN))
        if node is OPEN and (slip := near_miss(parts)) is not None:
            raise KeyError(describe_unknown(slip[0], OPEN, slip[1]))
        given = MISSING if node is OPEN else default(node)
        return fallback if given is MISSING else given

    @property
    def settings(self) -> Settings:
        """The effective values with their types."""
        return Settings(self.values)

    @property
    def written(self) -> dict[str, Any]:
        """The values of `raw` with shorthands expanded."""
        written: dict[str, Any] = {}
        for layer in self.layers:
            written = merge(written, layer.written)
        return written

    def origin(self, path: str | KeyPath) -> Origin:
        """Return the layer that decides the value at `path`."""
        parts = parse_path(path) if isinstance(path, str) else path
        for layer in reversed(self.layers):
            if find_value(layer.values, parts) is not MISSING:
                origin: Origin = layer.origin
                return origin
        return "default"


def load(home: Path, *, environ: Mapping[str, str] | None = None, look_up: LookUp | None = None) -> Config:
    """Return the config of `home`; the defaults if it has no config file.

    Args:
        environ: the environment with `HERMES_DECLARED_CONFIG`; None is that of the process.
        look_up: returns the variables of `${NAME}`; None looks in `environ`, then in the home's `.env`.

    Raises:
        ConfigError: a file is invalid; the message has one line for each finding.
    """
    where = home_paths(home, environ)
    look_up = look_up or variable_look_up(where.env, environ)
    findings: list[ConfigFinding] = []
    layers: list[Layer] = []
    for origin, document in read_layers(where):
        values, found = check_document(document, look_up)
        findings += found
        if not found:
            both = (take_former_keys(normalise(value)) for value in (document.value, values))
            layers.append(Layer(origin, document, *both))
    if findings:
        raise config_error(findings)
    return _config(where, layers)


def _config(where: HomePaths, layers: list[Layer]) -> Config:
    values: dict[str, Any] = {}
    for layer in layers:
        values = merge(values, layer.values)
    if values.get("custom_providers"):
        from hermes_agent.config.custom_providers import with_custom_providers  # few configs have the list

        values = with_custom_providers(values)
    config = Config(where.effective, fill_defaults(values), {}, where, tuple(layers))
    return config._replace(raw=layers[0].document.value if len(layers) == 1 else config.written)


def read_layers(where: HomePaths) -> list[tuple[Origin, ConfigDocument]]:
    """Read the layers, weakest first."""
    documents: list[tuple[Origin, ConfigDocument]] = [("local", read_file(where.editable))]
    if where.declared is not None:
        declared = read_file(where.declared)
        if not declared.exists:
            missing = f"there is no such file, but {DECLARED} names it"
            declared.findings.append(ConfigFinding(str(where.declared), None, None, "", missing))
        documents.append(("declared", declared))
    return documents


def check_document(
    document: ConfigDocument, look_up: LookUp, *, at_build: bool = False, schema: Node | None = None
) -> tuple[dict[str, Any], list[ConfigFinding]]:
    """Return the values of a document with variables expanded, and all findings.

    Args:
        at_build: the variables of the service are unknown, so a text with `${NAME}` is assumed to be valid.
        schema: the whole schema; None is `schema.json`.
    """
    values: dict[str, Any] = expand(document.value, look_up)
    unread = {finding.key_path for finding in document.findings if finding.key_path}
    wrong = [
        violation
        for violation in validate(values, load_schema() if schema is None else schema)
        if not (at_build and _depends_on_variable(violation)) and render_path(violation.path) not in unread
    ]
    if not wrong:
        return values, [*document.findings]
    from hermes_agent.config.validate import describe_violation

    return values, [*document.findings, *(describe_violation(violation, document, schema) for violation in wrong)]


def _depends_on_variable(violation: Violation) -> bool:
    return violation.kind in ("enum", "pattern") and has_variable(violation.value)


def variable_look_up(env_file: Path, environ: Mapping[str, str] | None = None) -> LookUp:
    """Return a look-up in `environ` (None: the process's), then in `.env`, which is read at the first use."""
    surrounding = os.environ if environ is None else environ
    known: dict[str, str] | None = None

    def look_up(name: str) -> str | None:
        nonlocal known
        if name in surrounding:
            return surrounding[name]
        if known is None:
            from hermes_agent.config.dotenv import read_env_file  # most configs name no variable

            known = read_env_file(env_file)
        return known.get(name)

    return look_up
