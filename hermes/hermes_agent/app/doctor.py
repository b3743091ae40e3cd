"""`hermes doctor`: checks of the home, the plugins, the terminal, the model and the daemon.

A list of models proves nothing about an API key: many servers list their models without a key and refuse chat requests.
Therefore the check of the model sends a chat request without messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

from hermes_agent import __version__
from hermes_agent.app.cli.command import Diagnosis, Level, loaded_host
from hermes_agent.app.control_operations import troubles_as_json
from hermes_agent.app.daemon_client import daemon_socket
from hermes_agent.app.gateway_commands import collect_from_socket, collect_status
from hermes_agent.app.imports.journal import interrupted_imports
from hermes_agent.app.manifest_cache import declared_schema, quiet_or_debug
from hermes_agent.app.plugin_updates import pending_updates
from hermes_agent.app.plugins.doctor import run_plugin_checks as plugin_findings
from hermes_agent.app.plugins.home import InstalledPlugins, LazySecrets
from hermes_agent.app.start import unpriced_models
from hermes_agent.config import hermes_home
from hermes_agent.config.check import check_home
from hermes_agent.contracts.model_client import ModelAnswer, ModelRequest
from hermes_agent.contracts.terminal_env import BackendCommand, TerminalBackend
from hermes_agent.core.errors import ModelError, ToolFailed, UserError
from hermes_agent.core.messages import Message
from hermes_agent.core.text import shorten
from hermes_agent.credentials.secret_sources import SecretSources
from hermes_agent.cron import JobStore
from hermes_agent.cron.jobs import targets_of
from hermes_agent.host import Host
from hermes_agent.host.settings import working_directory
from hermes_agent.mcp.servers import McpServers
from hermes_agent.models.client_profiles import configured_services
from hermes_agent.models.model_catalog import cost_usd, fetch_model_ids
from hermes_agent.models.selection import ModelSelection
from hermes_agent.plugins.config_names import find_missing_platform, find_unknown_names
from hermes_agent.plugins.llm_access import request_refusal
from hermes_agent.policy.network import GROUP, explain_unruled
from hermes_agent.server import read_settings
from hermes_agent.sessions import UsageRecord
from hermes_agent.store.database import check_database as check_state
from hermes_agent.system.installation import extras, install_hint, missing_packages
from hermes_agent.workspace.backend import ShellState, run_command
from hermes_agent.workspace.shell_hooks import ShellHookLoader
from hermes_agent.workspace.task_shells import TaskShells

QUESTION = "This is a test of the connection. Answer with the word ready and nothing else."
ASK_S = 120.0
"""Seconds that a server has for the question of `--ask`."""
PROBE_S = 20.0
LONGEST_ANSWER = 80
AUTHORISED = (400, 413, 422)
"""Statuses of a server that accepts the key and refuses a request without messages."""
CAUSE = "doctor"


def check_model(host: Host, *, offline: bool, ask: bool) -> Iterator[Diagnosis]:
    """Yield the findings about the model.

    Args:
        offline: no request is sent.
        ask: the model gets a question, at the price of a short question.
    """
    try:
        selection = host.select_model()
    except UserError as exc:
        hint = "`hermes -z hello` lists the ways." if "\n" in exc.hint else exc.hint
        yield Diagnosis("wrong", "model", exc.message, hint)
        yield from _check_client_profiles(host)
        return
    name = f"{selection.model or '(the first of its list)'} of {selection.provider}"
    if offline:
        yield Diagnosis("ok", "model", name)
    elif selection.client_profile is not None:
        yield from _ask_model(host, selection, name) if ask else [Diagnosis("ok", "model", f"{name} is there")]
    else:
        yield from _check_server(host, selection, name, ask=ask)


def _check_client_profiles(host: Host) -> Iterator[Diagnosis]:
    """Yield the findings about providers that bring their own client."""
    for profile in host.model_providers.client_profiles():
        for fault in profile.check(configured_services(profile, host.config.settings)):
            yield Diagnosis("wrong", "model", fault.text, fault.remedy)


def _check_server(host: Host, selection: ModelSelection, name: str, *, ask: bool) -> Iterator[Diagnosis]:
    endpoint = selection.endpoint
    listed = fetch_model_ids(endpoint)
    if ask:
        findings = list(_ask_model(host, selection, name))
    elif listed is not None and endpoint.key and fetch_model_ids(replace(endpoint, key="")) is None:
        findings = [Diagnosis("ok", "model", f"{name} ({endpoint.public_url} answers)")]
    else:
        findings = [probe_model(selection, name)]
    yield from findings
    if listed and selection.model and selection.model not in listed and findings[-1].level != "wrong":
        text = f"{selection.provider} does not list {selection.model}"
        yield Diagnosis("note", "model", text, f"`hermes model list {selection.provider}` shows what there is.")


def probe_model(selection: ModelSelection, name: str) -> Diagnosis:
    """Return the finding of a chat request without messages: servers check the key before they refuse it."""
    url = selection.endpoint.public_url
    request = ModelRequest(selection.model, (), max_tokens=1)
    try:
        asyncio.run(_answer(selection, request, PROBE_S))
    except ModelError as exc:
        is_read = exc.kind == "refused" and exc.status in AUTHORISED
        if is_read or exc.kind in ("empty", "context_too_long"):
            return Diagnosis("ok", "model", f"{name} ({url} answers)")
        passing = exc.kind in ("overloaded", "rate_limit", "cut_off")
        hint = "`hermes doctor --ask` asks a question." if passing else exc.hint
        return Diagnosis("note" if passing else "wrong", "model", exc.message, hint)
    return Diagnosis("ok", "model", f"{name} ({url} answers)")


def _ask_model(host: Host, selection: ModelSelection, name: str) -> Iterator[Diagnosis]:
    """Yield the time and the answer of a question to the model, or the error that a turn would show."""
    if refusal := request_refusal(host, selection):
        yield Diagnosis("wrong", "model", refusal, "Change `limits` in the config, or wait until tomorrow.")
        return
    request = ModelRequest(selection.model, [Message("user", QUESTION)], max_tokens=selection.max_tokens)
    began = time.monotonic()
    try:
        own = selection.client_profile
        answer = asyncio.run(_answer(selection, request, own.answer_limit_s if own is not None else ASK_S))
    except UserError as exc:
        yield Diagnosis("wrong", "model", exc.message, exc.hint)
        return
    seconds = time.monotonic() - began
    _record(host, selection, answer, seconds)
    text = " ".join(answer.message.text.split())
    shown = shorten(text, LONGEST_ANSWER)
    yield Diagnosis("ok", "model", f"{name} answered in {seconds:.1f} s: {shown}")


async def _answer(selection: ModelSelection, request: ModelRequest, limit_s: float) -> ModelAnswer:
    """Return the answer of this model to one question, without fallbacks.

    Raises:
        ModelError: there is no answer in time.
    """
    client: Any = selection.new_client()
    answer: ModelAnswer | None = None
    try:
        async with asyncio.timeout(limit_s), aclosing(client.stream(request)) as items:
            async for item in items:
                if isinstance(item, ModelAnswer):
                    answer = item
    except TimeoutError:
        text = f"Model {request.model!r} of {selection.provider} gave no whole answer within {limit_s:g} seconds."
        hint = f"Is the server at {selection.endpoint.public_url} overloaded?" if selection.base_url else ""
        raise ModelError("unreachable", text, hint=hint) from None
    finally:
        await client.aclose()
    assert answer is not None  # every stream ends with it
    return answer


def _record(host: Host, selection: ModelSelection, answer: ModelAnswer, seconds: float) -> None:
    provider = answer.provider or selection.provider
    cost = cost_usd(answer, provider)
    host.ledger.record(UsageRecord(answer.usage, provider, answer.model, cause=CAUSE, cost_usd=cost, seconds=seconds))


SERVERS_S = 20.0
"""Seconds that MCP servers have to connect."""
COMMAND_S = 30.0
"""Seconds that the test command in the terminal may take."""


def run_checks(*, offline: bool, ask: bool = False) -> Iterator[Diagnosis]:
    """Yield each finding when it is made. A member of the daemon's group gets findings of the daemon only.

    Args:
        offline: no request is sent to the model's server.
        ask: the model gets a question.
    """
    quiet_or_debug(os.environ)
    if (door := daemon_socket(os.environ)) is not None:  # its administrator checks the rest
        yield from _describe_running(collect_from_socket(door))
        if ask:
            yield Diagnosis("note", "model", "is the daemon's, and not asked from here", "`hermes -z hello` asks it.")
        return
    home = hermes_home()
    config = list(_guard_check("config", lambda: _config(home)))
    yield from config
    is_started = False
    if all(line.level != "wrong" for line in config):
        for line in _guard_check("start", lambda: _check_loaded(home, offline=offline, ask=ask)):
            is_started = is_started or line.subject != "start"
            yield line
    if not is_started:  # checks that need no host
        yield from _guard_check("plugins", lambda: _plugins(home))
        yield from _guard_check("state", lambda: _state(home))
        yield from _extras()


def _check_loaded(home: Path, *, offline: bool, ask: bool) -> Iterator[Diagnosis]:
    """Yield the findings that need loaded plugins."""
    with loaded_host() as host:
        yield from _guard_check("config", lambda: _names(host))
        yield from _guard_check("plugins", lambda: _plugins(home))
        yield from _guard_check("state", lambda: _state(home))
        yield from _guard_check("hooks", lambda: _hooks(host))
        yield from _guard_check("cron", lambda: _jobs(host))
        yield from _guard_check("secrets", lambda: _secrets(host))
        yield from _guard_check("terminal", lambda: terminal_findings(host))
        yield from _guard_check("model", lambda: check_model(host, offline=offline, ask=ask))
        yield from _guard_check("limits", lambda: _limits(host))
        yield from _guard_check("mcp", lambda: _servers(host, offline=offline))
        yield from _extras()
        yield from _guard_check("plugins", lambda: _check_troubles(host))
        yield from _guard_check("daemon", lambda: _daemon(host))


def _guard_check(subject: str, look: Callable[[], Iterable[Diagnosis]]) -> Iterator[Diagnosis]:
    """Yield the findings of a check; a failed check is a finding, and the other checks run."""
    try:
        yield from look()
    except UserError as exc:
        hint = exc.hint or ""
        yield Diagnosis("wrong", subject, exc.message, "`hermes -z hello` lists the ways." if "\n" in hint else hint)


def _config(home: Path) -> Iterator[Diagnosis]:
    report = check_home(home, schema=declared_schema(home))
    for finding in report.errors:
        yield Diagnosis("wrong", "config", str(finding), report.hint)
    for finding in report.notes:
        yield Diagnosis("wrong" if finding.level == "warning" else "note", "config", str(finding))


def _names(host: Host) -> Iterator[Diagnosis]:
    """Yield the unknown names in a config that is otherwise valid."""
    found = find_unknown_names(host)
    for finding in found:
        if not finding.key_path.startswith("plugins."):  # `_plugins` reports it
            yield Diagnosis("wrong", "config", str(finding))
    if not found:
        yield Diagnosis("ok", "config", f"{host.home} is valid")


def _hooks(host: Host) -> Iterator[Diagnosis]:
    """Yield the shell hooks of the config that do not run."""
    for text, remedy in host.service(ShellHookLoader).faults():
        yield Diagnosis("wrong", "hooks", text, remedy)


def _jobs(host: Host) -> Iterator[Diagnosis]:
    """Yield the scheduled jobs with answers for an unknown platform."""
    if not (host.home / "state.db").exists():
        return
    with contextlib.closing(JobStore(host.home / "state.db")) as store:
        jobs = [job for job in store.jobs() if job.enabled]
    for job in jobs:
        for target in targets_of(job):
            if fault := find_missing_platform(host, target):
                text = f"job {job.name!r} ({job.id}) delivers to `{target}`: {fault[1]}"
                yield Diagnosis("wrong", "cron", text, f"`hermes cron edit {job.id} --deliver WHERE` changes it.")


def _plugins(home: Path) -> Iterator[Diagnosis]:
    """Yield the problems of plugins, and the number of those that run."""
    lines = plugin_findings(home, os.environ, Path.cwd(), LazySecrets(home))
    for line in lines:
        if line.level == "wrong" and line.subject != "config":  # `_config` reports it with the line
            yield Diagnosis("wrong", "plugins", f"{line.subject}: {line.text}", line.remedy)
    here = InstalledPlugins()
    for key, text in pending_updates(home, here.found.plugins.values(), here.trust):
        yield Diagnosis("note", "plugins", f"{key}: {text}")
    running = sum(line.level == "ok" for line in lines)
    yield Diagnosis("ok", "plugins", f"{running} run (`hermes plugins doctor` says more)")


def _state(home: Path) -> Iterator[Diagnosis]:
    for name in interrupted_imports(home):
        remedy = f"`hermes import undo {name}` takes it back; the next `hermes import` of any home finishes it."
        yield Diagnosis("wrong", "state", f"the import {name} was interrupted: a part of it is here", remedy)
    path = home / "state.db"
    if not path.exists():
        yield Diagnosis("idle", "state", "nothing is stored yet")
        return
    found = check_state(path)
    for fault in found.faults:
        yield Diagnosis("wrong", "state", f"{path} is damaged: {fault}", "`hermes state restore-points` lists copies.")
    if not found.faults:
        yield Diagnosis("ok", "state", f"{path} is whole ({found.size[0] / 1e6:.1f} MB)")


def _secrets(host: Host) -> Iterator[Diagnosis]:
    warnings = host.credentials.warnings()
    for warning in warnings:
        yield Diagnosis("wrong", "secrets", warning)
    if not warnings:
        yield Diagnosis("ok", "secrets", "only you may read them")
    for report in host.service(SecretSources).reports:
        if report.error:
            yield Diagnosis("wrong", "secrets", f"source `{report.name}`: {report.error}")
            continue
        left = "".join(f"; {name}: {reason}" for name, reason in report.skipped.items())
        text = f"source `{report.name}`: {', '.join(report.applied) or 'no variable'}{left}"
        yield Diagnosis("ok" if report.applied or not left else "note", "secrets", text)
        for warning in report.warnings:
            yield Diagnosis("note", "secrets", f"source `{report.name}`: {warning}")


def terminal_findings(host: Host) -> Iterator[Diagnosis]:
    """Yield the place where commands run, after a test command."""
    remedy = "docs/operator/commands.md says what each backend needs."
    try:
        backend = host.service(TaskShells).backend
        for ok, label, detail in backend.checks():
            yield Diagnosis("ok" if ok else "wrong", "terminal", f"{label}: {detail}" if detail else label)
        if backend.refusal:
            yield Diagnosis("wrong", "terminal", backend.refusal)
            return
        yield _network(host, backend)
        cwd = str(Path.cwd()) if backend.own_files else ""
        done = run_command(backend, BackendCommand("true", cwd, COMMAND_S, "doctor", root=cwd), ShellState())
        backend.close("doctor")
    except (ToolFailed, OSError) as exc:
        yield Diagnosis("wrong", "terminal", f"no command can be run: {exc}", remedy)
        return
    if done.exit_code != 0:
        said = done.head.decode("utf-8", "replace").strip()
        text = f"commands fail ({backend.name}): `true` ended with status {done.exit_code} {said}"
        yield Diagnosis("wrong", "terminal", text.rstrip(), remedy)
    elif backend.confines:
        yield Diagnosis("ok", "terminal", f"commands run ({backend.name})")
    else:
        yield Diagnosis("note", "terminal", f"commands run ({backend.name}), and each is asked about", remedy)


def _network(host: Host, backend: TerminalBackend) -> Diagnosis:
    """Return the network access of commands, and whether its parts work."""
    mode, listed = host.config.settings.terminal.network, host.config.settings.network.hosts
    said, remedy = f"network of commands: `{mode}`", "docs/operator/network.md says what each backend can do."
    if why := explain_unruled(host.service(TaskShells).name, host.config.settings):
        return Diagnosis("note", "terminal", f"{said}: {why}", remedy)
    if host.service(TaskShells).name != "local":
        return Diagnosis("ok", "terminal", f"{said}: none ({backend.name})")
    if problem := backend.network_problem():
        return Diagnosis("wrong", "terminal", f"{said}, and it cannot be had: {problem}", remedy)
    if mode in ("hosts", "ask"):
        named = sum(str(entry).strip().startswith(GROUP) for entry in listed)
        said += f", {_count(len(listed) - named, 'entry', 'entries')} and {_count(named, 'group', 'groups')} listed"
    leads = "one for each session, which leads nowhere" if mode == "off" else "one for each session, behind the broker"
    return Diagnosis("ok", "terminal", f"{said}, {leads}")


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _extras() -> Iterator[Diagnosis]:
    """Yield the installed extras, and how to install each of the others."""
    declared = extras()
    lacking = {name: missing_packages(requirements) for name, requirements in declared.items()}
    if there := [name for name, missing in lacking.items() if not missing]:
        yield Diagnosis("ok", "extras", f"installed: {', '.join(there)}")
    for name, missing in lacking.items():
        if missing:
            yield Diagnosis("idle", "extras", f"{name} is not installed ({', '.join(missing)})", install_hint(name))


def _check_troubles(host: Host) -> Iterator[Diagnosis]:
    """Yield problems of plugins since they were loaded; other findings report failed loads."""
    for one in troubles_as_json(host):
        if one["state"] in ("suspended", "stalled", "errors"):
            yield Diagnosis("wrong", "plugins", f"{one['plugin']} ({one['state']}): {one['reason']}", one["remedy"])


def _limits(host: Host) -> Iterator[Diagnosis]:
    """Yield caps in dollars that cannot be enforced."""
    level: Level = "note" if host.config.settings.limits.unknown_price == "warn" else "wrong"
    for sentence in unpriced_models(host):
        yield Diagnosis(level, "limits", sentence)


def _servers(host: Host, *, offline: bool) -> Iterator[Diagnosis]:
    """Yield the state of each MCP server, connected as at a start."""
    if not offline:
        host.service(McpServers).wait_connected(SERVERS_S)
    for name, state, tools, error in host.service(McpServers).status():
        if error:
            yield Diagnosis("wrong", "mcp", f"{name}: {error}", f"`hermes mcp test {name}` tries it.")
        elif state == "connected":
            yield Diagnosis("ok", "mcp", f"{name} is connected, {len(tools)} tools")
        else:
            yield Diagnosis("idle", "mcp", f"{name}: {state}")


def _daemon(host: Host) -> Iterator[Diagnosis]:
    found = collect_status(host.home, lambda: read_settings(host.config.settings, host.credentials).key)
    if found["running"]:
        yield from _describe_running(found)
    else:
        yield Diagnosis("idle", "daemon", "does not run", "`hermes gateway run` starts it.")
        place = working_directory(host.config, host.home, of_daemon=True)
        yield Diagnosis("idle", "daemon", f"would work in {place}, unless its unit names another directory")


def _describe_running(found: Mapping[str, Any]) -> Iterator[Diagnosis]:
    version = found["http"].get("version")
    if version not in (None, __version__):
        text = f"runs version {version}, and this command is {__version__}"
        yield Diagnosis("note", "daemon", text, "`hermes gateway restart`")
    else:
        yield Diagnosis("ok", "daemon", f"runs as process {found['pid']}")
    if "cwd" in found:
        yield Diagnosis("ok", "daemon", f"works in {found['cwd']}")
    if "error" in found["http"]:
        yield Diagnosis("wrong", "daemon", f"its HTTP interface does not answer: {found['http']['error']}")
    if "control" in found:
        yield Diagnosis("wrong", "daemon", f"does not answer: {found['control']}", "`hermes logs` says more.")
    for one in found.get("platforms", ()):
        if one["reason"]:
            yield Diagnosis("wrong", "daemon", f"{one['name']} is {one['state']}: {one['reason']}")
    for one in found.get("plugins", ()):
        text = f"its plugin {one['plugin']} ({one['state']}): {one['reason']}"
        yield Diagnosis("wrong", "daemon", text, one["remedy"])
    for one in found.get("parked", ()):
        text = f"{one['count']} messages to {one['target']} are parked: {one['reason']}"
        yield Diagnosis("wrong", "daemon", text, "`hermes gateway revive` tries again.")
