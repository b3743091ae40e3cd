"""`hermes gateway` as a process: what the service manager, a second start and the commands see."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from hermes_agent import __version__
from hermes_agent.core.errors import UserError
from hermes_agent.server import KEY_NAME
from hermes_agent.service.control_socket import request

LIMIT_S = 30.0
"""A start imports everything; other tests run beside it."""


def command(home: Path, *words: str, **variables: str) -> dict[str, Any]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("API_SERVER_", "OPENAI", "HERMES"))
    }
    return {
        "args": [sys.executable, "-m", "hermes_agent", "gateway", *words],
        "env": kept | {"HERMES_HOME": str(home)} | variables,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
        "cwd": home.parent,
    }


def hermes(home: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `hermes gateway WORDS…` to its end."""
    return subprocess.run(**command(home, *words, **variables), timeout=LIMIT_S, check=False)


@dataclass
class Daemon:
    """A running daemon, and the socket where it tells how it does."""

    process: subprocess.Popen[str]
    told: socket.socket
    home: Path

    def next(self) -> dict[str, str]:
        """The next notification."""
        text = self.told.recv(65536).decode()
        return dict(line.split("=", 1) for line in text.splitlines())

    def until(self, name: str) -> dict[str, str]:
        """The next notification that sets `name`."""
        while name not in (said := self.next()):
            continue
        return said

    def end(self) -> tuple[int, str]:
        """Its exit status and what it wrote to stderr."""
        _, errors = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, errors


