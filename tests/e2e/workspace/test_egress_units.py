"""The broker and commands in units: units are processes with a network of their own, in the place of systemd's."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.workspace.test_egress import CLIENT, EACH, FULL, Server, each, server
from hermes_agent.system import unit_network

__all__ = ["server"]

UNIT = """
from hermes_agent.workspace.egress.namespace_process import LOOPBACK, add_address
from hermes_agent.system.exec_unit import serve
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
        sandbox = place.registry.get("terminal").handler.loaded.shells.backend.sandbox
        if not sandbox.works:
            pytest.skip(f"no unit can be made here: {sandbox.problem}")
        (place.cwd / "client.py").write_text(CLIENT.replace('198.18.0.1", 80', f'127.0.0.1", {unit_network.PORT}'))
        (place.cwd / "each.py").write_text(EACH)
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
    hosts = ["evil.example", "127.0.0.1", "0x7f.1", "localhost", "169.254.169.254", "metadata.google.internal"]
    for host, said in zip(hosts, each(place, *(["proxy", host, str(server.port), "x"] for host in hosts)), strict=True):
        attempt(" 403 " in said or (mode == "off" and "refused" in said), f"{host}: {said}")
    direct = place.call("terminal", command=f"python3 client.py direct 127.0.0.1 {server.port} x 2>&1")
    attempt(direct["exit_code"] != 0, str(direct))
    assert server.told == []


def test_where_no_name_is_resolved_the_result_says_what_does_it(in_units: Callable[..., Any]) -> None:
    place = in_units("on")
    result = place.call("terminal", command="echo 'ssh: Could not resolve hostname db.example'; exit 1")
    assert "no names are resolved here" in result["note"] and "`http_proxy`" in result["note"]
    assert "note" not in place.call("terminal", command="echo fine")


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


# -- the units of a session ----------------------------------------------------------------------------------

SERVE = """
import socket, sys, time
host, port, wait = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
time.sleep(wait)
s = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
while True:
    c, _ = s.accept()
    data = c.makefile("rb").read()
    c.sendall(b"%d bytes, " % len(data) + data[-5:])
    c.close()
"""
FETCH = """
import socket, sys, time
host, port, size, tries = sys.argv[1], *map(int, sys.argv[2:])
for _ in range(tries):
    try:
        s = socket.create_connection((host, port), timeout=10)
    except OSError as exc:
        problem = exc
        time.sleep(0.2)
        continue
    s.sendall(b"x" * size + b"hello")
    s.shutdown(socket.SHUT_WR)
    sys.exit(print(s.makefile().read()))
sys.exit(f"refused: {problem}")
"""


