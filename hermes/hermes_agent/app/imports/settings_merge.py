"""Settings and variables of another program: which are written here, and what became of each.

The changed files are written to a folder of the import first. Each key is one item of the report.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hermes_agent.app.imports.content import HomeContent, ImportItem, Outcome
from hermes_agent.config import home_paths
from hermes_agent.config.check import keys_without_effect
from hermes_agent.config.dotenv import read_env_file, write_env_value
from hermes_agent.config.edit import set_value
from hermes_agent.config.schema import (
    MISSING,
    OPEN,
    KeyPath,
    Node,
    default,
    find_value,
    lookup,
    nested,
    normalise,
    parse_path,
    render_path,
    resolve,
)
from hermes_agent.config.validate import describe_violation, validate
from hermes_agent.config.yaml_document import ConfigDocument
from hermes_agent.config.yaml_reader import read_file
from hermes_agent.core.errors import UserError

PLATFORM_BLOCKS = ("telegram", "discord", "slack", "whatsapp", "mattermost", "matrix")
"""Blocks of upstream's config that are `platforms.<name>` here."""
_PLATFORM_KEYS = {"free_response_channels": "free_response_chats", "allowed_channels": "allowed_chats"}
_EQUAL, _DEFAULT = "it has this value here", "it is the default here"
_EMPTY = "it is empty, which is the same as not set"
_OTHER = "another value is set here; --overwrite replaces it"
MAX_CONFIG_KEYS = 5_000
"""Most keys of a config that are imported one by one."""


class SettingsMerge:
    """Merges the settings of one home into the files of this one.

    Args:
        home: the home here.
        stage: folder for the changed files, or a temporary one for a dry run.
        content: the home there.
        overwrite: replace values that are set here.
        schema: the schema with the options of plugins.
    """

    def __init__(self, home: Path, stage: Path, content: HomeContent, *, overwrite: bool, schema: Node) -> None:
        self._stage = stage
        self._content = content
        self._overwrite = overwrite
        self._schema = schema
        plugins = {Path(entry.target).name for entry in content.files if entry.kind == "plugin"}
        self._platforms = platform_names(schema) | plugins
        self.items: list[ImportItem] = []
        self.config_keys: list[KeyPath] = []
        """The keys that are set."""
        self.variables: list[str] = []
        """The variables that are set."""
        stage.mkdir(mode=0o700, parents=True, exist_ok=True)
        where = home_paths(home)
        self._copies = home_paths(stage)
        for original, copy in ((where.editable, self._copies.editable), (where.env, self._copies.env)):
            if original.is_file():
                shutil.copyfile(original, copy)
                copy.chmod(0o600)

    def merge(self) -> None:
        """Merge the settings, then the variables."""
        for setting in self._content.config:
            self._merge_config(move_platforms(setting.values, self._schema), setting.source)
        for setting in self._content.env:
            self._merge_variables(setting.values, setting.source)

    def set_own(self, path: KeyPath, value: Any, reason: str) -> None:
        """Set a key that the source does not have, because of what is imported."""
        set_value(self._stage, path, value, schema=self._schema)
        self.config_keys.append(path)
        self._note("config", render_path(path), "new", reason, "")

    def _note(self, kind: str, name: str, outcome: Outcome, reason: str, source: str) -> None:
        self.items.append(ImportItem(kind, name, outcome, reason, source, profile=self._content.profile))

    # --- variables -----------------------------------------------------------------------------------------------

    def _merge_variables(self, values: Mapping[str, str], source: str) -> None:
        try:
            present = read_env_file(self._copies.env)
        except UserError as exc:
            for name in values:
                self._note("variable", name, "not imported", f"the file here is invalid: {exc.message}", source)
            return
        for name, value in values.items():
            if name in present and (present[name] == value or not self._overwrite):
                same = present[name] == value
                self._note("variable", name, "same" if same else "conflict", _EQUAL if same else _OTHER, source)
                continue
            write_env_value(self._copies.env, name, value)
            self.variables.append(name)
            self._note("variable", name, "replaced" if name in present else "new", "", source)

    # --- config --------------------------------------------------------------------------------------------------

    def _merge_config(self, values: dict[str, Any], source: str) -> None:
        here = read_file(self._copies.editable)
        if here.findings:
            self._note("config", source, "not imported", f"the config here is invalid: {here.findings[0]}", source)
            return
        for key, value in values.items():
            whole: dict[str, Any] = {key: value}
            faults = {violation.path: violation for violation in validate(whole, self._schema)}
            if not faults:
                whole = normalise(whole, self._schema)
            idle = {
                parse_path(found.key_path): found.message for found in keys_without_effect(ConfigDocument("", whole))
            }
            wanted: dict[KeyPath, Any] = {}
            for path, item in _leaves(whole):
                if (reason := self._objection(path, whole, faults, idle)) is not None:
                    self._note("config", render_path(path), "not imported", reason, source)
                elif self._is_wanted(path, item, here.value, source):
                    wanted[path] = item
            self._write(wanted, here.value, source)

    def _objection(
        self, path: KeyPath, whole: dict[str, Any], faults: Mapping[KeyPath, Any], idle: Mapping[KeyPath, str]
    ) -> str | None:
        """Return why a key cannot be imported, or None."""
        for fault_path, fault in faults.items():
            texts = tuple(part for part in fault_path if isinstance(part, str))
            if path[: len(texts)] == texts:
                return describe_violation(fault, ConfigDocument("", whole), self._schema).message
        if path[0] == "platforms" and len(path) > 1 and path[1] not in self._platforms:
            return f"there is no platform `{path[1]}` here; there are {', '.join(sorted(self._platforms))}"
        for end in range(len(path), 0, -1):
            if path[:end] in idle:
                return idle[path[:end]]
        return None

    def _is_wanted(self, path: KeyPath, value: Any, here: dict[str, Any], source: str) -> bool:
        name, present = render_path(path), find_value(here, path)
        if present is MISSING and isinstance(short := find_value(here, path[:1]), str):
            present = find_value(normalise({path[0]: short}), path)
        if present is not MISSING:
            same = present == value
            if same or not self._overwrite:
                self._note("config", name, "same" if same else "conflict", _EQUAL if same else _OTHER, source)
                return False
            return True
        node = lookup(path, self._schema)
        usual = MISSING if node is None or node is OPEN else default(node)
        if usual == value:
            self._note("config", name, "same", _DEFAULT, source)
            return False
        if value in (None, "", [], {}) and usual in (MISSING, None, "", [], {}):
            self._note("config", name, "same", _EMPTY, source)
            return False
        return True

    def _write(self, wanted: dict[KeyPath, Any], here: dict[str, Any], source: str) -> None:
        """Set keys: a block that is not set here at once, others one by one."""
        if not wanted:
            return
        top = next(iter(wanted))[0]
        if top not in here and all(len(path) > 1 for path in wanted):
            block: dict[str, Any] = {}
            for path, value in wanted.items():
                _put(block, path[1:], value)
            try:
                set_value(self._stage, (top,), block, schema=self._schema)
            except UserError:
                pass  # one of its keys is refused: find out which
            else:
                for path in wanted:
                    self._record(path, "new", source)
                return
        for path, value in list(wanted.items())[:MAX_CONFIG_KEYS]:
            try:
                set_value(self._stage, path, value, schema=self._schema)
            except UserError as exc:
                reason = exc.message.split("\n", 1)[0]
                self._note("config", render_path(path), "not imported", _without_value(reason, value), source)
            else:
                self._record(path, "new" if find_value(here, path) is MISSING else "replaced", source)

    def _record(self, path: KeyPath, outcome: Outcome, source: str) -> None:
        self.config_keys.append(path)
        self._note("config", render_path(path), outcome, "", source)


