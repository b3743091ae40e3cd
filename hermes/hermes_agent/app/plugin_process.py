"""The program in the process of a plugin: it loads one plugin and answers the calls of the agent.

`python -m hermes_agent.app.plugin_process` has its socket as standard input. It builds a host of its own in its private
home, without keys, models and other plugins, so that upstream's import names work as in every process. The plugin gets
a `HostedContext`, which declares to the agent what it registers. Source: plugin contract of 0.23 §2.7.
"""

from __future__ import annotations

import asyncio
import faulthandler
import inspect
import json
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.app.plugins.check import open_host
from hermes_agent.contracts.command import DEFAULT_DESCRIPTION
from hermes_agent.plugins.activation import Activation
from hermes_agent.plugins.discovery import Discovery
from hermes_agent.plugins.isolation.hosted_context import HostedContext, remedy
from hermes_agent.plugins.isolation.peer import CallTarget, Frame, Peer, PeerHandlers, current_call
from hermes_agent.plugins.isolation.process import OUT_OF_MEMORY, PLUGIN
from hermes_agent.plugins.isolation.references import Exchange
from hermes_agent.plugins.isolation.values import UnusableValue, decode
from hermes_agent.plugins.manifest import PluginManifest

if TYPE_CHECKING:
    from hermes_agent.host import Host

LAST_ANSWER_S = 0.3
"""Seconds between a failed allocation and the end of the process, in which the call that failed is answered."""


class _FrameHandler(logging.Handler):
    """Sends the records of this process to the agent."""

    def __init__(self, peer: Peer) -> None:
        super().__init__()
        self._peer = peer

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
        except Exception:  # noqa: BLE001 - arguments of a plugin's record
            text = str(record.msg)
        name = record.name.removeprefix("hermes_plugins.")
        self._peer.notify({"t": "log", "level": record.levelno, "name": name, "text": text[:8_000]})


