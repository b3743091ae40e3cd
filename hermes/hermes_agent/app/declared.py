"""`hermes doctor --declared FILE`: start the daemon in an empty home, up to its first connection.

The gate of a NixOS build and `nix run .#check-config` use it. The config is read, the plugins are loaded, and the
HTTP server, the webhooks, the gateway and the scheduler are made by the code of `hermes gateway run`. Nothing is
connected and no program is run. `declared_checks` then resolves what a start resolves only when it is used.

All of it runs in a child process, since a plugin may hang, crash or call `os._exit`. PATH is that of the caller.
Variables that the service will have get a placeholder.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.app.declared_checks import (
    Declaration,
    DeclaredFinding,
    FindingLevel,
    environment_secrets,
    host_findings,
    names_skill_of_home,
    plugin_findings,
    settings_secrets,
    unset_variables,
)
from hermes_agent.app.manifest_cache import declared_schema, find_plugins
from hermes_agent.app.plugins.check import PLACEHOLDER, ChildDied, enter_empty_home, run_in_child
from hermes_agent.config.check import check_file
from hermes_agent.config.home import DECLARED
from hermes_agent.config.load import check_document
from hermes_agent.config.schema import Node, find_value, has_variable, parse_path
from hermes_agent.config.validate import validate
from hermes_agent.config.yaml_document import ConfigDocument
from hermes_agent.config.yaml_reader import read_file
from hermes_agent.core.errors import UserError

if TYPE_CHECKING:
    from hermes_agent.host import Host

LIMIT_S = 120.0
"""Longest time of the whole check, in seconds."""
REQUIRED = "is required by the plugin's config_schema"
"""In the warning of the loader about a setting of a plugin that is missing."""
NOT_ALLOWED = "not allowlisted"
"""In the warning of a shell hook that a hint of the start repeats."""
STDERR = "stderr-of-the-check"
"""File of the home with what the child prints."""
MOST_SHOWN = 3
"""Lines of it that the finding about its death has."""


def read_declaration(file: Path, given: Iterable[str] = (), service: str | None = None) -> Declaration:
    """Return the declaration of a config.

    Args:
        given: names of variables of the service; several may be joined by commas.
        service: file with the fields of `Declaration` as JSON, or None; `home_files` are paths there.

    Raises:
        UserError: the file is none of a service.
    """
    names = {name.strip() for text in given for name in text.split(",") if name.strip()}
    if service is None:
        return Declaration(file, frozenset(names | set(os.environ)))
    try:
        value = json.loads(Path(service).read_text(encoding="utf-8"))
        return Declaration(
            file,
            frozenset(names | set(value.get("given", ()))),
            may_have_more=bool(value.get("may_have_more")),
            has_logins=bool(value.get("has_logins")),
            ports={int(port): str(owner) for port, owner in value.get("ports", {}).items()},
            low_ports=bool(value.get("low_ports")),
            namespaces=value.get("namespaces") is not False,
            units=frozenset(value.get("units", ())),
            texts={str(name): str(text) for name, text in value.get("texts", {}).items()},
            home_files={name: Path(path).read_bytes() for name, path in value.get("home_files", {}).items()},
            tolerated=frozenset(value.get("tolerated", ())),
            label=str(value.get("label", "")),
        )
    except OSError as exc:
        raise UserError(f"cannot read {exc.filename}: {exc.strerror}") from exc
    except (ValueError, AttributeError, TypeError) as exc:
        raise UserError(f"{service} describes no service: {exc}", hint="docs/nix.md has its fields.") from exc


def check_declared(declaration: Declaration, *, limit_s: float = LIMIT_S) -> list[DeclaredFinding]:
    """Return what would go wrong when the daemon starts with a declared config.

    Args:
        limit_s: time limit in seconds.

    Raises:
        UserError: the file cannot be read.
    """
    if not declaration.file.is_file():
        raise UserError(f"cannot read {declaration.file}: it is no file", hint="Name a config, as YAML or JSON.")
    home = Path(tempfile.mkdtemp(prefix="hermes-declared-"))
    try:
        outcome = run_in_child(lambda tell: [list(each) for each in _check(home, declaration, tell)], limit_s=limit_s)
        printed = _last_lines(home / STDERR)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    if isinstance(outcome, ChildDied):
        where = f" while {outcome.activity}" if outcome.activity else ""
        text = "\n".join([f"the start ended{where}: {outcome.cause}", *printed])
        return [DeclaredFinding("error", "", text, "`hermes plugins check` loads the plugins one by one.")]
    return [DeclaredFinding(*each) for each in outcome]


def _last_lines(file: Path) -> list[str]:
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [f"  {line}" for line in lines if line.strip()][-MOST_SHOWN:]


def _check(home: Path, declaration: Declaration, tell: Callable[[str], None]) -> Iterator[DeclaredFinding]:
    file = declaration.file.absolute()
    enter_empty_home(home)
    with (home / STDERR).open("wb") as stderr:
        os.dup2(stderr.fileno(), 1)
        os.dup2(stderr.fileno(), 2)
    for name, content in declaration.home_files.items():
        target = home / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    for name in declaration.given:
        os.environ.setdefault(name, PLACEHOLDER)
    tell("reading the config")
    schema = declared_schema(home, find_plugins(home))
    report = check_file(file, schema=schema, label=declaration.label)
    for finding in report.errors:
        yield DeclaredFinding("error", finding.key_path, str(finding).removeprefix(f"{declaration.label}: "))
    for finding in report.notes:
        level: FindingLevel = "error" if _is_option(finding.key_path) else "warning"
        yield DeclaredFinding(level, finding.key_path, str(finding).removeprefix(f"{declaration.label}: "))
    document = read_file(file)
    yield from settings_secrets(document.value, schema)
    yield from environment_secrets(declaration.texts)
    yield from unset_variables(document.value, declaration)
    if report.errors:
        return
    os.environ[DECLARED] = str(home / "declared.json")
    values, unknown = _startable(document, schema)
    (home / "declared.json").write_text(json.dumps(values), encoding="utf-8")
    yield from _start(replace(declaration, unknown=unknown), tell)


def _is_option(key_path: str) -> bool:
    """Return whether a key is a setting of a plugin that a declaration gives a type."""
    parts = parse_path(key_path)[:4] if key_path else ()
    return parts[:2] == ("plugins", "entries") and parts[3:] in (("settings",), ("config",))


def _startable(document: ConfigDocument, schema: Node) -> tuple[Any, frozenset[str]]:
    """Return the values for a start, and the keys without one: only the real variable is valid there."""
    values, _ = check_document(document, lambda name: os.environ.get(name, PLACEHOLDER), at_build=True, schema=schema)
    unknown = set()
    written = json.loads(json.dumps(document.value, default=str))
    for violation in validate(values, schema):
        named = tuple(part for part in violation.path if isinstance(part, str))
        if named == violation.path and has_variable(find_value(document.value, named)):
            _remove(written, named)
            unknown.add(".".join(named))
    return written, frozenset(unknown)


def _remove(value: Any, path: tuple[str, ...]) -> None:
    for part in path[:-1]:
        value = value[part]
    del value[path[-1]]


class _Warnings(logging.Handler):
    """Keeps what the program logs as a warning or worse."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: dict[str, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the text of a record, once."""
        if record.name.startswith(("hermes_agent", "hermes_plugins")):
            self.texts.setdefault(record.getMessage(), record.name)


