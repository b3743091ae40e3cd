"""Under traffic: a config that is broken while it is read anew, a model that hangs, a disk that takes nothing more.

Nobody is killed here; what people say all the while is answered once and in order, the trouble's end later at most.
"""

from __future__ import annotations

import contextlib
import resource
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos.test_kills import SEED, Daemon, Traffic, home_at
from chaos.world import Model, Service, serving
from peers.running import free_port

PATIENCE_S = 120.0


def wait_for(said: Callable[[], bool], what: str, more: Callable[[], str] = str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not said():
        assert time.monotonic() < end, f"{what}{more()}"
        time.sleep(0.05)


@pytest.mark.timeout(900)
def test_traffic_goes_on_through_a_broken_config_a_model_that_hangs_and_a_full_disk(tmp_path: Path) -> None:
    service, model, port = Service(0.05, SEED), Model(), free_port()
    with serving(model) as address, serving(service) as chats:
        home = home_at(tmp_path, address, chats, port)
        daemon = Daemon(home, port)
        daemon.start()
        daemon.wait_ready()
        traffic = Traffic(service, port)
        try:
            steps(home, daemon, model, service, traffic)
        finally:
            model.let_go()
            traffic.end()
            status = daemon.stop()

    for chat, words in traffic.written.items():
        assert service.seen[chat] == [f"echo {word}" for word in words], f"{chat}, seed {SEED}, {traffic.refusals}"
    assert status == 0


def unfinished(home: Path) -> list[tuple[object, ...]]:
    """What the daemon has taken and not ended."""
    with contextlib.closing(sqlite3.connect(home / "state.db")) as db:
        found = "SELECT '{0}', platform, chat, state, attempt, reason FROM {0} WHERE finished_at IS NULL"
        return [row for table in ("inbox", "outbox") for row in db.execute(found.format(table))]


def steps(home: Path, daemon: Daemon, model: Model, service: Service, traffic: Traffic) -> None:
    def log() -> str:
        return (home / "out").read_text()

    def goes_on(but: str = "") -> None:
        before = {chat: len(seen) for chat, seen in service.seen.items() if chat != but}

        def late() -> list[str]:
            return [chat for chat, n in before.items() if len(service.seen[chat]) <= n]

        def why() -> str:
            return f"; refused: {traffic.refusals}; unfinished: {unfinished(home)}; the log: {log()[-5000:]}"

        wait_for(lambda: not late(), "some are not answered", lambda: f": {late()}{why()}")

    goes_on()
    good = (home / "config.yaml").read_text()
    (home / "config.yaml").write_text("platforms: {ledger: {enabled: [")
    daemon.signal(signal.SIGHUP)
    wait_for(lambda: "nothing is reloaded" in log(), "the broken config is not named")
    goes_on()
    (home / "config.yaml").write_text(good)
    daemon.signal(signal.SIGHUP)
    wait_for(lambda: "reloaded: " in log(), "the config is not read again")

    model.hangs_for("p0")
    wait_for(lambda: bool(model.held), "the model was not asked")
    before = int(model.held[0].partition(".")[2])  # what was written before it has its answer, which may be on its way
    wait_for(lambda: len(service.seen["p0"]) >= before, "the answers before are not delivered")
    goes_on(but="p0")
    assert len(service.seen["p0"]) == before
    model.let_go()
    wait_for(lambda: len(service.seen["p0"]) > before, "who waited for the model is not answered")

    held = len(model.held)
    model.hangs_for("p0")  # so that a turn is under way when the disk is full: its end cannot be stored
    wait_for(lambda: len(model.held) > held, "the model was not asked again")
    limits = resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (0, limits[1]))
    model.let_go()
    wait_for(lambda: bool(traffic.refusals), "nobody is refused")
    wait_for(lambda: "cannot write the state" in log(), "nobody says that the disk is full")
    assert all(one.startswith("503") for one in traffic.refusals), traffic.refusals
    resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, limits)
    goes_on()