def _without_value(reason: str, value: Any) -> str:
    text = str(value)
    return reason.replace(text, "…") if len(text) > 3 else reason


def _put(block: dict[Any, Any], path: KeyPath, value: Any) -> None:
    for part in path[:-1]:
        block = block.setdefault(part, {})
    block[path[-1]] = value


def _leaves(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield the values of mappings with their paths; a list is one value."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    else:
        yield path, value


def platform_names(schema: Node) -> frozenset[str]:
    """Return the platforms that plugins of this home declare."""
    return frozenset(resolve(lookup(("platforms",), schema) or OPEN).get("properties", {}))


def move_platforms(values: dict[str, Any], schema: Node) -> dict[str, Any]:
    """Return a config of upstream with the settings of platforms where this program reads them.

    A setting stays in its block if this program has none of that name; the block is then reported as without effect.
    """
    moved = {**values}
    platforms = {**values["platforms"]} if isinstance(values.get("platforms"), dict) else {}
    known = platform_names(schema)
    for name in PLATFORM_BLOCKS:
        block = values.get(name)
        if not isinstance(block, dict) or name not in known:
            continue
        own = {**platforms[name]} if isinstance(platforms.get(name), dict) else {}
        rest = {}
        for key, value in block.items():
            there = str(_PLATFORM_KEYS.get(key, key))
            node = lookup(("platforms", name, there), schema)
            if node is None or node is OPEN or validate(nested(("platforms", name, there), value), schema):
                rest[key] = value
            else:
                own.setdefault(there, value)
        platforms |= {name: own} if own else {}
        moved[name] = rest
        if not rest:
            del moved[name]
    return {**moved, **({"platforms": platforms} if platforms else {})}
