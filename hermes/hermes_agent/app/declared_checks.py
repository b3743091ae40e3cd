"""Checks of a declared config: programs, keys, variables, ports, secrets, what plugins register."""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hermes_agent.app.plugins.doctor import pip_dependencies
from hermes_agent.config.effective import header_secrets
from hermes_agent.config.schema import Node, child, render_path, variables, walk
from hermes_agent.config.settings import plain
from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.core.redaction import Redactor
from hermes_agent.core.secrecy import MASK, is_public_value, is_random, name_kind
from hermes_agent.cron.job_store import JobStore, import_jobs
from hermes_agent.mcp.settings import servers_of
from hermes_agent.plugins.activation import PluginSettings
from hermes_agent.plugins.closure import canonical, requirement, satisfies
from hermes_agent.plugins.config_names import find_missing_platform, find_unknown_names
from hermes_agent.plugins.discovery import BUNDLED
from hermes_agent.plugins.manifest import MANIFEST_VERSION, PluginManifest

if TYPE_CHECKING:
    from hermes_agent.host import Host
    from hermes_agent.models.selection import ModelSelection
    from hermes_agent.plugins.plugin_record import LoadedPlugin

FindingLevel = Literal["error", "warning"]


@lazy_dataclass(frozen=True, slots=True)
class Declaration:
    """A declared config, and what the service gives its daemon."""

    file: Path
    given: frozenset[str] = frozenset()
    """Names of the variables and credentials that have a value at the start."""
    may_have_more: bool = False
    """Whether files that only the machine has may give further ones."""
    has_logins: bool = False
    """Whether the service brings stored logins (`auth.json`)."""
    ports: Mapping[int, str] = field(default_factory=dict)
    """Ports of other services of the machine, with their owners."""
    low_ports: bool = False
    """Whether the service may listen on a port below 1024."""
    namespaces: bool = True
    """Whether the service may make namespaces, which isolated plugins without a unit need."""
    units: frozenset[str] = frozenset()
    """Isolated plugins with a unit of their own."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Further texts that everybody can read, such as the environment of the unit, by name."""
    home_files: Mapping[str, bytes] = field(default_factory=dict)
    """Declared files of the home, by path."""
    tolerated: frozenset[str] = frozenset()
    """Plugins with problems that are warnings."""
    unknown: frozenset[str] = frozenset()
    """Keys with a value that only the machine knows; they are not checked."""
    label: str = ""
    """Replaces the file in the findings of the config check."""


class DeclaredFinding(LazyNamedTuple):
    """A problem of a declared config."""

    level: FindingLevel
    key: str
    """The key of the config, or ""."""
    text: str
    remedy: str = ""


GIVE = "Declare a credential or a variable of that name."
TOLERATE = "Mend the plugin, or list it as tolerated."
RUN_INSIDE = (
    "Set `plugins.entries.{0}.isolation` to `in_process`; on NixOS"
    ' `services.hermes-agent.settings.plugins.entries."{0}".isolation = "in_process"`.'
)
GIVE_UNIT = "Run `packaging/systemd/plugin {}` as root; on NixOS name the plugin in `plugins.isolated`."


def _masked(text: str) -> bool:
    return MASK in Redactor()(text)


def settings_secrets(values: Mapping[str, Any], schema: Node) -> Iterator[DeclaredFinding]:
    """Yield the values of a config that are secrets; `${NAME}` is the place for one."""
    for path, value in walk(dict(values)):
        if isinstance(value, str) and not _without_variables(value).isspace() and _is_secret(path, value, schema):
            key = render_path(path)
            text = f"{key} is a secret, and would be readable for everybody"
            yield DeclaredFinding("error", key, text, "Write ${NAME}, and revoke what was written here.")


def _without_variables(text: str) -> str:
    return re.sub(r"\$\{\w+\}", "", text) or " "


def _is_secret(path: tuple[str | int, ...], value: str, schema: Node) -> bool:
    text = _without_variables(value)
    if _masked(text):
        return True
    names = [str(part) for part in path if isinstance(part, str)]
    if "headers" in names[:-1]:
        return value == text and any(len(one) >= 8 for one in header_secrets({names[-1]: value}))
    node: Node | None = schema
    inside = False
    for part in path:
        node = child(node, part) if node is not None else None
        inside = bool((node or {}).get("x-secret", inside))
    return inside and value == text and not is_public_value(value) and is_random(value)


