"""A restart while people talk: the same pid, the same listening socket, nobody refused, what was begun is finished."""

from __future__ import annotations

import json
import signal
import threading
import time
from pathlib import Path

import httpx

from chaos.test_kills import KEY, Daemon, home_at
from chaos.world import Model, Service, serving
from peers.running import free_port


def ask(port: int, word: str, answers: list[tuple[str, int, str]]) -> None:
    body = {"messages": [{"role": "user", "content": word}]}
    address = f"http://127.0.0.1:{port}/v1/chat/completions"
    answer = httpx.post(address, json=body, headers={"Authorization": f"Bearer {KEY}"}, timeout=120)
    answers.append((word, answer.status_code, answer.json()["choices"][0]["message"]["content"]))


def started(home: Path) -> float:
    return float(json.loads((home / "gateway_state.json").read_text())["started"])


def test_a_restart_refuses_nobody_and_finishes_what_was_begun(tmp_path: Path) -> None:
    service, model, port = Service(0.0, 1), Model(), free_port()
    answers: list[tuple[str, int, str]] = []
    with serving(model) as address, serving(service) as chats:
        home = home_at(tmp_path, address, chats, port)
        daemon = Daemon(home, port)
        daemon.start()
        daemon.wait_ready()
        pid, began = daemon.pid, started(home)

        model.hangs_for("h0")
        slow = threading.Thread(target=ask, args=(port, "h0.1", answers))
        slow.start()
        while not model.held:
            time.sleep(0.01)
        daemon.signal(signal.SIGUSR1)
        while "wait for the next process" not in (home / "out").read_text():
            time.sleep(0.01)
        late = threading.Thread(target=ask, args=(port, "h1.1", answers))
        late.start()  # the old process takes no connection any more, and the new one is not there yet
        service.write("p0", "p0.1")
        model.let_go()
        slow.join(120)
        late.join(120)
        with service.changed:
            assert service.changed.wait_for(lambda: service.seen["p0"], 120)

        assert sorted(answers) == [("h0.1", 200, "echo h0.1"), ("h1.1", 200, "echo h1.1")]
        assert service.seen["p0"] == ["echo p0.1"]
        assert started(home) > began
        assert daemon.pid == pid
        assert daemon.stop() == 0