class PluginProgram:
    """The plugin of this process, and the calls of the agent."""

    def __init__(self, connection: socket.socket) -> None:
        handlers = PeerHandlers(self._serve, self._take_notice, self._end)
        self._peer = Peer(connection, PLUGIN, handlers)
        self._exchange = Exchange(self._call_agent, lambda key: None, lends_objects=True)
        self._exchange.hold(PLUGIN, self)
        self._tasks: dict[int, tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = {}
        self._host: Host | None = None
        self._exhausted = threading.Event()

    def run(self) -> None:
        """Answer calls until the agent ends the connection."""
        # a thread that exists: without memory none can be started
        threading.Thread(target=self._end_when_exhausted, name="hermes-memory", daemon=True).start()
        self._peer.start()
        self._peer.join()

    def _end_when_exhausted(self) -> None:
        """Wait for a failed allocation, leave time for the answer, and end the process."""
        self._exhausted.wait()
        time.sleep(LAST_ANSWER_S)
        os._exit(OUT_OF_MEMORY)

    def _call_agent(self, target: CallTarget, args: Any, kwargs: Any) -> Any:
        return self._peer.call(target, args, kwargs)

    def _end(self, reason: str) -> None:
        os._exit(0)  # threads of the plugin must not keep the process

    def _take_notice(self, frame: Frame) -> None:
        if frame.get("t") == "drop":
            self._exchange.release(str(frame.get("k")))
        elif frame.get("t") == "cancel" and (running := self._tasks.get(frame.get("id") or 0)) is not None:
            running[0].call_soon_threadsafe(running[1].cancel)

    def _serve(self, target: CallTarget, args: Any, kwargs: Any) -> Any:
        if target.key == PLUGIN:
            given = [decode(each, self._exchange) for each in args]
            if target.method == "load":
                return {"r": self.load(*given)}
            self.close()
            return {"r": None}
        try:
            return self._exchange.serve(target, args, kwargs, self._await)
        except MemoryError:
            self._exhausted.set()  # what leaked is given back by the end
            raise MemoryError("out of memory: its process is started again") from None

    def _await(self, call: Callable[[], Any]) -> Any:
        value = call()
        if not inspect.iscoroutine(value):  # of asyncio, a generator is one, too
            return value
        number = current_call.get()

        async def cancellable() -> Any:
            task = asyncio.current_task()
            assert task is not None
            self._tasks[number] = asyncio.get_running_loop(), task
            try:
                return await value
            finally:
                self._tasks.pop(number, None)

        assert self._host is not None
        return self._host.bridge.wait_plugin(cancellable(), deadline_s=None)

    # -- what the agent calls --------------------------------------------------------------------------------------

    def load(self, plan: Mapping[str, Any]) -> dict[str, Any]:
        """Load the plugin and return its outcome."""
        os.environ.update({str(name): str(value) for name, value in plan["secrets"].items()})
        self._exchange.mark = str(plan["mark"])
        root = logging.getLogger()
        root.addHandler(_FrameHandler(self._peer))
        root.setLevel(int(plan["log_level"]))
        home = Path(os.environ["HERMES_HOME"])
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        (home / "config.yaml").write_text(json.dumps(plan["config"]), encoding="utf-8")
        manifest = PluginManifest(**plan["manifest"])
        HostedContext.exchange = self._exchange
        host = self._host = open_host(home)
        host.plugins.context_class = HostedContext
        if manifest.kind == "exclusive":
            host.config.values.setdefault("memory", {})["provider"] = manifest.key
        found = Discovery()
        found.plugins[manifest.key] = manifest
        host.plugins.load(found, lambda each: Activation(True, "enabled"))
        record = host.plugins.find(manifest.key)
        if record is None or not record.enabled:
            error, where = ("it was not found", "") if record is None else (record.error or "", record.where)
            return {"error": error, "where": where}
        ctx = host.plugins.contexts.get(manifest.key)
        assert isinstance(ctx, HostedContext)
        kinds = ("chat platform", host.platforms), ("model provider", host.model_providers)
        for what, table in kinds:
            if names := table.owned_by(manifest.key):
                why = f"the {what} `{names[0]}` cannot run in a process of its own; {remedy(manifest.key)}"
                return {"error": f"PluginHostUnsupported: {why}", "where": ""}
        self._declare_direct(host, ctx)
        return {"pid": os.getpid()}

    @staticmethod
    def _declare_direct(host: Host, ctx: HostedContext) -> None:
        """Declare what the plugin entered in upstream's tables without its context."""
        key = ctx.plugin_id
        for name in host.tools.owned_by(key):
            entry = host.tools.get(name)
            if entry is not None and ("register_tool", name) not in ctx.declared:
                details = {
                    "check_fn": entry.check_fn, "requires_env": entry.requires_env, "is_async": entry.is_async,
                    "description": entry.description, "emoji": entry.emoji,
                }  # fmt: skip
                ctx.declare("register_tool", (name, entry.toolset, entry.schema, entry.handler), details)
        for method, store in (
            ("register_hook", host.hooks.store),
            ("register_middleware", host.hooks.middleware.store),
        ):
            for name in store.owned_by(key):
                if (method, name) not in ctx.declared:
                    for listener in store.entries.get(name, ()):
                        if listener.plugin == key:
                            ctx.declare(method, (name, listener.callback), {})
        for name in host.commands.owned_by(key):
            command = host.commands.get(name)
            if command is not None and ("register_command", name) not in ctx.declared:
                ctx.declare(
                    "register_command",
                    (name, command.handler, command.description or DEFAULT_DESCRIPTION, command.args_hint),
                    {},
                )

    def close(self) -> None:
        """Run the unload callbacks of the plugin."""
        HostedContext.is_closing = True
        if self._host is not None:
            self._host.plugins.close()


def main() -> int:
    """Run the program; the socket is the standard input."""
    connection = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.set_inheritable(connection.fileno(), False)
    faulthandler.enable()
    try:
        PluginProgram(connection).run()
    except UnusableValue as exc:
        print(f"the process of a plugin cannot go on: {exc}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
