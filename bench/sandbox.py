"""What the sandbox adds to a command and to a connection, in a home as people have them. Fastest runs are compared."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from hermes_agent.config.settings import Settings
from hermes_agent.contracts.terminal_env import BackendCommand
from hermes_agent.policy.network import HostTables
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.workspace.backend import ShellStateFilter
from hermes_agent.workspace.backend_selection import LocalBackend
from hermes_agent.workspace.egress.destinations import NetworkCall
from hermes_agent.workspace.egress.networks import Networks
from hermes_agent.workspace.paths import PathRules
from hermes_agent.workspace.sandbox.bubblewrap import BubblewrapSandbox
from hermes_agent.workspace.sandbox.sandbox import SandboxSelector
from homes import Installation
from processes import ahead_of_others
from rows import Row

__all__ = ["measure"]

ROUNDS = 40
BUDGET_MS = 40
TOOLCHAINS = ".rustup .cargo/bin .cargo/registry .pyenv .nvm .local/bin .local/lib .local/share/uv .cache .config/git"


def measure(installations: Sequence[Installation], folder: Path) -> list[Row]:
    """Measure a command in a home with ten toolchains, by how many visible entries the home has."""
    with ahead_of_others():
        rows = [_row(folder / f"home-{entries}", entries) for entries in (10, 40)]
        return [*rows, _connection(folder / "connection")]


def _row(user: Path, entries: int) -> Row:
    for name in (*TOOLCHAINS.split(), "project", ".hermes", *(f"folder-{number}" for number in range(entries - 1))):
        (user / name).mkdir(parents=True)
    path = os.environ.get("PATH", os.defpath)
    environ = {"PATH": path, "HOME": str(user)}
    sandbox = SandboxSelector([BubblewrapSandbox(PathRules(str(user / ".hermes"), str(user)), path=path)])
    name = f"a command in the sandbox, home with {entries} visible entries: ms"
    if not sandbox.works:
        return Row(f"{name} (no sandbox: {sandbox.problem})", "", 0.0)
    inside, outside = LocalBackend(environ, sandbox=sandbox), LocalBackend(environ)
    call = BackendCommand("true", str(user / "project"), 30, "bench", root=str(user / "project"))
    taken: dict[LocalBackend, list[float]] = {inside: [], outside: []}
    for _ in range(ROUNDS):
        for backend, times in taken.items():
            begun = time.perf_counter()
            done = backend.run("true", call, ShellStateFilter())
            times.append((time.perf_counter() - begun) * 1000)
            assert done.exit_code == 0, done
    more = min(taken[inside]) - min(taken[outside])
    return Row(name, f"{min(taken[inside]):.1f} ms, outside {min(taken[outside]):.1f} ms", more, BUDGET_MS)


CONNECTION_BUDGET_MS = 5
CLIENT = """
import socket, sys, time
through, port = sys.argv[1] == "proxy", int(sys.argv[2])
best = 1e9
for _ in range(60):
    begun = time.perf_counter()
    with socket.create_connection(("198.18.0.1", 80) if through else ("127.0.0.1", port)) as made:
        if through:
            made.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\\r\\n\\r\\n" % port)
            assert b" 200 " in made.recv(65536)
        made.sendall(b"x")
        assert made.recv(1) == b"x"
    best = min(best, time.perf_counter() - begun)
print(best * 1000)
"""


def _connection(user: Path) -> Row:
    """Measure a connection with one byte in both directions, through the broker and without it."""
    name = "a connection of a command through the broker: ms"
    project = user / "project"
    project.mkdir(parents=True)
    (project / "client.py").write_text(CLIENT)
    path = os.environ.get("PATH", os.defpath)
    with contextlib.ExitStack() as open_now:
        server = open_now.enter_context(socket.create_server(("127.0.0.1", 0), backlog=100))
        threading.Thread(target=_echo, args=(server,), daemon=True).start()
        port = server.getsockname()[1]
        settings = Settings({"network": {"hosts": [f"127.0.0.1:{port}"]}})
        bridge = Bridge()
        open_now.callback(bridge.close)
        networks = Networks("hosts", HostTables(lambda: settings), bridge, path=path)
        open_now.callback(networks.close_all)
        box = BubblewrapSandbox(PathRules(str(user / ".hermes"), str(user)), networks=networks, path=path)
        sandbox = SandboxSelector([box])
        if not sandbox.works:
            return Row(f"{name} (no sandbox: {sandbox.problem})", "", 0.0)
        environ = {"PATH": path, "HOME": str(user)}
        taken: list[float] = []
        for backend, way in ((LocalBackend(environ, sandbox=sandbox), "proxy"), (LocalBackend(environ), "direct")):
            command = f"exec {sys.executable} client.py {way} {port}"
            call = BackendCommand(command, str(project), 60, "bench", network="bench", root=str(project))
            with networks.use("bench", NetworkCall("bench", "terminal", None)):
                done = backend.run(command, call, ShellStateFilter())
            assert done.exit_code == 0, done
            taken.append(float(done.head))
    return Row(name, f"{taken[0]:.2f} ms, without {taken[1]:.2f} ms", taken[0] - taken[1], CONNECTION_BUDGET_MS)


def _echo(server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            one, _ = server.accept()
            threading.Thread(target=_answer, args=(one,), daemon=True).start()


def _answer(one: socket.socket) -> None:
    with one, contextlib.suppress(OSError):
        one.sendall(one.recv(1))
