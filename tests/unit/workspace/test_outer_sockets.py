"""What commands in the sandbox can connect to: what they made themselves, and what the operator lists."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_agent.workspace.sandbox import bubblewrap

HIDDEN = (".docker/run/docker.sock", ".gnupg/S.gpg-agent", ".ssh/control-a@b:22", ".agent/control.sock")
SHOWN = ("project/app.sock", "project/deep/down/mysql.sock", "Documents/x.sock", ".cargo/registry/y.sock")
CONNECT = """
import socket, sys
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
    for name in sys.argv[1:]:
        try: socket.socket(socket.AF_UNIX, kind).connect(name); print('reached', name)
        except OSError: pass
"""


def said(place, command: str) -> str:
    outcome = place.outcome("terminal", {"command": command})
    assert place.person.asked == []
    return str(json.loads(outcome.result)["output"])


@contextlib.contextmanager
def listening(*paths: str, kind: int = socket.SOCK_STREAM) -> Iterator[None]:
    """Sockets that this process, which is outside, listens on."""
    with contextlib.ExitStack() as stack:
        for path in paths:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            server = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
            server.bind(path)
            Path(path).chmod(0o777)
            if kind != socket.SOCK_DGRAM:
                server.listen()
        yield


@pytest.mark.attack("sandbox: sockets", at="bubblewrap")
@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET])
def test_from_outside(boxed, attempt, kind):
    user = boxed.home.parent
    names = [*HIDDEN, *SHOWN]
    (boxed.cwd / "connect.py").write_text(CONNECT)
    with listening(*(str(user / name) for name in names), kind=kind):
        output = said(boxed, f"python3 connect.py {' '.join(str(user / name) for name in names)}; echo end")
        outside = subprocess.run(
            [sys.executable, str(boxed.cwd / "connect.py"), *(str(user / name) for name in names)],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
    assert output.endswith("end\n")
    for name in names:
        assert f"reached {user / name}\n" in outside, "the attack works outside"
        attempt(f"reached {user / name}\n" not in output, name)


@pytest.mark.attack("sandbox: sockets", at="bubblewrap")
def test_a_server_that_named_its_socket_by_its_directory_is_not_reached(boxed, attempt):
    code = "import socket; s = socket.socket(socket.AF_UNIX); s.bind('app.sock'); s.listen(); print('up'); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    (boxed.cwd / "connect.py").write_text(CONNECT)
    with subprocess.Popen([sys.executable, "-u", "-c", code], cwd=boxed.cwd, text=True, **pipes) as server:
        assert server.stdout is not None and server.stdout.readline() == "up\n"
        outside = subprocess.run([sys.executable, "connect.py", "app.sock"], cwd=boxed.cwd, capture_output=True)
        assert outside.stdout == b"reached app.sock\n"
        attempt(said(boxed, "python3 connect.py app.sock; echo end") == "end\n", "app.sock")
        server.communicate("\n", timeout=30)


SERVER = """
import os, socket, sys
os.chdir(sys.argv[1])
s = socket.socket(socket.AF_UNIX, getattr(socket, sys.argv[3])); s.bind(sys.argv[2])
if sys.argv[3] != 'SOCK_DGRAM': s.listen()
print('up', flush=True); sys.stdin.read()
"""


@contextlib.contextmanager
def server(*begin: str, where: Path, name: str, kind: str = "SOCK_STREAM") -> Iterator[None]:
    """A program outside that is bound to `name`, started by the words `begin`."""
    words = [*begin, sys.executable, "-c", SERVER, str(where), name, kind]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "up\n"
        yield
        process.stdin.close()
        process.wait(timeout=30)


OTHER_NETWORK = ("unshare", "--user", "--map-current-user", "--net")
OTHER_MOUNTS = (*OTHER_NETWORK, "--mount", "--keep-caps", "sh", "-c", 'mount --bind "$0" /mnt && exec "$@"')


def is_reached(place, path: Path) -> bool:
    """Try it outside, where it has to work, and in the sandbox."""
    (place.cwd / "connect.py").write_text(CONNECT)
    words = [sys.executable, str(place.cwd / "connect.py"), str(path)]
    outside = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    assert outside.stdout == f"reached {path}\n", "the attack works outside"
    output = said(place, f"python3 connect.py {path}; echo end")
    assert output.endswith("end\n")
    return "reached" in output


@pytest.mark.attack("sandbox: sockets", at="bubblewrap")
@pytest.mark.parametrize("where", ["project", "Documents"])
@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_DGRAM", "SOCK_SEQPACKET"])
def test_a_server_of_another_network_is_not_reached(boxed, attempt, where, kind):
    place = boxed.home.parent / where
    place.mkdir(exist_ok=True)
    with server(*OTHER_NETWORK, where=place, name=str(place / "s.sock"), kind=kind):
        attempt(not is_reached(boxed, place / "s.sock"), f"{kind} in {where}")


@pytest.mark.attack("sandbox: sockets", at="bubblewrap")
@pytest.mark.parametrize("where", ["project", "Documents/deep"])
def test_a_server_that_has_the_directory_under_another_name_is_not_reached(boxed, attempt, where):
    place = boxed.home.parent / where
    place.mkdir(parents=True, exist_ok=True)
    with server(*OTHER_MOUNTS, str(place), where=Path("/"), name="/mnt/s.sock"):
        attempt(not is_reached(boxed, place / "s.sock"), where)


@pytest.mark.attack("sandbox: sockets", at="bubblewrap")
def test_a_server_whose_socket_has_no_name_to_be_found_by_is_not_reached(boxed, attempt):
    deep = boxed.cwd / "deep"
    deep.mkdir()
    handle = os.open(deep, os.O_PATH)
    try:
        with listening(f"/proc/self/fd/{handle}/p.sock"):
            attempt(not is_reached(boxed, deep / "p.sock"), "a name through /proc")
    finally:
        os.close(handle)
    with listening(str(boxed.cwd / "old.sock")):
        (boxed.cwd / "old.sock").rename(deep / "new.sock")
        attempt(not is_reached(boxed, deep / "new.sock"), "a socket that was renamed")
        (deep / "link.sock").hardlink_to(deep / "new.sock")
        attempt(not is_reached(boxed, deep / "link.sock"), "another name of a socket")


def test_what_a_command_of_the_session_listens_on_is_reached_and_what_it_left_is_removed(boxed):
    (boxed.cwd / "connect.py").write_text(CONNECT)
    (boxed.cwd / "server.py").write_text(SERVER)
    command = "sleep 1000 | python3 server.py . app.sock SOCK_STREAM"
    started = boxed.call("terminal", command=command, background=True)
    limit = time.monotonic() + 60
    while not (boxed.cwd / "app.sock").exists() and time.monotonic() < limit:
        time.sleep(0.05)
    reached = "reached app.sock\nend\n"
    while (answer := said(boxed, "python3 connect.py app.sock; echo end")) != reached:  # bound, and not listening yet
        assert time.monotonic() < limit, answer
    boxed.call("process", action="kill", session_id=started["session_id"])
    assert said(boxed, "rm app.sock && echo gone") == "gone\n", "nobody is there, so nothing is mounted over it"


@pytest.mark.attack("sandbox: sockets", at="bubblewrap")
def test_no_socket_of_the_system_is_reached(boxed, attempt):
    places = ["/var/lib/hermes-test", "/srv/hermes-test", "/opt/hermes-test"]
    usable = [place for place in places if os.access(Path(place).parent, os.W_OK)]
    if not usable:
        pytest.skip("no directory of the system can be written here")
    (boxed.cwd / "connect.py").write_text(CONNECT)
    paths = [f"{place}/s.sock" for place in usable]
    try:
        with listening(*paths):
            output = said(boxed, f"python3 connect.py {' '.join(paths)}; echo end")
            for path in paths:
                attempt(f"reached {path}" not in output, path)
    finally:
        for path in paths:
            Path(path).unlink(missing_ok=True)
            Path(path).parent.rmdir()
    assert output.endswith("end\n")


def test_a_socket_that_the_operator_lists_is_reached_and_its_neighbour_is_not(place_with):
    place = place_with("terminal: {sandbox: auto, sandbox_paths: [~/.a/s, ~/.b]}\n")
    user = place.home.parent
    code = (
        "import os, socket, sys\nos.chdir(sys.argv[1])\nsocket.socket(socket.AF_UNIX).connect('s'); print('reached')\n"
    )
    (place.cwd / "connect.py").write_text(code)
    with listening(str(user / ".a/s"), str(user / ".b/s")):
        assert said(place, "python3 connect.py ~/.a") == "reached\n"
        assert "reached" not in said(place, "python3 connect.py ~/.b 2>/dev/null")


INSIDE = """
import os, socket, threading
os.chdir(os.environ['WHERE'])
with socket.socket(socket.AF_UNIX) as server:
    server.bind('inner.sock'); server.listen()
    threading.Thread(target=lambda: server.accept()[0].sendall(b'hello')).start()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect('inner.sock'); print(client.recv(9).decode())
