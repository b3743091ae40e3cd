"""Load the config of a home: declared layer over local layer over defaults."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

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
)
from hermes_agent.config.validate import Violation, near_miss, validate
from hermes_agent.config.yaml_document import ConfigDocument, ConfigFinding, config_error
from hermes_agent.config.yaml_reader import read_file

Origin = Literal["declared", "local", "default"]
LookUp = Callable[[str], str | None]
"""Returns the value of a variable, or None when it is not set."""


class Layer(NamedTuple):
    """One file of the config, valid."""

    origin: Origin
    document: ConfigDocument
    written: dict[str, Any]
    """Shorthands written out, variables as written."""
    values: dict[str, Any]
    """Shorthands written out, variables expanded."""


class Config(NamedTuple):
    """The config of a home. Nobody changes what `values` and `raw` hold."""

    path: Path
    """The effective `config.yaml`; it may not exist."""
    values: dict[str, Any]
    """What is in effect: every layer, variables expanded, defaults filled in."""
    raw: dict[str, Any]
    """What was written, without defaults, variables as written."""
    places: HomePaths
    layers: tuple[Layer, ...] = ()
    """Weakest first."""

    def get(self, path: str, fallback: Any = None) -> Any:
        """Return the value in effect at a dotted path, with its default.

        Args:
            fallback: for a key without a default, and for a plugin's own key that is not there.

        Raises:
            KeyError: the schema has no such key, and no plugin may keep one there: a slip in our own code.
        """
        parts: KeyPath = tuple(path.split(".")) if '"' not in path and "[" not in path else parse_path(path)
        value = find_value(self.values, parts)
        if value is not MISSING:
            return value
        from hermes_agent.config.validate import describe_unknown  # below, too: only for something that is wrong

        node = lookup(parts)
        if node is None:
            raise KeyError(describe_unknown(parts, lookup(parts[:-1]) or OPEN))
        if node is OPEN and (slip := near_miss(parts)) is not None:
            raise KeyError(describe_unknown(slip[0], OPEN, slip[1]))
        given = MISSING if node is OPEN else default(node)
        return fallback if given is MISSING else given

    @property
    def written(self) -> dict[str, Any]:
        """What was written, as `raw`, with shorthands written out."""
        written: dict[str, Any] = {}
        for layer in self.layers:
            written = merge(written, layer.written)
        return written

    def origin(self, path: str | KeyPath) -> Origin:
        """Return which layer decides the value at `path`."""
        parts = parse_path(path) if isinstance(path, str) else path
        for layer in reversed(self.layers):
            if find_value(layer.values, parts) is not MISSING:
                origin: Origin = layer.origin
                return origin
        return "default"


def load(home: Path, *, environ: Mapping[str, str] | None = None, look_up: LookUp | None = None) -> Config:
    """Return the config of `home`; a home without one has the defaults.

    Args:
        environ: where `HERMES_DECLARED_CONFIG` is read; None is the process environment.
        look_up: gives the variables of `${NAME}`; None asks `environ`, then the home's `.env`.

    Raises:
        ConfigError: something is wrong with a file; the message has a line for each finding.
    """
    where = home_paths(home, environ)
    look_up = look_up or variable_look_up(where.env, environ)
    findings: list[ConfigFinding] = []
    layers: list[Layer] = []
    for origin, document in read_layers(where):
        values, found = check_document(document, look_up)
        findings += found
        if not found:
            layers.append(Layer(origin, document, normalise(document.value), normalise(values)))
    if findings:
        raise config_error(findings)
    return _config(where, layers)


def _config(where: HomePaths, layers: list[Layer]) -> Config:
    values: dict[str, Any] = {}
    for layer in layers:
        values = merge(values, layer.values)
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
    """Return the document's values with variables expanded, and every finding.

    Args:
        at_build: the variables of the service are not known here, so a text with `${NAME}` is taken to be right.
        schema: the whole schema, when it is not `schema.json`.
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
    """Return a look-up in `environ` (None: the process's), then in the `.env` file, read when it is first needed."""
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
