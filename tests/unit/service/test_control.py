"""Who may ask the daemon over its control socket, and how it answers."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from hermes_agent.core.errors import UserError
from hermes_agent.service.control_socket import ControlSocket, request, request_at, socket_path
from hermes_agent.service.daemon_state import describe_self, write_note, write_state

ASK = """
import json, socket, sys
one = socket.socket(socket.AF_UNIX)
one.connect(sys.argv[1])
one.sendall(json.dumps({"op": sys.argv[2]}).encode() + b"\\n")
print(one.makefile().readline())
"""


async def hello(question):
    return {"said": "hello"}


async def answer_to_a_child(home, *, open_to_all=False, environ=None, for_members=(), asks="hello", **how):
    """Return what a process that this one starts is told by a socket of this one."""

    async def run():
        write_state(home, describe_self("file", {}))
        control = ControlSocket(home, environ or {}, {"hello": hello, "stop": hello}, for_members)
        await control.start()
        mode = stat.S_IMODE(control.path.stat().st_mode)
        if open_to_all:
            control.path.chmod(0o666)
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", ASK, str(control.path), asks, stdout=subprocess.PIPE, **how
        )
        said, _ = await child.communicate()
        await control.drain(0)
        return mode, said.decode(), control.path.exists()

    return await run()


@pytest.fixture
def open_home(tmp_path_factory):
    """A home that another user reaches, and an interpreter that they can run."""
    home = tmp_path_factory.mktemp("control")
    for folder in (home, *home.parents):
        if folder == Path(tempfile.gettempdir()):
            break
        folder.chmod(0o755)
    try:
        subprocess.run([sys.executable, "-c", "import hermes_agent"], user=65534, group=65534, check=True, cwd="/")
    except (PermissionError, subprocess.CalledProcessError):
        pytest.skip("another user cannot run the interpreter of this checkout")
    return home


@pytest.mark.attack("interfaces")
async def test_a_process_that_the_daemon_started_is_refused(tmp_path):
    mode, said, left = await answer_to_a_child(tmp_path)

    assert "processes that the daemon started cannot control it" in said
    assert (mode, left) == (0o600, False)


@pytest.mark.attack("interfaces")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be another user")
async def test_another_user_is_refused(open_home):
    (open_home / "run").mkdir(mode=0o755)
    somebody = {"user": 65534, "group": 65534, "extra_groups": [], "cwd": "/"}
    _, said, _ = await answer_to_a_child(open_home, open_to_all=True, for_members=("hello",), **somebody)

    assert "this daemon belongs to another user" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be another user")
@pytest.mark.parametrize("mode", [0o750, 0o755])
async def test_a_member_of_the_group_asks_what_is_for_members_where_the_directory_is_the_groups(open_home, mode):
    place = open_home / "runtime"
    place.mkdir()
    place.chmod(mode)
    given = {"environ": {"RUNTIME_DIRECTORY": str(place)}, "for_members": ("hello",)}
    member = {"user": 65534, "group": 65534, "extra_groups": [os.getegid()], "cwd": "/"}
    if mode == 0o755:
        found = await answer_to_a_child(open_home, open_to_all=True, **given, **member)
        assert found[0] == 0o600 and "this daemon belongs to another user" in found[1]
        return
    socket_mode, said, _ = await answer_to_a_child(open_home, **given, **member)
    assert socket_mode == 0o660 and '"said": "hello"' in said
    _, said, _ = await answer_to_a_child(open_home, asks="stop", **given, **member)
    assert "stop is for root and the daemon's user alone" in said


def test_the_socket_is_in_the_runtime_directory_and_apart_for_each_home(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"

    assert (
        str(socket_path(one, {"RUNTIME_DIRECTORY": "/run/hermes-agent:/run/more"})) == "/run/hermes-agent/control.sock"
    )
    in_user = {socket_path(home, {"XDG_RUNTIME_DIR": "/run/user/7"}) for home in (one, other)}
    assert len(in_user) == 2
    assert {str(path.parent) for path in in_user} == {"/run/user/7/hermes"}
    assert socket_path(one, {}) == one / "run" / "control.sock"


async def test_a_path_of_any_length_is_fine_and_what_a_killed_daemon_left_is_replaced(tmp_path):
    home = tmp_path / ("x" * 100)
    (home / "run").mkdir(parents=True)
    (home / "run" / "control.sock").write_text("left")

    write_state(home, describe_self("file", {}))
    control = ControlSocket(home, {}, {"hello": hello})
    await control.start()
    with pytest.raises(UserError, match="cannot control it"):  # this process is the daemon's own
        await asyncio.to_thread(request, home, {"op": "hello"})
    await control.drain(0)


def test_without_a_daemon_or_a_socket_the_reason_is_told(tmp_path):
    with pytest.raises(UserError, match="has no control socket"):
        request(tmp_path, {"op": "hello"})
    write_state(tmp_path, describe_self("file", {}))
    (tmp_path / "run").mkdir()
    write_note(tmp_path, "control", str(tmp_path / "run" / "control.sock"))
    with pytest.raises(UserError, match="does not answer at"):
        request(tmp_path, {"op": "hello"})


async def test_a_long_answer_comes_whole(tmp_path):
    path, said = tmp_path / "control.sock", "x" * 3_000_000

    async def answer(reader, writer):
        await reader.readline()
        writer.write(json.dumps({"ok": True, "said": said}).encode() + b"\n")
        await writer.drain()
        writer.close()

    async def run():
        async with await asyncio.start_unix_server(answer, path):
            return await asyncio.to_thread(request_at, path, {"op": "session"}, timeout_s=60)

    assert (await run())["said"] == said


async def test_a_socket_that_cannot_be_made_costs_the_daemon_nothing_but_the_socket(tmp_path, caplog):
    (tmp_path / "run").write_text("in the way")

    async def run():
        control = ControlSocket(tmp_path, {}, {})
        await control.start()
        await control.drain(0)

    await run()
    assert "no control socket at" in caplog.text


HOLD = """
import contextlib, socket, sys, time
held, path = [], sys.argv[1]