Start = Callable[..., Daemon]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts daemons with the home `tmp_path/home` on a free port; ends them."""
    home = tmp_path / "home"
    home.mkdir()
    with contextlib.ExitStack() as stack:

        def start(config: str = "server: {port: 0}\n", **variables: str) -> Daemon:
            (home / "config.yaml").write_text(config)
            told = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            told.bind(str(tmp_path / "notify"))
            told.settimeout(LIMIT_S)
            process = stack.enter_context(
                subprocess.Popen(**command(home, "run", NOTIFY_SOCKET=str(tmp_path / "notify"), **variables))
            )
            stack.callback(process.kill)
            return Daemon(process, told, home)

        yield start


def test_it_is_ready_when_it_answers_and_stops_in_order_with_status_0(start: Start) -> None:
    daemon = start()
    said = daemon.until("READY")
    state, running, http = said["STATUS"].split("; ")
    assert re.match(r"ready: \d+ plugins, ", state)
    assert running == "0 turns running"
    address = http.removeprefix("http ")
    assert httpx.get(f"http://{address}/health").json() == {"status": "ok", "version": __version__}
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.until("STOPPING")["STATUS"] == "stopping: 0 turns running"
    status, errors = daemon.end()
    assert status == 0, errors
    assert "Traceback" not in errors


def test_the_commands_find_it_whatever_their_own_settings_say(start: Start) -> None:
    daemon = start(API_SERVER_KEY="key-of-the-daemon-0123456789")
    at = daemon.until("READY")["STATUS"].rpartition("http ")[2]
    status = hermes(daemon.home, "status", "--json", API_SERVER_PORT="1", API_SERVER_KEY="key-of-the-daemon-0123456789")
    assert status.returncode == 0, status.stderr
    found = json.loads(status.stdout)
    assert (found["running"], found["pid"]) == (True, daemon.process.pid)
    assert (found["http"]["address"], found["http"]["status"], found["http"]["turns_running"]) == (at, "ok", 0)
    other_key = hermes(daemon.home, "status", API_SERVER_KEY="another-key-0123456789")
    assert other_key.returncode == 1
    assert "it has another key" in other_key.stdout
    text = hermes(daemon.home, "status", API_SERVER_KEY="key-of-the-daemon-0123456789").stdout
    assert text.startswith(f"running: pid {daemon.process.pid}")
    assert re.search(rf"http: http://{at} ok, version {__version__}; \d+ plugins, ", text)


def test_a_second_daemon_with_the_home_is_refused_with_status_75(start: Start) -> None:
    daemon = start()
    daemon.until("READY")
    second = hermes(daemon.home, "run")
    assert second.returncode == 75
    assert f"another hermes daemon (pid {daemon.process.pid})" in second.stderr


def test_the_key_that_is_printed_is_the_one_that_opens(start: Start) -> None:
    daemon = start()
    at = daemon.until("READY")["STATUS"].rpartition("http ")[2]
    printed = hermes(daemon.home, "key")
    assert (printed.returncode, printed.stderr) == (0, "")
    key = printed.stdout.strip()
    assert key == (daemon.home / KEY_NAME).read_text().strip()
    models = httpx.get(f"http://{at}/v1/models", headers={"Authorization": f"Bearer {key}"})
    assert models.status_code == 200
    assert key not in str([path.read_text() for path in (daemon.home / "logs").iterdir()])


def test_the_key_can_be_printed_before_the_first_start_and_from_a_variable(tmp_path: Path) -> None:
    first = hermes(tmp_path / "new", "key").stdout
    assert first == hermes(tmp_path / "new", "key").stdout
    assert len(first.strip()) >= 43
    assert hermes(tmp_path / "new", "key", API_SERVER_KEY="from-the-variable-0123").stdout == "from-the-variable-0123\n"


def test_without_a_daemon_the_status_is_1(tmp_path: Path) -> None:
    done = hermes(tmp_path / "home", "status")
    assert (done.returncode, done.stdout) == (
        1,
        f"not running (home {tmp_path / 'home'}); `hermes gateway run` starts it\n",
    )
    assert json.loads(hermes(tmp_path / "home", "status", "--json").stdout)["running"] is False


def test_a_port_in_use_ends_the_start_with_status_1_and_the_setting(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = hermes(tmp_path / "home", "run", API_SERVER_PORT=str(port))
    assert done.returncode == 1
    assert f"port {port} on 127.0.0.1 is in use" in done.stderr
    assert "API_SERVER_PORT" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_variable_and_a_wrong_config_end_the_start_with_status_78(tmp_path: Path) -> None:
    variable = hermes(tmp_path / "home", "run", API_SERVER_PORT="http")
    assert variable.returncode == 78
    assert "API_SERVER_PORT is 'http'" in variable.stderr
    (tmp_path / "home" / "config.yaml").write_text("server: {port: http}\n")
    config = hermes(tmp_path / "home", "run")
    assert config.returncode == 78
    assert "server.port" in config.stderr


def test_without_http_it_is_ready_and_stops_as_well(start: Start) -> None:
    daemon = start(API_SERVER_ENABLED="false")
    assert daemon.until("READY")["STATUS"].endswith("http off")
    status = hermes(daemon.home, "status")
    assert (status.returncode, "http: off, or not listening yet" in status.stdout.splitlines()) == (0, True)
    assert not (daemon.home / KEY_NAME).exists()
    daemon.process.send_signal(signal.SIGINT)
    assert daemon.end()[0] == 0


def test_a_beat_comes_as_long_as_the_loop_runs(start: Start) -> None:
    daemon = start(WATCHDOG_USEC="200000")
    daemon.until("READY")
    assert daemon.until("WATCHDOG") and daemon.until("WATCHDOG")


def test_the_commands_stop_reload_and_send_through_the_control_socket(start: Start) -> None:
    daemon = start(XDG_RUNTIME_DIR="", RUNTIME_DIRECTORY="")
    daemon.until("READY")
    with pytest.raises(UserError, match="expected one line of JSON"):
        request(daemon.home, {"op": "nonsense"})
    (daemon.home / "config.yaml").write_text("server: {port: zero}\n")
    broken = hermes(daemon.home, "reload")
    assert broken.returncode == 1
    assert "server.port" in broken.stderr
    (daemon.home / "config.yaml").write_text("server: {port: 0}\n")
    assert hermes(daemon.home, "reload").returncode == 0
    assert daemon.until("READY")
    sending = command(daemon.home)
    sending["args"] = [sys.executable, "-m", "hermes_agent", "send", "--to"]
    nowhere = subprocess.run(**sending | {"args": [*sending["args"], "nowhere:x", "hi"]}, timeout=LIMIT_S, check=False)
    assert "there is no platform 'nowhere'" in nowhere.stderr
    stored = subprocess.run(**sending | {"args": [*sending["args"], "irc:#x", "hi"]}, timeout=LIMIT_S, check=False)
    assert stored.stdout.startswith("pending: out-")
    told = json.loads(hermes(daemon.home, "status", "--json").stdout)
    assert (told["delivery"]["outbox_pending"], told["parked"], told["platforms"]) == (1, [], [])
    stopped = hermes(daemon.home, "stop")
    assert stopped.stdout == f"stopped (pid {daemon.process.pid})\n"
    assert daemon.end()[0] == 0
    assert hermes(daemon.home, "stop").stdout == "not running\n"
    assert hermes(daemon.home, "reload").returncode == 1
    later = subprocess.run(**sending | {"args": [*sending["args"], "irc:#x", "hi"]}, timeout=LIMIT_S, check=False)
    assert later.stdout.startswith("stored: out-")
