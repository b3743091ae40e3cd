"""A daemon from outside: readiness, memory, sleep, and how many turns it serves over HTTP."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import stub_model
from homes import KEY, TOOL, Installation, environment, make_home
from processes import ahead_of_others, rss_mib, wake_ups
from rows import Row

__all__ = ["measure"]

STARTS = 3
IDLE_S = 20
"""How long wake-ups are counted."""
REST_S = 60
"""After 100 turns, before the memory is looked at."""
CONVERSATIONS, TURNS, ROUNDS = 20, 5, 3
SESSIONS = 500
LIMIT_S = 90


class Daemon(NamedTuple):
    """One that runs."""

    pid: int
    port: int

    def ask(self, session: str, text: str, connection: http.client.HTTPConnection | None = None) -> int:
        """Say something in a session; return the status of the answer."""
        link = connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        body = json.dumps({"model": "hermes-agent", "messages": [{"role": "user", "content": text}]})
        headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}", "x-hermes-session-id": session}
        link.request("POST", "/v1/chat/completions", body, headers)
        answer = link.getresponse()
        said = answer.read()
        assert answer.status != 200 or b"All right" in said, said
        if connection is None:
            link.close()
        return answer.status


def measure(installations: Sequence[Installation], folder: Path) -> list[Row]:
    """Measure the daemon of each installation; the waits of both at the same time."""
    found: dict[str, dict[str, float]] = {installation.name: {} for installation in installations}
    with stub_model.running(TOOL) as model:
        homes = {}
        for installation in installations:
            homes[installation.name] = folder / f"daemon-{installation.name}" / "home"
            make_home(homes[installation.name], 1, model)
        for _ in range(STARTS):  # in turns, so that what else the machine does is shared
            for installation in installations:
                with ahead_of_others():
                    _note_ready(found[installation.name], installation, homes[installation.name])
        with contextlib.ExitStack() as stack:
            daemons = {i.name: stack.enter_context(_running(i, homes[i.name])) for i in installations}
            time.sleep(10)
            _for_each(daemons, lambda name, daemon: _note_idle(found[name], daemon))
            rounds: dict[str, list[dict[str, float]]] = {name: [] for name in daemons}
            for number in range(ROUNDS):  # one after the other, they share two cores; in turns, as above
                for name, daemon in daemons.items():
                    rounds[name].append(_throughput(daemon, number))
            for name, each in rounds.items():
                found[name]["turns"] = statistics.median(one["turns"] for one in each)
                found[name]["refused"] = sum(one["refused"] for one in each)
            time.sleep(REST_S)
            for name, daemon in daemons.items():
                found[name]["rested"] = rss_mib(daemon.pid)
        ours = next(i for i in installations if i.is_ours)
        with _running(ours, homes["ours"]) as daemon:
            _note_sessions(found["ours"], daemon)
    return _rows(found["ours"], found.get("peer"))


def _rows(ours: dict[str, float], peer: dict[str, float] | None) -> list[Row]:
    grown = ours["with sessions"] - ours["without sessions"]
    rows = [
        Row("wake-ups of the idle daemon, a second", f"{ours['wake-ups']:.2f}", ours["wake-ups"], budget=2.0),
        Row(f"{SESSIONS} idle sessions, MiB above the idle daemon", f"{grown:.1f} MiB", grown, budget=50.0),
        Row("refused while 20 conversations speak at once", f"{ours['refused']:.0f}", ours["refused"], budget=0.0),
    ]
    if peer is None:
        rows += [
            Row("exec to the first answer", f"{ours['ready']:.2f} s", ours["ready"]),
            Row("memory before the first turn", f"{ours['idle']:.1f} MiB", ours["idle"]),
            Row("memory after 100 turns and a minute", f"{ours['rested']:.1f} MiB", ours["rested"]),
            Row("20 conversations of 5 tool turns over HTTP", f"{ours['turns']:.1f} turns/s", ours["turns"]),
        ]
        return rows

    def ratio(name: str, shown: str, one: float, other: float, **limits: float) -> None:
        rows.append(Row(name, shown.format(one, other), one / other, **limits))

    mib, s, rate = "{:.1f} / {:.1f} MiB", "{:.2f} / {:.2f} s", "{:.1f} / {:.1f} turns/s"
    ratio("exec to the first answer, by the peer's", s, ours["ready"], peer["ready"], budget=0.2)
    ratio("memory before the first turn, by the peer's", mib, ours["idle"], peer["idle"], budget=0.41)
    name = "memory after 100 turns and a minute, by the peer's before any"
    ratio(name, mib, ours["rested"], peer["idle"], budget=0.9)
    ratio("20 conversations of 5 tool turns, by the peer's", rate, ours["turns"], peer["turns"], floor=20.0)
    shown = f"{peer['wake-ups']:.1f}, {peer['rested']:.1f} MiB, {peer['refused']:.0f}"
    rows.append(Row("the peer's wake-ups, memory after 100 turns, refusals", shown, peer["wake-ups"]))
    return rows


def _note_ready(found: dict[str, float], installation: Installation, home: Path) -> None:
    began = time.monotonic()
    with _running(installation, home, answers=True):
        found["ready"] = min(found.get("ready", LIMIT_S), time.monotonic() - began)


def _note_idle(found: dict[str, float], daemon: Daemon) -> None:
    found["idle"] = rss_mib(daemon.pid)
    before = wake_ups(daemon.pid)
    time.sleep(IDLE_S)
    found["wake-ups"] = (wake_ups(daemon.pid) - before) / IDLE_S


def _throughput(daemon: Daemon, number: int) -> dict[str, float]:
    """Return what a round of new conversations comes to: turns a second, and how many were refused."""
    refused = []
    daemon.ask("warm", "tool, please")  # the first turn of a process imports

    def converse(talk: int) -> None:
        link = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=LIMIT_S)
        for turn in range(TURNS):
            while (status := daemon.ask(f"talk-{number}-{talk}", f"tool turn {turn}", link)) != 200:
                refused.append(status)
                time.sleep(0.2)
        link.close()

    threads = [threading.Thread(target=converse, args=(talk,)) for talk in range(CONVERSATIONS)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"turns": CONVERSATIONS * TURNS / (time.monotonic() - began), "refused": len(refused)}


def _note_sessions(found: dict[str, float], daemon: Daemon) -> None:
    time.sleep(5)
    found["without sessions"] = rss_mib(daemon.pid)
    link = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=LIMIT_S)
    for number in range(SESSIONS):
        assert daemon.ask(f"idle-{number}", "text, please", link) == 200
    link.close()
    time.sleep(10)
    found["with sessions"] = rss_mib(daemon.pid)


@contextlib.contextmanager
def _running(installation: Installation, home: Path, *, answers: bool = False) -> Iterator[Daemon]:
    """Run the daemon of a home; the block begins when it is healthy, or has answered a question."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    doors = {"API_SERVER_ENABLED": "1", "API_SERVER_KEY": KEY, "API_SERVER_PORT": str(port)}
    env = environment(home) | doors | {"API_SERVER_HOST": "127.0.0.1"}
    log = home.parent / "daemon.log"
    with log.open("ab") as out:
        command = [installation.hermes, "gateway", "run"]
        process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    daemon = Daemon(process.pid, port)
    try:
        _wait(process, log, (lambda: daemon.ask("first", "text, please")) if answers else (lambda: _health(port)))
        yield daemon
    finally:
        process.terminate()
        process.wait(30)


def _health(port: int) -> int:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    link.request("GET", "/health")
    status = link.getresponse().status
    link.close()
    return status


def _wait(process: subprocess.Popen[bytes], log: Path, status: Callable[[], int]) -> None:
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if status() == 200:
                return
        time.sleep(0.01)
    raise SystemExit(f"a daemon did not answer ({os.fspath(log)}):\n{log.read_text()[-2000:]}")


def _for_each(daemons: dict[str, Daemon], note: Callable[[str, Daemon], None]) -> None:
    threads = [threading.Thread(target=note, args=item) for item in daemons.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
