"""Loading of a plugin in a process of its own, and its registrations in the agent.

`load_isolated` starts the process and registers what the plugin declares with the plugin's own context, so that names,
owners, conflicts and handles are those of every plugin. After a restart the same keys lead to the new process. Source:
plugin contract of 0.23 §2.7.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.config.home import FileAccess
from hermes_agent.config.settings import Settings, plain
from hermes_agent.plugins.activation import Activation, PluginProcessSettings
from hermes_agent.plugins.capabilities import SECRET, entry_of, granted_names
from hermes_agent.plugins.handles import PluginRegistration
from hermes_agent.plugins.isolation.hosted_context import AGENT, DECLARED, SERVICES, remedy
from hermes_agent.plugins.isolation.launchers import (
    ChildLauncher,
    ProcessLauncher,
    StartedCommand,
    UnitLauncher,
    UnitRequest,
)
from hermes_agent.plugins.isolation.peer import CallTarget
from hermes_agent.plugins.isolation.process import PluginProcess, PluginProcessDown, ProcessPlan
from hermes_agent.plugins.isolation.process_state import UNIT_HINT, record_of, unit_socket, visible_paths
from hermes_agent.plugins.isolation.values import UnusableValue, decode, encode
from hermes_agent.plugins.loader import LoadFailed, time_limit_text
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.plugins.plugin_data import FOLDER, state_namespace
from hermes_agent.policy.network import HostTables
from hermes_agent.system.processes import tool_environment
from hermes_agent.system.unit_network import connect_broker
from hermes_agent.workspace.egress.networks import Networks
from hermes_agent.workspace.egress.units import UNIT_PROXY
from hermes_agent.workspace.paths import PathRules
from hermes_agent.workspace.sandbox.file_rules import SYSTEM, is_inside
from hermes_agent.workspace.sandbox.limits import CommandLimits, ProcessLimits
from hermes_agent.workspace.sandbox.plugin_sandbox import PluginFiles, PluginSandbox, code_directories

if TYPE_CHECKING:
    from hermes_agent.plugins.context import PluginContext

logger = logging.getLogger(__name__)

MARKER = "HERMES_PLUGIN_HOST_PROCESS"
"""Variable in the environment of the process, which published plugins look at."""
PROCESSES = 256
"""Most processes and threads of one plugin."""
PATH_METHODS = {"register_skill": 1, "register_locale": 1, "register_locale_dir": 0}
"""Methods with the path of a file that the agent reads, and the position of the path."""


def load_isolated(ctx: PluginContext, decide: Callable[[PluginManifest], Activation], limit_s: float) -> PluginProcess:
    """Load the plugin of `ctx` in a process of its own.

    Args:
        decide: decides before each restart whether the plugin may still run: its files may have changed.
        limit_s: time limit of the load in seconds; 0 for none.

    Raises:
        LoadFailed: the plugin cannot run in a process of its own, or did not load.
    """
    manifest = ctx.manifest
    refuse_kind(manifest)
    ctx.is_isolated = True

    def refusal() -> str:
        gate = decide(manifest)
        return "" if gate.load else gate.reason

    plugin = IsolatedPlugin(ctx, refusal)
    key = manifest.key
    try:
        answer = plugin.process.start(limit_s)
        if "error" in answer:
            raise LoadFailed(key, str(answer["error"]), str(answer.get("where") or ""))
    except BaseException as exc:
        plugin.close()
        if isinstance(exc, LoadFailed) or not isinstance(exc, Exception):
            raise
        if isinstance(exc, TimeoutError):
            raise LoadFailed(key, time_limit_text(limit_s)) from None
        raise LoadFailed(
            key, str(exc) if isinstance(exc, PluginProcessDown) else f"{type(exc).__name__}: {exc}"
        ) from exc
    ctx.ledger.add("process", key, plugin.close, staged=False)
    return plugin.process


def refuse_kind(manifest: PluginManifest) -> None:
    """Refuse what is not possible in a process of its own.

    Raises:
        LoadFailed: the plugin provides models, or is an installed package with a memory provider.
    """
    if manifest.kind == "model-provider":
        raise LoadFailed(manifest.key, f"a model provider cannot run in a process of its own; {remedy(manifest.key)}")
    if manifest.kind == "exclusive" and manifest.source == "entrypoint":
        raise LoadFailed(
            manifest.key,
            f"the memory of an installed package cannot run in a process of its own; {remedy(manifest.key)}",
        )


class IsolatedPlugin:
    """A plugin in a process of its own: what it may see, and its registrations in the agent."""

    def __init__(self, ctx: PluginContext, may_start: Callable[[], str]) -> None:
        self._ctx, self._services, self._manifest = ctx, ctx.registration.services, ctx.manifest
        self._settings = PluginProcessSettings.of(ctx.registration.settings.host)
        self._handles: dict[str, list[PluginRegistration]] = {}
        self._present: set[str] = set()
        """Keys that the present process declared."""
        data = self._services.home / FOLDER / state_namespace(ctx.plugin_id)
        self._home = data / "home"
        self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._networks: Networks | None = None
        self._sandbox: PluginSandbox | None = None
        self._limits = CommandLimits(os.environ, ProcessLimits(self._settings.memory_mb, PROCESSES))
        hooks = self._services.hooks
        plan = ProcessPlan(
            ctx.plugin_id,
            self._make_launcher(),
            self._load_arguments,
            self._serve,
            may_start,
            lambda: hooks.deadlines.limit_of(ctx.plugin_id),
            record_of(self._services.home, ctx.plugin_id),
            self._settings.call_timeout_s,
            self._settings.stall_s,
        )
        self.process = PluginProcess(plan)
        self.process.loaded = self._after_restart

    def close(self) -> None:
        """End the process and its network."""
        self.process.close()
        if self._networks is not None:
            self._networks.close_all()

    # -- the process -----------------------------------------------------------------------------------------------

    def _make_launcher(self) -> ProcessLauncher:
        """Return what starts the process: the operator's program, a unit, or bubblewrap.

        Raises:
            LoadFailed: nothing here confines the process.
        """
        if self._settings.launcher:
            return ChildLauncher("launcher", self._command)
        hosts = list(self._granted("network"))
        if hosts:
            services = self._services
            network = {**plain(services.config.settings.network), "hosts": hosts}
            settings = Settings({**services.config.values, "network": network})
            tables = HostTables(lambda: settings)
            self._networks = Networks("hosts", tables, services.bridge, path=os.environ.get("PATH"))
        if (path := unit_socket(self._settings.sockets, self._manifest.key)) is not None:
            return UnitLauncher(path, self._unit_request)
        self._sandbox = self._make_sandbox()
        return ChildLauncher(self._sandbox.name, self._command)

    def _granted(self, kind: str) -> Any:
        return granted_names(self._services.config.values, self._manifest, kind)

    def _make_sandbox(self) -> PluginSandbox:
        """Return the sandbox.

        Raises:
            LoadFailed: no sandbox works.
        """
        services, manifest = self._services, self._manifest
        credentials = os.environ.get("CREDENTIALS_DIRECTORY", "")
        places = PathRules(str(services.home), str(Path.home()), credentials, (), FileAccess)
        files = PluginFiles(
            str(self._home),
            "" if manifest.source == "entrypoint" else manifest.path,
            tuple(self._openable("files.read").values()),
            tuple(self._openable("files.write").values()),
        )
        sandbox = PluginSandbox(places, files, networks=self._networks, path=os.environ.get("PATH"))
        if sandbox.problem:
            raise LoadFailed(
                manifest.key,
                f"`plugins.isolation: host` needs a sandbox, and none works: {sandbox.problem}. In the system service"
                f" the plugin needs a unit: {UNIT_HINT.format(manifest.key)}. Without systemd install bubblewrap and"
                " allow user namespaces, or set `plugins.host.launcher` to a program that confines the process",
            )
        return sandbox

    def _unit_request(self) -> UnitRequest:
        """Return the request for the unit of the plugin."""
        manifest = self._manifest
        sent = manifest.source != "entrypoint" and not any(is_inside(manifest.path, place) for place in SYSTEM)
        return UnitRequest(
            {MARKER: "1", **(UNIT_PROXY if self._networks is not None else {})},
            manifest.path if sent else "",
            self._openable("files.read"),
            self._openable("files.write"),
            self._settings.memory_mb,
            self._connect_broker,
        )

    def _connect_broker(self) -> socket.socket | None:
        if self._networks is None or not (path := self._networks.units_socket()):
            return None
        return connect_broker(path, self._manifest.key)

    def _openable(self, kind: str) -> dict[str, str]:
        """Return the granted paths of a kind that may be shown, with their real paths."""
        shown, hidden = visible_paths(self._services.home, self._granted(kind))
        for path in hidden:
            logger.warning("plugin %s: granted path is not shown: %s: it has the agent's or the user's home",
                           self._manifest.key, path, extra={"plugin": self._manifest.key})  # fmt: skip
        return shown

    def _command(self) -> StartedCommand:
        env = tool_environment(os.environ) | {
            "HOME": str(self._home),
            "HERMES_HOME": str(self._home / ".hermes"),  # some plugins write to `~/.hermes`
            MARKER: "1",
            "PYTHONPATH": os.pathsep.join(code_directories()),
            "PYTHONUNBUFFERED": "1",
        }
        argv = [sys.executable, "-P", "-m", "hermes_agent.app.plugin_process"]
        if self._sandbox is None:
            argv = [*self._settings.launcher, *argv]
        else:
            argv = self._limits.inside(argv)
            network = self._manifest.key if self._networks is not None else ""
            argv, env = self._sandbox.wrap(argv, "/", env, root="/", network=network)
        limited = self._limits.wrap(argv, env)
        return StartedCommand(limited.argv, limited.env, limited.finish)

    def _load_arguments(self, mark: str) -> list[Any]:
        services, manifest = self._services, self._manifest
        self._present.clear()
        entry = dict(entry_of(services.config.values, manifest))
        entry.pop("isolation", None)
        names = (*manifest.env_names, *granted_names(services.config.values, manifest, SECRET))
        secrets = {}
        for name in names:
            with contextlib.suppress(ValueError):
                if value := services.credentials.get(name):
                    secrets[name] = value
        plan = {
            "mark": mark,
            "manifest": dict(manifest._asdict()),
            "config": {"plugins": {"enabled": [manifest.key], "entries": {manifest.key: entry}}},
            "secrets": secrets,
            "log_level": logging.getLogger().getEffectiveLevel(),
        }
        return [encode(plan, self.process.exchange)]

    # -- calls of the plugin ---------------------------------------------------------------------------------------

    def _serve(self, target: CallTarget, args: Any, kwargs: Any) -> Any:
        exchange = self.process.exchange
        if target.key != AGENT:
            return exchange.serve(target, args, kwargs, self._await)
        member, _, method = target.method.partition(".")
        given = [decode(each, exchange) for each in args]
        named = {str(name): decode(each, exchange) for name, each in dict(kwargs).items()}
        if target.method in (".register", ".dispose", ".note"):
            own: dict[str, Callable[..., Any]] = {
                "register": self._register,
                "dispose": self._dispose,
                "note": self._ctx.registration.note,
            }
            return encode(own[method](*given), exchange)
        if method not in SERVICES.get(member, ()):
            raise UnusableValue(f"`{target.method}` is not offered to plugins")
        service: Any = getattr(self._ctx, member) if member else self._ctx
        return encode(self._await(partial(getattr(service, method), *given, **named)), exchange)

    def _await(self, call: Callable[[], Any]) -> Any:
        value = call()
        if hasattr(value, "__await__"):
            return self._services.bridge.wait_plugin(value, deadline_s=None)
        return value

    def _register(self, key: str, method: str, args: list[Any], kwargs: Mapping[str, Any]) -> Any:
        """Register what the plugin declares; True for a registration, None for a refusal."""
        if method not in DECLARED:
            raise UnusableValue(f"`{method}` is not offered to plugins")
        if key in self._handles:  # the process was started again
            self._present.add(key)
            return True
        exchange = self.process.exchange
        given = [decode(each, exchange) for each in args]
        named = {str(name): decode(each, exchange) for name, each in kwargs.items()}
        if method in PATH_METHODS:
            self._check_paths(method, given, named)
        if method == "subscribe":
            event, callback = given
            stop = self._services.extensions.events.subscribe(self._ctx.plugin_id, event, callback)
            made: Any = self._ctx.ledger.add("subscription", event, stop, staged=False)
        else:
            made = getattr(self._ctx, method)(*given, **named)
        if made is None:
            return None
        self._handles[key] = [each for each in (made if isinstance(made, list) else [made])
                              if isinstance(each, PluginRegistration)]  # fmt: skip
        self._present.add(key)
        return made if isinstance(made, int) and not isinstance(made, bool) else True

    def _check_paths(self, method: str, given: list[Any], named: Mapping[str, Any]) -> None:
        """Refuse files that the plugin can change: the agent reads them with its own rights.

        Raises:
            PermissionError: a path is not in the folder of the plugin.
        """
        position = PATH_METHODS[method]
        path = named.get("path", named.get("source", given[position] if len(given) > position else None))
        if not isinstance(path, str | Path):
            return
        real = os.path.realpath(path)
        manifest = self._manifest
        roots = [manifest.path] if manifest.source != "entrypoint" else [sys.prefix, *code_directories()]
        if not any(is_inside(real, os.path.realpath(root)) for root in roots):
            raise PermissionError(
                f"{method}: {path} is not a file of plugin '{manifest.key}', which has a process of its own"
            )

    def _dispose(self, key: str) -> None:
        for handle in self._handles.pop(key, ()):
            handle.dispose()

    def _after_restart(self) -> None:
        for key in self._handles.keys() - self._present:
            logger.warning("plugin %s: %s is not registered any more after the restart of its process",
                           self._manifest.key, key, extra={"plugin": self._manifest.key})  # fmt: skip
