"""`plugin_host`: open a host with the plugins under test, and restore the process at the end."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from hermes_agent.core.errors import PluginError, UserError
from hermes_agent.host import Host
from hermes_agent.plugins.discovery import discover, is_plugin_folder
from hermes_agent.plugins.entry_points import GROUP, find_entry_points
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.runtime.loops import LoopThread
from hermes_agent.testing.environment import IsolatedEnvironment, captured_log, isolated_environment
from hermes_agent.testing.host import ApprovalScript, PluginHost, ScriptedApprover
from hermes_agent.testing.scripted_model import ModelServer, ScriptedAnswer, ScriptedModel

__all__ = ["Plugin", "install_plugins", "plugin_host", "with_plugins"]

Plugin = str | os.PathLike[str] | ModuleType | Callable[[Any], Any]
"""Folder of a plugin, or folder with such folders; entry point (`"package.module"`, `"package.module:object"`);
imported module; or a `register` function."""

LOCAL_MODULE = "hermes_plugin_under_test"
"""Name of the module that is created for an object without an importable name."""


def install_plugins(plugins: Iterable[Plugin], ground: IsolatedEnvironment) -> list[PluginManifest]:
    """Install the plugins into the environment, and return their manifests in load order.

    Raises:
        UserError: a folder has no plugin, or a plugin is rejected.
    """
    lines: list[str] = []
    installed: set[str] = set()
    for plugin in plugins:
        folder = _folder(plugin)
        if folder is not None:
            _link(folder, ground)
            continue
        value = _entry_point(plugin, ground)
        known = next((p.name for p in find_entry_points() if _names(p.value, value)), None)
        if known is not None:
            installed.add(known)
        else:
            lines.append(f"{_free_name(value, lines)} = {value}")
    if lines:
        metadata = ground.site / "plugins_under_test-0.dist-info"
        metadata.mkdir()
        (metadata / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines, ""]), encoding="utf-8")
    found = discover(ground.home, os.environ, ground.workspace)
    own = {line.partition(" = ")[0] for line in lines} | installed
    for rejected in found.rejected:
        if str(rejected.path).startswith(str(ground.base)) and not rejected.rival:
            raise UserError(f"the plugin {rejected.name!r} cannot be used: {rejected.reason}")
    return [m for m in found.plugins.values() if m.source == "user" or (m.source == "entrypoint" and m.key in own)]


def with_plugins(config: Mapping[str, Any], plugins: Iterable[PluginManifest]) -> dict[str, Any]:
    """Return a copy of the config with these plugins enabled, unless it has `plugins.enabled`."""
    values = json.loads(json.dumps(config))
    section = values.setdefault("plugins", {})
    if "enabled" not in section:
        section["enabled"] = [m.key for m in plugins if m.kind != "exclusive"]
    keeper = next((m for m in plugins if m.kind == "exclusive"), None)
    if keeper is not None:
        values.setdefault("memory", {}).setdefault("provider", keeper.key)
    return values  # type: ignore[no-any-return]


def _folder(plugin: Plugin) -> Path | None:
    """Return the folder of a plugin, or None; text without a slash is a folder only if that exists."""
    if isinstance(plugin, str) and os.sep not in plugin and not Path(plugin).is_dir():
        return None
    if not isinstance(plugin, str | os.PathLike):
        return None
    return Path(plugin).absolute()


def _link(folder: Path, ground: IsolatedEnvironment) -> None:
    children = [child for child in sorted(folder.iterdir()) if is_plugin_folder(child)] if folder.is_dir() else []
    if not folder.is_dir() or not (is_plugin_folder(folder) or children):
        raise UserError(
            f"{folder} has no plugin.yaml", hint="A directory plugin has plugin.yaml and __init__.py at its root."
        )
    link = ground.home / "plugins" / folder.name
    if link.is_symlink():
        raise UserError(f"two of the plugins under test lie in folders of the name {folder.name!r}")
    link.symlink_to(folder, target_is_directory=True)


def _entry_point(plugin: Plugin, ground: IsolatedEnvironment) -> str:
    """Return the entry point `module` or `module:object` of a plugin.

    An object without an importable name is put into a new module.
    """
    if isinstance(plugin, str):
        return plugin
    if isinstance(plugin, ModuleType) and sys.modules.get(plugin.__name__) is plugin:
        return plugin.__name__
    name, number = LOCAL_MODULE, 2
    while name in sys.modules:
        name, number = f"{LOCAL_MODULE}_{number}", number + 1
    local = sys.modules[name] = ModuleType(name, "What a test hands over without a name.")
    local.plugin = plugin  # type: ignore[attr-defined]
    ground.made_modules.append(name)
    return f"{name}:plugin"


def _names(value: str, wanted: str) -> bool:
    return value == wanted or (":" not in wanted and value.partition(":")[0] == wanted)


def _free_name(value: str, lines: list[str]) -> str:
    module, _, attribute = value.partition(":")
    name = module if module.startswith(LOCAL_MODULE) or not attribute else f"{module}.{attribute}"
    base = "under-test" if name.startswith(LOCAL_MODULE) else name.rpartition(".")[2].replace("_", "-")
    taken = {line.partition(" = ")[0] for line in lines}
    return next(n for n in (base, *(f"{base}-{i}" for i in range(2, 1000))) if n not in taken)


@contextlib.contextmanager
def plugin_host(
    *plugins: Plugin,
    config: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    model: ScriptedModel | Sequence[ScriptedAnswer] = (),
    approvals: ApprovalScript = (),
    platform: str = "cli",
    strict: bool = True,
) -> Iterator[PluginHost]:
    """Load plugins into a new host with a temporary home; restore the process at the end.

    Args:
        plugins: one or more plugins. Each is the folder of a plugin, an entry point (`"package.module"`,
            `"package.module:object"`), an imported module, or a `register` function.
        config: content of `config.yaml`. The plugins are enabled unless it has `plugins.enabled`; the scripted model is
            selected unless it has `model`.
        env: environment variables; of the present ones only PATH and a few others are kept.
        model: the scripted model, or its answers.
        approvals: answers to approval requests: `once`, `session` or `deny` for each, or a function of the request.
            Further requests are refused.
        platform: platform of the conversation, as hooks see it.
        strict: raise if a plugin does not run; otherwise check `records`.

    Raises:
        PluginError: with `strict`, a plugin does not run; the message has the reason.
        UserError: a folder has no plugin, or a plugin is rejected.
        ConfigError: `config` is invalid.
    """
    scripted = model if isinstance(model, ScriptedModel) else ScriptedModel(*model)
    with contextlib.ExitStack() as stack:
        ground = stack.enter_context(isolated_environment(env))
        log = stack.enter_context(captured_log())
        manifests = install_plugins(plugins, ground)
        loop = LoopThread("hermes-testing")
        stack.callback(loop.close)
        server = ModelServer(scripted)
        base_url = loop.run(server.start())
        stack.callback(lambda: loop.run(server.stop()))
        _write_config(ground, with_plugins(config or {}, manifests), base_url, scripted.name)
        host = Host.build(ground.home)
        stack.callback(lambda: loop.run(host.aclose()))
        host.load_plugins()
        keys = [manifest.key for manifest in manifests]
        for record in host.plugins.records if strict else ():
            if record.manifest.key in keys and not record.enabled:
                raise PluginError(record.manifest.key, f"{record.manifest.key} does not run: {record.failure}")
        approver = ScriptedApprover(approvals)
        yield PluginHost(
            host,
            keys,
            ground=ground,
            model=scripted,
            approver=approver,
            log=log,
            loop=loop,
            platform=platform,
        )


def _write_config(ground: IsolatedEnvironment, values: dict[str, Any], base_url: str, model: str) -> None:
    values.setdefault("model", {"provider": "custom", "base_url": base_url, "default": model})
    approvals = values.setdefault("approvals", {})
    if isinstance(approvals, dict):
        approvals.setdefault("mode", "manual")  # the scripted model must not get requests for approval checks
    terminal = values.setdefault("terminal", {})
    if isinstance(terminal, dict):
        terminal.setdefault("cwd", str(ground.workspace))
    text = json.dumps(values, indent=2, ensure_ascii=False)  # JSON is YAML
    (ground.home / "config.yaml").write_text(text + "\n", encoding="utf-8")