def connect(said):
    one = socket.socket(socket.AF_UNIX)
    one.settimeout(20)
    for _ in range(2000):
        try:
            one.connect(path)
            break
        except BlockingIOError:
            time.sleep(0.01)
    with contextlib.suppress(OSError):  # it was closed already
        one.sendall(said)
    held.append(one)
    return one

for _ in range(300):
    connect(b"")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.attack("interfaces")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be another user")
async def test_who_holds_connections_without_end_is_bounded_and_does_not_keep_root_out(request, caplog):
    # Not in pytest's own directory: each run beside this one closes that to other users.
    made = tempfile.TemporaryDirectory(prefix="hermes-control-")
    request.addfinalizer(made.cleanup)
    open_home = Path(made.name)
    open_home.chmod(0o755)
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin:/run/current-system/sw/bin")
    if python is None:
        pytest.skip("no interpreter that another user can run")
    place = open_home / "runtime"
    place.mkdir()
    place.chmod(0o750)

    async def run():
        write_state(open_home, describe_self("file", {}))
        control = ControlSocket(open_home, {"RUNTIME_DIRECTORY": str(place)}, {"hello": hello}, ("hello",))
        await control.start()

        def start(code, uid, *arguments):
            command = (python, "-c", code, str(control.path), *arguments)
            more = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "cwd": "/"}
            return asyncio.create_subprocess_exec(*command, user=uid, group=uid, extra_groups=[os.getegid()], **more)

        before = len(os.listdir("/proc/self/fd"))
        holding = await start(HOLD, 65534)
        assert await holding.stdout.readline() == b"held\n"
        root = await asyncio.create_subprocess_exec(
            sys.executable, "-c", ASK, str(control.path), "stop", stdout=subprocess.PIPE
        )
        answered, _ = await root.communicate()
        open_now = len(os.listdir("/proc/self/fd")) - before
        await holding.communicate(b"")
        await control.drain(0)
        return open_now, answered.decode()

    open_now, answered = await run()
    assert open_now < 150
    assert "the daemon started" in answered  # root has its answer, which is a no to this child of the daemon
    assert caplog.text.count("control: too many connections") == 1 and "user 65534" in caplog.text