def environment_secrets(texts: Mapping[str, str]) -> Iterator[DeclaredFinding]:
    """Yield the secrets among other texts that everybody can read."""
    for name, value in texts.items():
        last = name.rpartition(".")[2]
        if _masked(value) or (name_kind(last) == "secret" and is_random(value)):
            text = f"{name} is a secret, and would be readable for everybody"
            yield DeclaredFinding("error", name, text, "Declare a credential, and revoke what was written here.")


def unset_variables(values: Mapping[str, Any], declaration: Declaration) -> Iterator[DeclaredFinding]:
    """Yield each `${NAME}` that nothing gives."""
    level: FindingLevel = "warning" if declaration.may_have_more else "error"
    seen: set[str] = set()
    for path, value in walk(dict(values)):
        for name in variables(value) if isinstance(value, str) else ():
            if name in seen or name in declaration.given or name in os.environ:
                continue
            seen.add(name)
            key = render_path(path)
            yield DeclaredFinding(level, key, f"{key} needs ${{{name}}}, which nothing gives", GIVE)


def host_findings(host: Host, declaration: Declaration) -> Iterator[DeclaredFinding]:
    """Yield what the loaded host cannot resolve."""
    for finding in find_unknown_names(host):
        level: FindingLevel = "error" if finding.level == "error" else "warning"
        hint = "" if "did you mean" in finding.message else "A plugin may bring it, once it is enabled."
        if names_skill_of_home(finding.message):
            continue
        if hint and finding.key_path.startswith("quick_commands."):
            level, hint = "warning", "A skill of the home may have this name."
        yield DeclaredFinding(level, finding.key_path, finding.message, hint)
    yield from _model(host, declaration)
    yield from _servers(host)
    yield from _programs(host)
    yield from _ports(host, declaration)
    yield from _jobs(host)


def names_skill_of_home(text: str) -> bool:
    """Return whether a finding is about a skill that the home may have; it is empty in a build."""
    return "there is no skill `" in text and "did you mean" not in text


def _model(host: Host, declaration: Declaration) -> Iterator[DeclaredFinding]:
    from hermes_agent.app.start import configured_models

    block = host.config.raw.get("model") or {}
    named = bool(block) if isinstance(block, str) else any(block.get(k) for k in ("provider", "default", "base_url"))
    level: FindingLevel = "warning" if declaration.may_have_more or declaration.has_logins else "error"
    try:
        selection = host.select_model()
    except UserError as exc:
        if not named:
            text = "no model is configured, so the daemon refuses requests"
            yield DeclaredFinding("warning", "model", text, "Set model.provider and model.default.")
        elif "is no provider" not in exc.message and not any(key.startswith("model.") for key in declaration.unknown):
            yield DeclaredFinding(level, "model", f"model: {exc.message}", PROVIDER_HINT)
        return
    if lacking := _lacking_key(selection):
        yield DeclaredFinding(level if named else "warning", "model", lacking, GIVE)
    for use, other in configured_models(host):
        if use != "model" and (lacking := _lacking_key(other)):
            yield DeclaredFinding("warning", use, lacking.replace("model:", f"{use}:", 1), GIVE)


PROVIDER_HINT = "Name a provider in model.provider, and give its key."


def _first_line(hint: str) -> str:
    return hint.strip().splitlines()[0].strip() if hint.strip() else ""


def _lacking_key(selection: ModelSelection) -> str:
    endpoint = selection.endpoint
    if endpoint.client_profile is not None or endpoint.key or endpoint.login or not endpoint.provider.needs_key:
        return ""
    if endpoint.provider.signs_requests:
        return ""
    names = " or ".join(endpoint.provider.key_names) or "a key"
    return f"model: {endpoint.display_name} needs {names}, which nothing gives"


def _servers(host: Host) -> Iterator[DeclaredFinding]:
    for name, server in servers_of(host.config.settings.mcp_servers).items():
        if server.enabled and server.command and not variables(server.command):
            yield from _program(f"mcp_servers.{name}.command", server.command)


def _programs(host: Host) -> Iterator[DeclaredFinding]:
    """Yield the programs of command lines in the config that are not on the PATH."""
    settings = host.config.settings
    for kind, speech in (("tts", settings.tts), ("stt", settings.stt)):
        for name, block in speech.providers.items():
            if isinstance(block, Mapping):
                yield from _line(f"{kind}.providers.{name}.command", block.get("command"))
    for name, block in settings.quick_commands.items():
        if isinstance(block, Mapping) and block.get("type", "exec") == "exec":
            yield from _line(f"quick_commands.{name}.command", block.get("command"))
    for event, entries in _hooks(plain(settings.hooks)):
        for index, entry in enumerate(entries):
            if isinstance(entry, Mapping):
                yield from _line(f"hooks.{event}[{index}].command", entry.get("command"))


