"""The program of a plugin's unit, and the agent's launcher of it; a socket server stands in for systemd.

`tests/service/test_isolated_plugins.py` runs them under a real systemd.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.waiting import until

from hermes_agent.plugins.isolation.launchers import (
    MEMORY,
    ProcessEnd,
    UnitLauncher,
    UnitRequest,
    archive_of,
    memory_notes,
)
from hermes_agent.plugins.isolation.process_state import record_of, unit_name, unit_socket
from hermes_agent.system import plugin_unit
from hermes_agent.system.plugin_unit import MODULE, MOST_CODE, MOST_REQUEST, READ, WRITE, differences, unpack
from hermes_agent.testing import PluginHost, plugin_host

DATA = Path(__file__).parent / "isolated"
pytestmark = pytest.mark.xdist_group("isolation")


class Gate(NamedTuple):
    """A place where a connection waits."""

    reached: threading.Event
    opened: threading.Event


@contextlib.contextmanager
def listening(
    path: Path, home: Path, more: Mapping[str, str] | None = None, gate: Gate | None = None
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start the program of the unit for each connection to a socket, as systemd does; yield the programs.

    Args:
        gate: where the second connection waits.
    """
    started: list[subprocess.Popen[bytes]] = []
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    env = {**os.environ, "STATE_DIRECTORY": str(home), **(more or {})}

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection:
                    if started and gate is not None:
                        gate.reached.set()
                        gate.opened.wait()
                    argv = [sys.executable, "-m", plugin_unit.__name__]
                    started.append(subprocess.Popen(argv, env=env, stdin=connection.fileno()))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield started
    finally:
        if gate is not None:
            gate.opened.set()
            until(lambda: len(started) > 1, "the start of the unit")
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()
        for unit in started:
            unit.wait(30)


@pytest.fixture
def sockets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


@contextlib.contextmanager
def hosted(
    sockets: Path,
    *,
    entry: Mapping[str, Any],
    unit: Mapping[str, str] | None = None,
    gate: Gate | None = None,
) -> Iterator[PluginHost]:
    """A host with the plugin `faulty`, of which a unit runs the process."""
    host = {"memory_mb": 256, "call_timeout_s": 6, "stall_s": 3, "sockets": str(sockets)}
    config = {"plugins": {"isolation": "host", "host": host, "entries": {"faulty": dict(entry)}}}
    home = sockets / "home"
    home.mkdir()
    path = sockets / "faulty.sock"
    with listening(path, home, unit, gate), plugin_host(DATA / "faulty", config=config, strict=False) as it:
        yield it


def call(host: PluginHost, tool: str, **args: Any) -> str:
    return host.host.plugins.contexts["faulty"].dispatch_tool(tool, args)


def test_faults_are_named_and_the_process_is_started_again_in_a_new_unit(sockets: Path) -> None:
    with hosted(sockets, entry={}) as host:
        (record,) = [r for r in host.host.plugins.records if r.manifest.key == "faulty"]
        process = record.process
        assert process is not None, record.error
        assert process.state.sandbox == "unit" and process.state.memory_bytes > 2**20
        assert process.fault == "" and call(host, "add", a=20, b=22) == "42"
        for tool, cause in (("leave", "exit status 3"), ("crash", "(SIGSEGV)"), ("hold", "no sign of life")):
            before = process.state.pid
            assert cause in json.loads(call(host, tool))["error"]
            until(lambda cause=cause: cause in process.fault and process.state.status == "running", "a restart")
            assert process.state.pid != before
            assert call(host, "add", a=20, b=22) == "42"
        os.kill(process.state.pid, signal.SIGKILL)
        until(lambda: "killed (SIGKILL)" in process.fault and process.state.status == "running", "a restart")


