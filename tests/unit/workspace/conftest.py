"""The four tools behind the real pipeline: registry, dispatcher, bridge, approvals."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from builtin_context import context_of
from hermes_agent import config
from hermes_agent.core.messages import ToolCall
from hermes_agent.hooks import HookBus
from hermes_agent.policy import Approvals
from hermes_agent.policy.taint import TaintSettings, TaintTracker
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.sessions import LOCAL, Principals
from hermes_agent.tools import CallScope, Dispatcher, ToolOutcome, ToolRegistry
from hermes_agent.tools.results import ResultStore
from hermes_agent.workspace import feature as workspace_tools
from hermes_agent.workspace.checkpoints import Checkpoints
from people import Person


@dataclass
class Workplace:
    """A home, a working directory, and the tools at work there."""

    home: Path
    cwd: Path
    environ: dict[str, str]
    person: Person
    cancelled: threading.Event
    hooks: HookBus
    registry: ToolRegistry
    dispatcher: Dispatcher
    approvals: Approvals
    task: str = "t"

    def outcome(self, tool: str, args: Mapping[str, Any], cwd: Path | None = None, session: str = "s") -> ToolOutcome:
        """Run one call as the model would."""
        scope = CallScope(session, self.task, "u", cwd or self.cwd, self.approvals, cancelled=self.cancelled)
        call = ToolCall("call_1", tool, json.dumps(args))
        name, arguments = self.dispatcher.resolve(call, self.registry.names())
        return asyncio.run(self.dispatcher.run(call.id, name, arguments, scope))

    def call(self, tool: str, **args: Any) -> dict[str, Any]:
        """Run one call and return its result."""
        value = json.loads(self.outcome(tool, args).result)
        assert isinstance(value, dict)
        return value


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workplace]:
    """A workplace without a sandbox, whose person allows everything once."""
    yield from _workplace(tmp_path, monkeypatch, "terminal: {sandbox: off}\n")


@pytest.fixture
def place_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Workplace]]:
    """Makes a workplace with these settings, whose person allows everything once."""
    with contextlib.ExitStack() as stack:
        make = contextlib.contextmanager(_workplace)
        yield lambda settings: stack.enter_context(make(tmp_path, monkeypatch, settings))


@pytest.fixture
def boxed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workplace]:
    """A workplace whose commands run in a sandbox, and whose person says no."""
    for place in _workplace(tmp_path, monkeypatch, "terminal: {sandbox: auto}\n"):
        sandbox = place.registry.get("terminal").handler.loaded.shells.backend.sandbox
        if not sandbox.works:
            pytest.skip(f"no sandbox can be made here: {sandbox.problem}")
        place.person.answer = "deny"
        yield place


def _workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str) -> Iterator[Workplace]:
    user = tmp_path / "user"
    home, cwd = user / ".hermes", user / "project"
    for directory in (home, cwd):
        directory.mkdir(parents=True)
    (home / "config.yaml").write_text(settings)
    monkeypatch.setenv("HOME", str(user))
    environ = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(user),
        "OPENAI_API_KEY": "sk-test-0123456789abcdef0123",
        "CREDENTIALS_DIRECTORY": str(tmp_path / "credentials"),
        "NOTIFY_SOCKET": "/run/systemd/notify",
    }
    bridge, registry = Bridge(), ToolRegistry()
    hooks = HookBus(bridge.wait_plugin)
    provenance = TaintTracker(tmp_path / "words.db", TaintSettings)
    dispatcher = Dispatcher(registry, hooks, bridge, ResultStore(tmp_path / "results"), provenance=provenance)
    local = Principals().reader(LOCAL)
    settings_of = config.load(home)
    shells = workspace_tools.register_tools(
        context_of(registry),
        settings_of,
        home,
        cwd,
        hooks=hooks,
        environ=environ,
        bridge=bridge,
        reader=lambda: local,
        checkpoints=Checkpoints.from_config(home, settings_of.settings, environ),
    )
    (home / "config.yaml").unlink()
    person = Person(always="once")
    place = Workplace(
        home, cwd, environ, person, threading.Event(), hooks, registry, dispatcher, Approvals(person, timeout_s=5)
    )
    yield place
    processes = registry.get("process").handler.loaded.processes
    for process in list(processes._known.values()):  # no test leaves a server behind
        processes.kill(process)
    shells.close_all()
    bridge.close()
    provenance.store.close()
