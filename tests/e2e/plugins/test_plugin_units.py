"""The program of a plugin's unit, and the agent's launcher of it; a socket server stands in for systemd.

`tests/service/test_isolated_plugins.py` runs them under a real systemd.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from hermes_agent.plugins.isolation.launchers import MEMORY, ProcessEnd, UnitLauncher, UnitRequest, archive_of
from hermes_agent.plugins.isolation.process_state import unit_name, unit_socket
from hermes_agent.system import plugin_unit
from hermes_agent.system.plugin_unit import MODULE, READ, WRITE, differences, unpack
from hermes_agent.testing import PluginHost, plugin_host

DATA = Path(__file__).parent / "isolated"
pytestmark = pytest.mark.xdist_group("isolation")


@contextlib.contextmanager
def listening(path: Path, home: Path, more: Mapping[str, str] | None = None) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start the program of the unit for each connection to a socket, as systemd does; yield the programs."""
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
                    argv = [sys.executable, "-m", plugin_unit.__name__]
                    started.append(subprocess.Popen(argv, env=env, stdin=connection.fileno()))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield started
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()
        for unit in started:
            unit.wait(30)


@pytest.fixture
def sockets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


@contextlib.contextmanager
def hosted(sockets: Path, *, entry: Mapping[str, Any], unit: Mapping[str, str] | None = None) -> Iterator[PluginHost]:
    """A host with the plugin `faulty`, of which a unit runs the process."""
    host = {"memory_mb": 256, "call_timeout_s": 6, "stall_s": 3, "sockets": str(sockets)}
    config = {"plugins": {"isolation": "host", "host": host, "entries": {"faulty": dict(entry)}}}
    home = sockets / "home"
    home.mkdir()
    path = sockets / "faulty.sock"
    with listening(path, home, unit), plugin_host(DATA / "faulty", config=config, strict=False) as it:
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


def test_a_unit_that_shows_a_path_without_a_grant_does_not_start_the_plugin(sockets: Path) -> None:
    with hosted(sockets, entry={}, unit={READ: "/srv/old"}) as host:
        (record,) = [r for r in host.host.plugins.records if r.manifest.key == "faulty"]
        assert "its unit shows /srv/old, which is not granted any more" in (record.error or "")


def test_a_granted_path_that_the_unit_does_not_show_is_a_warning(sockets: Path) -> None:
    with hosted(sockets, entry={"granted_capabilities": ["files.read:/srv/new"]}) as host:
        assert any("granted path /srv/new is not shown by its unit" in str(line) for line in host.log)


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