def test_a_process_that_is_being_started_again_ends_with_its_plugin(sockets: Path) -> None:
    gate = Gate(threading.Event(), threading.Event())
    with hosted(sockets, entry={}, gate=gate) as host:
        (record,) = [r for r in host.host.plugins.records if r.manifest.key == "faulty"]
        process, home = record.process, host.host.home
        assert process is not None and record_of(home, "faulty").is_file()
        supervisors = [each for each in threading.enumerate() if each.name == "hermes-plugin-faulty"]
        os.kill(process.state.pid, signal.SIGKILL)
        assert gate.reached.wait(30)
    # the unit of the restart was started after the plugin was unloaded, and `listening` saw it end
    for supervisor in supervisors:
        supervisor.join(30)
    assert not any(each.is_alive() for each in supervisors) and process.state.status == "ended"
    assert not record_of(home, "faulty").exists()


def test_a_unit_that_shows_a_path_without_a_grant_does_not_start_the_plugin(sockets: Path) -> None:
    with hosted(sockets, entry={}, unit={READ: "/srv/old"}) as host:
        (record,) = [r for r in host.host.plugins.records if r.manifest.key == "faulty"]
        assert "its unit shows /srv/old, which is not granted any more" in (record.error or "")


def test_a_granted_path_that_the_unit_does_not_show_is_a_warning(sockets: Path) -> None:
    with hosted(sockets, entry={"granted_capabilities": ["files.read:/srv/new"]}) as host:
        assert any("granted path /srv/new is not shown by its unit" in str(line) for line in host.log)


@pytest.mark.parametrize(
    ("memory_mb", "unit_mb", "said"),
    [
        (1024, 1024, ""),
        (512, 1024, ""),
        (0, None, ""),
        (4096, None, ""),
        (2048, 1024, "MemoryMax=1024M, and plugins.host.memory_mb allows 2048 MiB"),
        (0, 1024, "allows no limit"),
    ],
)
def test_a_unit_with_less_memory_than_the_setting_is_named(memory_mb: int, unit_mb: int | None, said: str) -> None:
    notes = memory_notes(memory_mb, None if unit_mb is None else unit_mb << 20)
    assert said in "".join(notes) and bool(notes) == bool(said)


def test_a_socket_without_a_unit_is_a_reason(sockets: Path) -> None:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(sockets / "x.sock"))
    with server, pytest.raises(OSError, match=r"no unit answers at .*Connection refused"):
        UnitLauncher(sockets / "x.sock", lambda: UnitRequest({})).start()
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(sockets / "y.sock"))
    server.listen()

    def hang_up() -> None:
        server.accept()[0].close()

    threading.Thread(target=hang_up, daemon=True).start()
    with server, pytest.raises(OSError, match="its unit ended before it started the process"):
        UnitLauncher(sockets / "y.sock", lambda: UnitRequest({})).start()


STARTED = b'{"started": 1, "start": 1, "missing": []}\n'


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b"no JSON\n", "its unit ended before it started the process"),
        (b"[" * 100_000 + b"\n", "its unit ended before it started the process"),
        (b"x" * (MOST_REQUEST + 1), "its unit ended before it started the process"),
        (b'{"started": "1"}\n', "its unit answers {'started': '1'}"),
    ],
)
def test_lines_of_a_unit_that_cannot_be_read_are_its_end(said: bytes, error: str, sockets: Path) -> None:
    with answering(sockets / "x.sock", said), pytest.raises(OSError, match=re.escape(error)):
        UnitLauncher(sockets / "x.sock", lambda: UnitRequest({})).start()
    with answering(sockets / "y.sock", STARTED + said):
        process = UnitLauncher(sockets / "y.sock", lambda: UnitRequest({})).start()
        process.kill()
        assert process.wait(30) == ProcessEnd(None)
    with answering(sockets / "z.sock", STARTED + b'{"code": "none"}\n'):
        assert UnitLauncher(sockets / "z.sock", lambda: UnitRequest({})).start().wait(30) == ProcessEnd(None)


