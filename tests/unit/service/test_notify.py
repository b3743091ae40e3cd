"""What systemd is told, over a real datagram socket."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from hermes_agent.core.redaction import redactor
from hermes_agent.service.systemd import ServiceNotifier, feed_watchdog


def listen(address: str) -> socket.socket:
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(address)
    manager.settimeout(5)
    return manager


def notifier_at(address: str | Path, *, watchdog_s: float | None = None) -> ServiceNotifier:
    """Open one as the daemon does."""
    os.environ["NOTIFY_SOCKET"] = str(address)
    if watchdog_s is not None:
        os.environ["WATCHDOG_USEC"] = str(round(watchdog_s * 1e6))
    return ServiceNotifier.open()


def received(manager: socket.socket) -> list[str]:
    return manager.recv(4096).decode().split("\n")


def test_ready_and_status_reach_the_socket_as_one_message(tmp_path: Path) -> None:
    with listen(str(tmp_path / "notify")) as manager:
        notifier_at(tmp_path / "notify").ready("serving 3 plugins")
        assert received(manager) == ["READY=1", "STATUS=serving 3 plugins"]


def test_an_abstract_socket_is_reached() -> None:
    name = f"hermes-test-{uuid.uuid4().hex}"
    with listen(f"\0{name}") as manager:
        notifier_at(f"@{name}").stopping()
        assert received(manager) == ["STOPPING=1"]


def test_a_status_in_any_script_is_utf8_and_one_line(tmp_path: Path) -> None:
    with listen(str(tmp_path / "n")) as manager:
        notifier_at(tmp_path / "n").status("läuft 运行\nMAINPID=1")
        assert received(manager) == ["STATUS=läuft 运行 MAINPID=1"]


def test_a_status_shows_no_secret(tmp_path: Path) -> None:
    redactor.learn(["notify-secret-value"])
    with listen(str(tmp_path / "n")) as manager:
        notifier_at(tmp_path / "n").status("key notify-secret-value")
        assert received(manager) == ["STATUS=key [redacted]"]


def test_reloading_carries_the_monotonic_time_in_the_same_message(tmp_path: Path) -> None:
    with listen(str(tmp_path / "n")) as manager:
        notifier_at(tmp_path / "n").reloading()
        first, second = received(manager)
        assert first == "RELOADING=1"
        assert second.startswith("MONOTONIC_USEC=") and second.partition("=")[2].isdigit()


def test_opening_takes_the_variables_from_the_environment_so_that_no_child_has_them() -> None:
    child = "import os, sys; sys.exit('NOTIFY_SOCKET' in os.environ or 'WATCHDOG_USEC' in os.environ)"
    code = (
        "import subprocess, sys\n"
        "from hermes_agent.service.systemd import ServiceNotifier\n"
        "ServiceNotifier.open()\n"
        f"sys.exit(subprocess.call([sys.executable, '-c', {child!r}]))"
    )
    env = {**os.environ, "NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}
    assert (
        subprocess.run(
            [sys.executable, "-c", code], env=env | {"PYTHONPATH": os.pathsep.join(sys.path)}, timeout=30
        ).returncode
        == 0
    )


def test_without_a_socket_every_call_does_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    monkeypatch.setenv("WATCHDOG_USEC", "2000000")
    notifier = ServiceNotifier.open()
    for call in (notifier.ready, notifier.stopping, notifier.reloading, notifier.alive, notifier.close):
        call()
    notifier.status("x")
    assert (notifier.active, notifier.beat_interval_s, caplog.records) == (False, None, [])


def test_a_manager_that_went_away_is_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with listen(str(tmp_path / "gone")):
        notifier = notifier_at(tmp_path / "gone")
    notifier.status("one")
    notifier.status("two")
    assert [(r.levelno, r.getMessage().partition(":")[0]) for r in caplog.records] == [
        (logging.WARNING, "cannot tell the service manager STATUS=one")
    ]


def test_a_manager_that_is_not_there_is_warned_of_and_the_daemon_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    notifier = notifier_at(tmp_path / "nobody")
    notifier.ready("serving")
    assert (notifier.active, "NOTIFY_SOCKET" in os.environ) == (False, False)
    assert [r.getMessage().partition(":")[0] for r in caplog.records] == [
        f"cannot reach the service manager at {tmp_path / 'nobody'}"
    ]


@pytest.mark.parametrize(
    ("environ", "interval"),
    [
        ({"WATCHDOG_USEC": "3000000"}, 1.5),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 1.5),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_beat_comes_at_half_of_the_limit_that_is_meant_for_this_process(
    environ: dict[str, str], interval: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with listen(str(tmp_path / "n")):
        notifier = notifier_at(tmp_path / "n")
        assert notifier.beat_interval_s == interval
        notifier.close()


async def test_the_beat_feeds_the_watchdog_only_while_there_is_progress(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    asked: list[bool] = []
    answers = [True, False, False, True]

    async def run(notifier: ServiceNotifier) -> None:
        done = asyncio.Event()

        def is_alive() -> bool:
            if len(asked) == len(answers):
                done.set()
                return True
            asked.append(answers[len(asked)])
            return asked[-1]

        task = asyncio.create_task(feed_watchdog(notifier, 0.001, is_alive))
        await asyncio.wait_for(done.wait(), 5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with listen(str(tmp_path / "n")) as manager:
        await run(notifier_at(tmp_path / "n", watchdog_s=0.002))
        manager.setblocking(False)
        fed = 0
        while True:
            try:
                assert manager.recv(64) == b"WATCHDOG=1"
            except BlockingIOError:
                break
            fed += 1
    assert fed == 3  # the two yes answers, and the one that ended the test
    assert [r.levelname for r in caplog.records] == ["ERROR", "INFO"]


async def test_a_question_for_progress_that_raises_counts_as_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run(notifier: ServiceNotifier) -> None:
        asked = asyncio.Event()

        def is_alive() -> bool:
            asked.set()
            raise ValueError("broken")

        task = asyncio.create_task(feed_watchdog(notifier, 60, is_alive))
        await asyncio.wait_for(asked.wait(), 5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with listen(str(tmp_path / "n")) as manager:
        await run(notifier_at(tmp_path / "n", watchdog_s=120))
        manager.setblocking(False)
        with pytest.raises(BlockingIOError):
            manager.recv(64)
    assert "it is not fed" in caplog.text


async def test_without_a_watchdog_the_beat_ends_at_once() -> None:
    await asyncio.wait_for(feed_watchdog(ServiceNotifier(), None), 5)
