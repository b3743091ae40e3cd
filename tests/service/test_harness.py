"""The harness itself: what a script gets, and what is told when something goes wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from run_in_systemd import Container, HarnessError, Process

ECHO_SERVER = """
import http.server
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(self.path.encode())
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Answer).serve_forever()
"""


def test_a_script_runs_under_systemd_and_its_output_status_and_journal_come_back(tmp_path: Path) -> None:
    (tmp_path / "seen").write_text("from the host")
    outcome = Container(
        units={"hello.service": "[Service]\nType=oneshot\nExecStart=/bin/echo hello from a unit\n"},
        binds={tmp_path: "/srv/bound"},
        files={"/srv/file": "a file"},
        environment={"NAME": "a value"},
    ).run(
        'cat /proc/1/comm /srv/bound/seen /srv/file; echo " $NAME $1"; echo wrong >&2\n'
        "touch /srv/bound/x 2>/dev/null && echo writable\nsystemctl start hello; exit 7",
        "argument",
    )
    assert (outcome.status, outcome.state) == (7, "running")
    assert outcome.stdout == "systemd\nfrom the hosta file a value argument\n"
    assert outcome.stderr == "wrong\n"
    assert [e["MESSAGE"] for e in outcome.entries(_SYSTEMD_UNIT="hello.service")] == ["hello from a unit"]
    with pytest.raises(AssertionError, match="status 7"):
        outcome.succeeded()


def test_a_process_beside_the_units_listens_before_the_script_begins() -> None:
    outcome = Container(
        files={"/srv/server.py": ECHO_SERVER},
        processes=[Process("model", ["/usr/bin/python3", "/srv/server.py"], port=8000)],
    ).run("#!/usr/bin/python3\nimport urllib.request as u\nprint(u.urlopen('http://127.0.0.1:8000/hello').read())")
    assert outcome.succeeded().stdout == "b'/hello'\n"


def test_a_process_that_does_not_start_is_named() -> None:
    outcome = Container(processes=[Process("model", ["/bin/false"], port=8000)]).run("echo never")
    assert (outcome.status, outcome.stdout) == (125, "")
    assert "model does not run" in outcome.stderr


def test_nothing_is_left_on_the_host_and_nothing_of_the_host_is_started(tmp_path: Path) -> None:
    mark = tmp_path.name
    outcome = Container().run(
        f"touch /var/{mark}; ls /sys/class/net; ls /tmp; systemctl list-units --state=failed -q; hostname"
    )
    lo, hostname = outcome.succeeded().stdout.split()
    assert lo == "lo" and hostname.startswith("ris-")
    assert not Path("/var", mark).exists()
    run_id = hostname.removeprefix("ris-")
    assert not list(Path("/sys/fs/cgroup").glob(f"**/run-in-systemd-{run_id}"))
    assert not Path("/run/run-in-systemd", run_id).exists()
    assert "run-in-systemd" not in Path("/proc/self/mounts").read_text()


def test_a_script_that_runs_too_long_is_ended_with_the_journal_in_the_message() -> None:
    with pytest.raises(HarnessError, match=r"ran past 3 s[\s\S]*said in the journal"):
        Container().run("logger said in the journal; sleep 60", timeout_s=3)


def test_a_container_that_goes_away_is_told() -> None:
    with pytest.raises(HarnessError):
        Container().run("systemctl poweroff --force --force; sleep 60")


def test_a_bind_that_is_not_there_is_refused_before_the_boot(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="it is not there"):
        Container(binds={tmp_path / "none": "/srv"}).run("true")


def test_a_large_output_comes_back_whole() -> None:
    outcome = Container().run([sys.executable if sys.executable.startswith("/usr") else "/usr/bin/python3"], "-c",
                              "print('x' * 5_000_000)")  # fmt: skip
    assert len(outcome.succeeded().stdout) == 5_000_001