def _start(declaration: Declaration, tell: Callable[[str], None]) -> Iterator[DeclaredFinding]:
    from hermes_agent.app.start import start_host
    from hermes_agent.plugins.manager import PluginManager

    PluginManager.isolates = False  # this process is one of its own, and a builder has no sandbox
    logged = _Warnings()
    logging.getLogger().addHandler(logged)
    tell("loading the plugins")
    try:
        host = start_host("daemon", log_level="WARNING", fetches=False)
    except UserError as exc:
        yield DeclaredFinding("error", "", exc.message, exc.hint)
        return
    logging.getLogger().addHandler(logged)
    tell("making the parts of the daemon")
    try:
        found = [*_parts(host, declaration), *host_findings(host, declaration)]
        found += plugin_findings(host, declaration)
    finally:
        asyncio.run(host.aclose())
    yield from found
    idle = [record.manifest.name for record in host.plugins.records if not record.enabled]
    for text in logged.texts:
        if text.startswith(tuple(f"Plugin {name}:" for name in idle)):
            continue
        if not _is_reported(text, found):
            yield DeclaredFinding("error" if REQUIRED in text else "warning", "", text)


def _is_reported(text: str, found: Iterable[DeclaredFinding]) -> bool:
    """Return whether a finding says what was logged, in its own words."""
    plain = text.rpartition(": ")[2]
    if (
        NOT_ALLOWED in text
        or names_skill_of_home(text)
        or any(each.text in text or (plain and plain in each.text) for each in found)
    ):
        return True
    words = ("unknown hook", "unknown kind", "manifest_version")
    return any(
        each.key
        and text.startswith((f"Plugin {each.key}:", f"Plugin '{each.key}'"))
        and word in text
        and word in each.text
        for each in found
        for word in words
    )


def _parts(host: Host, declaration: Declaration) -> Iterator[DeclaredFinding]:
    """Make the parts of the daemon in the order of its start; yield why one cannot be made."""
    from hermes_agent.gateway.scheduled_jobs import SchedulerFactory
    from hermes_agent.server import read_settings
    from hermes_agent.server.webhooks import read_routes

    gateway = None

    def make_gateway() -> None:
        nonlocal gateway
        gateway = host.gateway()

    def make_scheduler() -> None:
        if gateway is not None:
            host.service(SchedulerFactory).make(gateway.send_text, gateway.attach)

    for make in (
        lambda: read_settings(host.config.settings, host.credentials),
        lambda: read_routes(host.config.settings, host.credentials),
        make_gateway,
        make_scheduler,
    ):
        try:
            make()
        except UserError as exc:
            is_given_there = declaration.may_have_more and "set the variable" in exc.message
            level: FindingLevel = "warning" if is_given_there else "error"
            yield DeclaredFinding(level, "", exc.message, exc.hint)
