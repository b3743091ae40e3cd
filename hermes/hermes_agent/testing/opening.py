"""`plugin_host`: open a host with the plugins under test, and leave no trace of it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hermes_agent.core.errors import PluginError
from hermes_agent.host import Host
from hermes_agent.io.loop_thread import LoopThread
from hermes_agent.testing.ground import Ground, captured_log, own_ground
from hermes_agent.testing.hosted import ApprovalScript, PluginHost, ScriptedApprover
from hermes_agent.testing.model import ScriptedAnswer, ScriptedModel
from hermes_agent.testing.placing import Plugin, place, with_plugins
from hermes_agent.testing.wire import ModelServer

__all__ = ["plugin_host"]


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
    """Load plugins into a host of their own, in a temporary home; at the end everything is as before.

    Args:
        plugins: a plugin's folder, an entry point (`"package.module"`, `"package.module:object"`), an imported module
            or `register` itself; as many as are to live together.
        config: what `config.yaml` says. The plugins are enabled unless it has `plugins.enabled`; the model is the
            scripted one unless it has `model`.
        env: environment variables; of the surrounding ones only PATH and its like are kept.
        model: the scripted model, or its answers.
        approvals: what a person answers who is asked for approval: `once`, `session` or `deny` for each question, or a
            function of the question. Nobody answers what the script does not.
        platform: where the conversation takes place, as hooks are told.
        strict: raise when a plugin does not run; without it look at `records`.

    Raises:
        PluginError: with `strict`, a plugin does not run; the text says why.
        UserError: a folder holds no plugin.
        ConfigError: `config` is wrong.
    """
    scripted = model if isinstance(model, ScriptedModel) else ScriptedModel(*model)
    with contextlib.ExitStack() as stack:
        ground = stack.enter_context(own_ground(env))
        log = stack.enter_context(captured_log())
        manifests = place(plugins, ground)
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
                where = f" ({record.where})" if record.where else ""
                raise PluginError(record.manifest.key, f"{record.manifest.key} does not run: {record.error}{where}")
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


def _write_config(ground: Ground, values: dict[str, Any], base_url: str, model: str) -> None:
    values.setdefault("model", {"provider": "custom", "base_url": base_url, "default": model})
    approvals = values.setdefault("approvals", {})
    if isinstance(approvals, dict):
        approvals.setdefault("mode", "manual")  # the scripted model is asked what the test means to ask it
    terminal = values.setdefault("terminal", {})
    if isinstance(terminal, dict):
        terminal.setdefault("cwd", str(ground.workspace))
    text = json.dumps(values, indent=2, ensure_ascii=False)  # JSON is YAML
    (ground.home / "config.yaml").write_text(text + "\n", encoding="utf-8")