os.unlink('inner.sock')
a, b = socket.socketpair(); a.sendall(b'pair'); print(b.recv(9).decode())
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
    server.bind('\\0abstract')
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        client.sendto(b'abstract', '\\0abstract'); print(server.recv(9).decode())
with socket.create_server(('127.0.0.1', 0)) as server:
    with socket.create_connection(server.getsockname(), 5): print('loopback')
"""


@pytest.mark.parametrize("where", [".", "/tmp", "/run", "/dev/shm"])
def test_sockets_made_inside_work(boxed, where):
    (boxed.cwd / "inside.py").write_text(INSIDE)
    assert said(boxed, f"WHERE={where} python3 inside.py") == "hello\npair\nabstract\nloopback\n"


@pytest.mark.attack("sandbox: sockets", at="bubblewrap")
def test_only_families_of_the_list_are_opened(boxed, attempt):
    code = (
        "import errno, socket\n"
        "for family in range(1, 47):\n"
        "    for kind in (1, 2, 3, 5):\n"
        "        try: socket.socket(family, kind); print('opened', family)\n"
        "        except OSError as exc:\n"
        "            if exc.errno != errno.EAFNOSUPPORT: print('known', family)\n"
        "print('end')\n"
    )
    (boxed.cwd / "families.py").write_text(code)
    output = said(boxed, "python3 families.py")
    assert output.endswith("end\n") and "opened 1\n" in output and "opened 2\n" in output
    for family in set(range(1, 47)) - set(bubblewrap.FAMILIES):
        attempt(f" {family}\n" not in output, f"family {family}" + (" (vsock)" if family == 40 else ""))


@pytest.mark.attack("sandbox: sockets", at="bubblewrap")
def test_no_other_way_of_calling_the_kernel_passes_the_filter(boxed, attempt):
    number = {"x86_64": 41, "aarch64": 198}.get(platform.machine())
    if number is None:
        pytest.skip("the number of the call is not known here")
    code = (
        "import ctypes, os\n"
        "c = ctypes.CDLL(None, use_errno=True)\n"
        "def call(name, *args):\n"
        "    fd = c.syscall(*args); print(name, os.strerror(ctypes.get_errno()) if fd < 0 else 'opened')\n"
        f"call('plain', {number}, 40, 1, 0)\n"
        f"call('high', {number}, ctypes.c_long((1 << 32) + 40), 1, 0)\n"
        f"call('x32', {number} | 0x40000000, 40, 1, 0)\n"
        "call('uring', 425, 8, ctypes.create_string_buffer(120))\n"
    )
    (boxed.cwd / "raw.py").write_text(code)
    lines = said(boxed, "python3 raw.py").splitlines()
    assert len(lines) == 4
    for line in lines:
        attempt("opened" not in line, line)
    assert "uring Function not implemented" in lines


def test_every_machine_has_a_filter_that_ends(monkeypatch):
    for machine in bubblewrap.MACHINES:
        code = bubblewrap.seccomp_filter(machine)
        assert code is not None and len(code) % 8 == 0 and len(code) // 8 < 256
        steps = [struct.unpack("=HBBI", code[i : i + 8]) for i in range(0, len(code), 8)]
        assert steps[-1][0] == 0x06
        assert all(at + 1 + max(step[1:3]) < len(steps) for at, step in enumerate(steps) if step[0] == 0x15)
    assert bubblewrap.seccomp_filter("pdp11") is None


def answer(machine: str, audit: int, number: int, first: int) -> int:
    """Run a filter as the kernel does; the answer's error number, 0 for allowed."""
    code = bubblewrap.seccomp_filter(machine)
    assert code is not None
    at, held = 0, 0
    given = {0: number, 4: audit, 16 if sys.byteorder == "little" else 20: first & 0xFFFFFFFF}
    while True:
        kind, when, otherwise, value = struct.unpack("=HBBI", code[at * 8 : at * 8 + 8])
        at += 1
        if kind == 0x20:
            held = given[value]
        elif kind == 0x54:
            held &= value
        elif kind == 0x15:
            at += when if held == value else otherwise
        else:
            return 0 if value == 0x7FFF0000 else value & 0xFFFF


@pytest.mark.parametrize("machine", bubblewrap.MACHINES)
def test_a_filter_refuses_by_family_in_every_way_to_call(machine):
    for abi in bubblewrap.MACHINES[machine]:
        for family in range(1, 47):
            expected = 0 if family in bubblewrap.FAMILIES else errno.EAFNOSUPPORT
            assert answer(machine, abi.audit, abi.socket, family) == expected
        assert answer(machine, abi.audit, bubblewrap.IO_URING_SETUP, 8) == errno.ENOSYS
        assert abi.socketcall < 0 or answer(machine, abi.audit, abi.socketcall, 1) == errno.ENOSYS
        assert answer(machine, abi.audit, 1, 40) == 0
    assert answer(machine, 0x1234, 1, 1) == errno.ENOSYS