@pytest.fixture
def session(in_units: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Makes a workplace with a server's and a client's program, whose background processes end with the test."""
    begun: list[tuple[Any, str]] = []

    def make(mode: str, *hosts: str) -> Any:
        place = in_units(mode, *hosts)
        (place.cwd / "serve.py").write_text(SERVE)
        (place.cwd / "fetch.py").write_text(FETCH)

        def serve(host: str, port: int, wait: float = 0) -> str:
            started = place.call("terminal", command=f"python3 serve.py {host} {port} {wait}", background=True)
            assert started["exit_code"] == 0, started
            begun.append((place, started["session_id"]))
            return str(started["session_id"])

        place.serve = serve
        return place

    yield make
    for place, process in begun:
        place.call("process", action="kill", session_id=process)


def fetched(place: Any, host: str, port: int, size: int = 0, tries: int = 50, session: str = "s") -> str:
    command = f"python3 fetch.py {host} {port} {size} {tries} 2>&1"
    return str(
        json.loads(place.outcome("terminal", {"command": command, "timeout": 60}, session=session).result)["output"]
    )


@pytest.mark.parametrize(
    ("mode", "listens", "asked"),
    [
        ("off", "127.0.0.1", "localhost"),
        pytest.param("hosts", "0.0.0.0", "127.0.0.1", marks=FULL),
        ("on", "::", "::1"),
        pytest.param("off", "::1", "::1", marks=FULL),
    ],
)
def test_a_server_that_one_command_starts_is_reached_by_the_next(
    session: Callable[..., Any], mode: str, listens: str, asked: str
) -> None:
    place = session(mode)
    process = place.serve(listens, 8123)
    assert fetched(place, asked, 8123) == "5 bytes, hello\n"
    assert fetched(place, asked, 8123, size=3_000_000, tries=1) == "3000005 bytes, hello\n", "at once, and much"
    place.call("process", action="kill", session_id=process)
    assert "refused" in fetched(place, asked, 8123, tries=1)
    again = "import socket; socket.create_server(('127.0.0.1', 8123)); print('free')"
    assert place.call("terminal", command=f'python3 -c "{again}"')["output"] == "free\n"


def test_a_server_that_begins_to_listen_meanwhile_is_reached(session: Callable[..., Any]) -> None:
    place = session("off")
    place.serve("127.0.0.1", 8123, wait=1.5)
    assert "refused" in fetched(place, "127.0.0.1", 8123, tries=1)
    assert fetched(place, "127.0.0.1", 8123) == "5 bytes, hello\n"


def test_servers_of_a_session_reach_each_other(session: Callable[..., Any]) -> None:
    place = session("off")
    for port in (8123, 8124):
        place.serve("127.0.0.1", port)
    script = "".join(f"python3 fetch.py 127.0.0.1 {port} 0 50; " for port in (8123, 8124)) + "sleep 30"
    third = place.call("terminal", command=script, background=True)["session_id"]
    assert fetched(place, "127.0.0.1", 8124) == "5 bytes, hello\n"
    found = ""
    for _ in range(50):
        found += place.call("process", action="log", session_id=third)["output"]
        if found.count("hello") >= 2:
            break
        threading.Event().wait(0.1)
    place.call("process", action="kill", session_id=third)
    assert found.count("5 bytes, hello") >= 2


@pytest.mark.attack("egress")
@pytest.mark.parametrize("mode", ["off", "on"])
def test_units_of_another_session_and_this_machine_are_not_reached(
    session: Callable[..., Any], server: Server, mode: str, attempt: Any
) -> None:
    place = session(mode)
    place.serve("0.0.0.0", 8123)
    assert fetched(place, "127.0.0.1", 8123) == "5 bytes, hello\n"
    tried = [(host, port) for host in ("127.0.0.1", "localhost", "127.0.0.2") for port in (8123, server.port)]
    words = json.dumps([["direct", host, str(port), "x"] for host, port in tried])
    for name in ("other", "S"):
        command = {"command": f"python3 each.py {shlex.quote(words)}"}
        told = json.loads(place.outcome("terminal", command, session=name).result)["output"]
        attempt(told.count("failed") == len(tried) and "answer" not in told, f"session {name!r}: {told}")
    attempt("refused" in fetched(place, "127.0.0.1", server.port, tries=1), "the agent's machine")
    assert server.told == []
    with pytest.raises(ConnectionRefusedError):  # nor does a server of a command appear on the machine
        socket.create_connection(("127.0.0.1", 8123), timeout=5)


class FakeUnit:
    """A unit that a command has taken over: it says what it likes."""

    def __init__(self, networks: Any, key: str) -> None:
        self.channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel.settimeout(5)
        self.channel.connect(networks.units_socket())
        self.channel.send(key.encode())

    def send(self, kind: str, value: Any, *fds: int) -> None:
        socket.send_fds(self.channel, [json.dumps([kind, value]).encode()], fds)

    def told(self) -> tuple[Any, list[int]]:
        data, fds, _, _ = socket.recv_fds(self.channel, 99_999, 4)
        return (json.loads(data) if data else None), list(fds)


@pytest.fixture
def fake(in_units: Callable[..., Any]) -> Iterator[Callable[..., FakeUnit]]:
    networks = in_units("on").registry.get("terminal").handler.loaded.shells.networks
    made: list[FakeUnit] = []

    def make(key: str) -> FakeUnit:
        made.append(FakeUnit(networks, key))
        return made[-1]

    yield make
    for one in made:
        one.channel.close()


@pytest.mark.attack("egress")
def test_what_is_no_listening_socket_is_not_taken(fake: Callable[..., FakeUnit], attempt: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as idle, open("/dev/null") as file:
        for handed in (idle.fileno(), file.fileno()):
            unit = fake("s")
            unit.send("proxy", True, handed)
            attempt(unit.told() == (None, []), str(handed))
        for kind in ("proxy", "ports", "reach"):  # a command that has begun hands over no other socket
            unit = fake("s")
            unit.send("proxy", False)
            assert unit.told()[0][0] == "listen"
            unit.send(kind, ["10.0.0.1", 80], listening.fileno())
            attempt(unit.told() == (None, []), kind)


@pytest.mark.attack("egress")
@pytest.mark.parametrize(
    "places",
    [
        [["10.0.0.1", 80]],
        [["example.org", 80]],
        [["127.0.0.1", 0]],
        [["127.0.0.1", "80"]],
        [[]],
        "127.0.0.1",
        None,
        [7],
    ],
)
def test_a_unit_that_claims_no_place_of_a_loopback_is_let_go_of(fake: Callable[..., FakeUnit], places: Any) -> None:
    unit = fake("s")
    unit.send("proxy", False)
    assert unit.told()[0] == ["listen", {"at": [], "others": False}]
    unit.send("ports", places)
    assert unit.told() == (None, [])


@pytest.mark.attack("egress")
def test_descriptors_go_to_units_of_the_same_session_alone(fake: Callable[..., FakeUnit], attempt: Any) -> None:
    def joined(key: str, *ports: int) -> FakeUnit:
        unit = fake(key)
        unit.send("proxy", False)
        assert unit.told()[0][0] == "listen"
        unit.send("ports", [["127.0.0.1", port] for port in ports])
        return unit

    theirs, listens = joined("other", 8123, 8124), joined("s", 8124)
    asks = fake("s")
    asks.send("proxy", False)
    assert listens.told()[0] == ["listen", {"at": [], "others": True}]
    listens.send("ports", [["127.0.0.1", 8124]])
    assert asks.told()[0] == ["listen", {"at": [["127.0.0.1", 8124]], "others": True}]
    with socket.socket() as one, socket.socket() as two:
        asks.send("reach", ["127.0.0.1", 8123], one.fileno())  # of the other session
        asks.send("reach", ["127.0.0.1", 8124], two.fileno())
        (kind, place), fds = listens.told()
        attempt((kind, place, len(fds)) == ("connect", ["127.0.0.1", 8124], 1), f"{kind} {place}")
        os.close(fds[0])
    theirs.channel.settimeout(0.5)
    with pytest.raises(TimeoutError):
        theirs.told()
    listens.channel.close()
    assert asks.told()[0] == ["listen", {"at": [], "others": False}]


def test_units_and_their_sockets_end_with_the_agent(
    in_units: Callable[..., Any], server: Server, resolving: dict[str, list[str]]
) -> None:
    networks = in_units("on").registry.get("terminal").handler.loaded.shells.networks
    path = networks.units_socket()
    assert Path(path).is_socket()
    networks.close_all()
    assert not Path(path).parent.exists()
