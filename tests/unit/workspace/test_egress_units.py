"""The broker and commands in units: units are processes with a network of their own, in the place of systemd's."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.io import unit_network
from unit.workspace.test_egress import CLIENT, Server, resolving, server

__all__ = ["resolving", "server"]

UNIT = """
from hermes_agent.workspace.egress.inside import LOOPBACK, add_address
from hermes_agent.io.exec_unit import serve
add_address(b"lo", *LOOPBACK)
serve()
"""


@pytest.fixture
def in_units(place_with: Callable[[str], Any], tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Makes a workplace whose commands run in units, with a mode and a list of hosts."""
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare")
    directory = Path(os.environ.get("TMPDIR", "/tmp"), f"hermes-unit-{os.getpid()}")
    directory.mkdir(mode=0o700)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(directory / "exec.sock"))
    listening.listen()
    program = ["unshare", "--user", "--map-current-user", "--net", "--keep-caps", "--", sys.executable, "-c", UNIT]
    units: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                environ = {"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"}
                units.append(subprocess.Popen(program, stdin=connection, env=environ))
                connection.close()

    starting = threading.Thread(target=start, daemon=True)
    starting.start()

    def make(mode: str, *hosts: str) -> Any:
        terminal = {"sandbox": "systemd", "network": mode, "exec_socket": str(directory / "exec.sock")}
        place = place_with(json.dumps({"terminal": {**terminal, "cwd": str(tmp_path)}, "network": {"hosts": hosts}}))
        sandbox = place.registry.get("terminal").handler.made.shells.backend.sandbox
        if not sandbox.works:
            pytest.skip(f"no unit can be made here: {sandbox.problem}")
        (place.cwd / "client.py").write_text(CLIENT.replace('198.18.0.1", 80', f'127.0.0.1", {unit_network.PORT}'))
        return place

    yield make
    listening.shutdown(socket.SHUT_RDWR)
    starting.join()
    listening.close()
    for unit in units:
        unit.wait(timeout=20)
    shutil.rmtree(directory)


def test_a_listed_host_is_reached_from_a_unit(
    in_units: Callable[..., Any], server: Server, resolving: dict[str, list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    resolving["site.example"] = ["127.0.0.1"]
    place = in_units("hosts", f"site.example:{server.port}", "127.0.0.0/8:*")
    result = place.call("terminal", command=f"python3 client.py proxy site.example {server.port} x")
    assert result["output"] == "HTTP/1.1 200 Connection established\nanswer told x\n"
    line = f"network: session=s tool=terminal host=site.example port={server.port} sent=1 received=6 verdict=allowed"
    assert line in caplog.text
    assert place.call("terminal", command="echo $https_proxy")["output"] == "http://127.0.0.1:3128\n"


@pytest.mark.attack("egress")
@pytest.mark.parametrize("mode", ["off", "hosts", "on"])
def test_what_the_table_refuses_is_not_reached_from_a_unit(
    in_units: Callable[..., Any], server: Server, resolving: dict[str, list[str]], mode: str, attempt: Any
) -> None:
    resolving["evil.example"] = ["127.0.0.1"]
    place = in_units(mode)
    for host in ("evil.example", "127.0.0.1", "0x7f.1", "localhost", "169.254.169.254", "metadata.google.internal"):
        result = place.call("terminal", command=f"python3 client.py proxy {host} {server.port} x 2>&1")
        attempt(result["exit_code"] != 0 or "403" in result["output"], f"{host}: {result}")
    direct = place.call("terminal", command=f"python3 client.py direct 127.0.0.1 {server.port} x 2>&1")
    attempt(direct["exit_code"] != 0, str(direct))
    assert server.told == []


def test_the_user_is_asked_about_a_host_of_a_unit(
    in_units: Callable[..., Any], server: Server, resolving: dict[str, list[str]]
) -> None:
    resolving["site.example"] = ["127.0.0.1"]
    place = in_units("ask", "127.0.0.0/8:*")
    place.person.answer = "deny"
    result = place.call("terminal", command=f"python3 client.py proxy site.example {server.port} x")
    assert "403 Forbidden" in result["output"] and "The user denied" in result["note"] and server.told == []
    assert [request.summary for request in place.person.asked] == [f"let commands reach site.example:{server.port}"]


def test_ssh_of_git_connects_through_the_broker(
    in_units: Callable[..., Any], server: Server, resolving: dict[str, list[str]]
) -> None:
    resolving["site.example"] = ["127.0.0.1"]
    place = in_units("hosts", f"site.example:{server.port}", "127.0.0.0/8:*")
    (place.cwd / "ssh").write_text(
        '#!/bin/sh\n[ "$1" = -o ] || exit 9\n'
        f"command=$(echo \"${{2#ProxyCommand=}}\" | sed 's/%h/site.example/; s/%p/{server.port}/')\n"
        'echo hello from ssh | sh -c "$command"\n'
    )
    command = 'chmod +x ssh; PATH=$PWD:$PATH; eval "$GIT_SSH_COMMAND git@site.example"'
    place.person.answer = "once"
    assert place.call("terminal", command=command)["output"] == "told hello from ssh\n"


@pytest.mark.attack("egress")
def test_what_is_no_listening_socket_is_not_taken(in_units: Callable[..., Any], attempt: Any) -> None:
    networks = in_units("on").registry.get("terminal").handler.made.shells.networks
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as idle, open("/dev/null") as file:
        for handed in ([idle.fileno()], [file.fileno()], [listening.fileno(), idle.fileno()]):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(5)
                connection.connect(networks.door())
                socket.send_fds(connection, [b"s"], handed)
                attempt(connection.recv(1) == b"", str(handed))
    assert Path(networks.door()).parent.stat().st_mode & 0o777 == 0o700


def test_units_and_their_sockets_end_with_the_agent(
    in_units: Callable[..., Any], server: Server, resolving: dict[str, list[str]]
) -> None:
    networks = in_units("on").registry.get("terminal").handler.made.shells.networks
    path = networks.door()
    assert Path(path).is_socket()
    networks.close_all()
    assert not Path(path).parent.exists()