def _hooks(value: Any) -> Iterator[tuple[str, list[Any]]]:
    if isinstance(value, Mapping):
        for event, entries in value.items():
            if event not in ("outbound", "output_spill") and isinstance(entries, list):
                yield str(event), entries


_SHELL_WORDS = frozenset(
    """
    if for while case until { ( ! [[ . : alias bg cd command eval exec exit export fg hash jobs kill local read return
    set shift source test time times trap type ulimit umask unset wait printf echo true false
    """.split()  # noqa: SIM905 - a list literal has forty lines
)


def _line(key: str, value: Any) -> Iterator[DeclaredFinding]:
    """Yield a finding if the first word of a command line is a program that is not there."""
    if not isinstance(value, str) or not value.strip():
        return
    try:
        words = shlex.split(value)
    except ValueError as exc:
        yield DeclaredFinding("error", key, f"{key} is no command line: {exc}", "Close the quotation mark.")
        return
    words = [word for word in words if not re.match(r"[A-Za-z_]\w*=", word)]
    if words and words[0] not in _SHELL_WORDS and re.fullmatch(r"[\w./+~-]+", words[0]):
        yield from _program(key, os.path.expanduser(words[0]))  # noqa: PTH111 - a word, no path yet


STORE = "/nix/store/"


def _program(key: str, command: str) -> Iterator[DeclaredFinding]:
    if shutil.which(command) is not None:
        return
    if "/" not in command:
        text = f"{key}: there is no program `{command}` on the PATH of the service"
        yield DeclaredFinding("error", key, text, "Add the package that has it, or write its path.")
    elif command.startswith(STORE):
        why = "cannot be run" if Path(command).exists() else "does not exist"
        yield DeclaredFinding("error", key, f"{key}: {command} {why}", "Write the path of a program.")
    else:
        yield DeclaredFinding("warning", key, f"{key}: {command} is not here; the machine has to have it")


MOST_RESERVED = 1023
_LISTENS = ("webhook_port", "listen_port", "bind_port")


def _ports(host: Host, declaration: Declaration) -> Iterator[DeclaredFinding]:
    settings = host.config.settings
    wanted: list[tuple[str, int]] = []
    if settings.server.enabled:
        wanted.append(("server.port", settings.server.port))
    for name, block in settings.platforms.items():
        if not isinstance(block, Mapping) or block.get("enabled") is False:
            continue
        for place, values in ((f"platforms.{name}", block), (f"platforms.{name}.extra", block.get("extra") or {})):
            wanted += [(f"{place}.{key}", int(values[key])) for key in _LISTENS if str(values.get(key, "")).isdigit()]
    taken = dict(declaration.ports)
    for key, port in wanted:
        if 0 < port <= MOST_RESERVED and not declaration.low_ports:
            text = f"{key}: the service may not listen on port {port}: those below 1024 are of the system"
            yield DeclaredFinding("error", key, text, "Choose one from 1024 on, and put a web server before it.")
        if port and port in taken:
            text = f"{key}: port {port} is taken by {taken[port]}"
            yield DeclaredFinding("error", key, text, "Choose another one.")
        taken.setdefault(port, key)