@contextlib.contextmanager
def answering(path: Path, said: bytes) -> Iterator[None]:
    """Answer each connection to a socket with the same bytes, until it is closed."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()

    def serve() -> None:
        with server.accept()[0] as connection, contextlib.suppress(OSError):
            connection.sendall(said)
            while connection.recv(65_536):
                pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with server:
        yield
        thread.join()


def test_a_request_that_is_none_ends_the_unit_with_its_reason(sockets: Path) -> None:
    with listening(sockets / "x.sock", sockets) as units, socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(sockets / "x.sock"))
        connection.sendall(b"\xff\xff\xff\xff")
        assert json.loads(connection.makefile().readline()) == {"error": "a request of 4294967295 bytes"}
        until(lambda: bool(units) and units[0].poll() == 1, "the end of the unit")


def test_a_folder_is_passed_without_bytecode_and_links_that_lead_out_of_it(tmp_path: Path) -> None:
    plugin, secret = tmp_path / "plugin", tmp_path / "secret"
    (plugin / "__pycache__").mkdir(parents=True)
    (plugin / "data").mkdir()
    secret.write_text("secret")
    for name in ("__init__.py", "data/run", "__pycache__/x.pyc"):
        (plugin / name).write_text(name)
    (plugin / "data/run").chmod(0o755)
    (plugin / "out").symlink_to(secret)
    (plugin / "in").symlink_to("data/run")
    place = tmp_path / "deep" / "unpacked"
    with archive_of(str(plugin)) as archive:
        unpack(os.dup(archive.fileno()), str(place))
    found = {str(path.relative_to(place)): path.read_text() for path in place.rglob("*") if path.is_file()}
    assert found == {"__init__.py": "__init__.py", "data/run": "data/run", "in": "data/run"}
    modes = {path: oct((place / path).stat().st_mode & 0o777) for path in (".", "data", "data/run", "__init__.py")}
    assert modes == {".": "0o500", "data": "0o500", "data/run": "0o500", "__init__.py": "0o400"}
    with archive_of(str(plugin)) as archive, pytest.raises(FileExistsError):
        unpack(os.dup(archive.fileno()), str(place))


def test_a_folder_that_cannot_be_passed_is_refused_before_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    with (tmp_path / "large" / "data").open("wb") as file:
        file.truncate(MOST_CODE + 1)
    with pytest.raises(OSError, match=r"has more than 512 MiB.*grant that one"):
        archive_of(str(tmp_path / "large"))
    (tmp_path / "named").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path / "named") + b"/\xff.py")).write_text("")
    with pytest.raises(OSError, match="is no UTF-8: rename the file"):
        archive_of(str(tmp_path / "named"))


def test_paths_are_compared_by_their_real_path_too() -> None:
    shown = {READ: "/srv/link:/srv/old", WRITE: "/srv/work"}
    assert differences(shown, {"/srv/link": "/data/real"}, {"/srv/work": "/srv/work"}) == (["/srv/old"], [])
    assert differences({}, {"/a": "/a"}, {"/b": "/c"}) == ([], ["/a", "/b"])
    assert differences({WRITE: "/a"}, {"/a": "/a"}, {}) == (["/a"], [])


def test_names_of_units_are_those_of_the_packaged_script(tmp_path: Path) -> None:
    assert [unit_name(key) for key in ("weather", "Big_One-2")] == ["weather", "Big_One-2"]
    script = Path(__file__).parents[3] / "packaging" / "systemd" / "plugin"
    functions = script.read_text().partition("hashed() {")[2].partition("\nif [")[0]
    for key in ("a/b", "x" * 41, "ünder", "weather"):
        words = ["bash", "-c", f'agent=; hashed() {{{functions}\nset_names "$1"; echo "$name"', "bash", key]
        named = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
        assert named == unit_name(key)
    assert unit_socket(str(tmp_path), "weather") is None
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "weather.sock"))
        assert unit_socket(str(tmp_path), "weather") == tmp_path / "weather.sock"


def test_the_module_of_the_process_is_there_and_limits_are_named() -> None:
    assert MODULE == "hermes_agent.app.plugin_process"
    assert ProcessEnd(-9, (MEMORY,)).reached == ("memory",)