class _CronLog(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the text of a record."""
        self.texts.append(record.getMessage())


JOBS = "cron/jobs.json"


def _jobs(host: Host) -> Iterator[DeclaredFinding]:
    """Yield the declared jobs (`cron/jobs.json`) with a schedule or a target that does not exist."""
    place = host.home / JOBS
    if not place.is_file():
        return
    log, logger = _CronLog(), logging.getLogger("hermes_agent.cron.job_store")
    logger.addHandler(log)
    try:
        store = JobStore(host.home / "jobs-of-the-check.db")
        jobs = import_jobs(store, host.home, 0.0)
        store.close()
    finally:
        logger.removeHandler(log)
    for text in log.texts:
        said = _first_line(text.replace(str(place), JOBS))
        yield DeclaredFinding("error", JOBS, said, "Mend the job, or drop it.")
    from hermes_agent.cron.jobs import targets_of

    for job in jobs:
        for target in targets_of(job):
            if fault := find_missing_platform(host, target):
                text = f"{JOBS}: job `{job.name}` delivers to `{target}`: {fault[1]}"
                yield DeclaredFinding("error" if fault[0] == "error" else "warning", JOBS, text)


def plugin_findings(host: Host, declaration: Declaration) -> Iterator[DeclaredFinding]:
    """Yield what of the enabled plugins would never work."""
    for record in host.plugins.records:
        manifest = record.manifest
        if manifest.source == BUNDLED or not record.enabled:
            continue
        is_tolerated = bool(declaration.tolerated & {manifest.key, manifest.name})
        texts = [*_packages(manifest), *_python(manifest), *_schemas(host, record.tools_registered)]
        texts += [note for note in record.notes if "unknown hook" in note or "unknown kind" in note]
        if manifest.manifest_version > MANIFEST_VERSION:
            texts.append(
                f"its manifest_version is {manifest.manifest_version}, and this release knows {MANIFEST_VERSION}"
            )
        remedies = {**dict.fromkeys(texts, TOLERATE), **dict(_isolation(host, record, declaration))}
        for text, remedy in remedies.items():
            level: FindingLevel = "warning" if is_tolerated else "error"
            yield DeclaredFinding(level, manifest.key, f"plugin `{manifest.key}`: {text}", remedy)


def _isolation(host: Host, record: LoadedPlugin, declaration: Declaration) -> Iterator[tuple[str, str]]:
    """Yield why an isolated plugin would not run in a process of its own, each with its remedy."""
    from hermes_agent.plugins.isolation.hosted_context import remedy  # few configs isolate plugins
    from hermes_agent.plugins.isolation.isolated_plugin import refuse_kind
    from hermes_agent.plugins.loader import LoadFailed

    settings = PluginSettings.of(host.config.values)
    if not settings.is_isolated(record.manifest):
        return
    try:
        refuse_kind(record.manifest)
    except LoadFailed as exc:
        yield str(exc), TOLERATE
    platforms = [name for kind, name in record.providers_registered if kind.name == "platform"]
    if record.registers().get("providers") and platforms:
        named = f"the chat platform `{platforms[0]}` cannot run in a process of its own"
        yield f"{named}; {remedy(record.manifest.key)}", RUN_INSIDE.format(record.manifest.key)
    if not (declaration.namespaces or settings.host.get("launcher") or record.manifest.key in declaration.units):
        yield (
            "`isolation: host` needs a unit of its own, since the service may make no namespaces; give it one, set"
            " `plugins.host.launcher`, or `isolation: in_process`",
            GIVE_UNIT.format(record.manifest.key),
        )


def _packages(manifest: PluginManifest) -> Iterator[str]:
    from importlib import metadata

    for text in pip_dependencies(manifest):
        name, wanted = requirement(text)
        if not name or name == "hermes-agent":
            continue
        try:
            there = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield f"pip_dependencies: it wants the Python package `{text}`, which nothing brings"
            continue
        if not satisfies(there, wanted):
            yield f"pip_dependencies: it wants `{text}`, and {name} {there} is there"


def _python(manifest: PluginManifest) -> Iterator[str]:
    """Yield why the interpreter is none that the plugin takes (`requires-python`)."""
    import tomllib
    from importlib import metadata

    wanted = ""
    project = Path(manifest.path, "pyproject.toml")
    if manifest.source != "entrypoint" and project.is_file():
        try:
            wanted = tomllib.loads(project.read_text(encoding="utf-8")).get("project", {}).get("requires-python") or ""
        except (OSError, ValueError):
            return
    elif manifest.source == "entrypoint":
        for one in metadata.entry_points(group="hermes_agent.plugins"):
            if canonical(one.name) == canonical(manifest.name) and one.dist is not None:
                wanted = str(one.dist.metadata["Requires-Python"] or "")
    mine = ".".join(map(str, sys.version_info[:3]))
    if isinstance(wanted, str) and wanted and not satisfies(mine, wanted):
        yield f"requires-python is `{wanted}`, and the agent runs Python {mine}"


def _schemas(host: Host, tools: Iterable[str]) -> Iterator[str]:
    """Yield the tools with parameters that are no JSON Schema: a provider refuses every request with them."""
    from jsonschema import SchemaError
    from jsonschema.validators import validator_for

    for name in tools:
        parameters = (host.tools.get_schema(name) or {}).get("parameters") or {}
        try:
            validator_for(parameters if isinstance(parameters, dict) else {}).check_schema(parameters)
        except SchemaError as exc:
            where = ".".join(map(str, exc.absolute_path)) or "parameters"
            yield f"the schema of its tool `{name}` is none: {where}: {exc.message}"
