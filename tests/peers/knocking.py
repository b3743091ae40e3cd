"""Knocks at the daemon's doors without a pause, until standard input ends, and says how it was let in.

A new connection for each question. What counts as refused: no connection, no answer, and an answer that is none.
"""

from __future__ import annotations

import http.client
import json
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable

KEY, CONTROL, PORT = sys.argv[1], sys.argv[2], int(sys.argv[3])
over = threading.Event()
counts: Counter[str] = Counter()
pids: set[int] = set()


def control() -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(60)
        one.connect(CONTROL)
        one.sendall(b'{"op": "status"}\n')
        answer = json.loads(one.makefile().readline())
    assert answer["ok"], answer
    pids.add(answer["pid"])


def over_http() -> None:
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    connection.request("GET", "/v1/models", headers={"Authorization": f"Bearer {KEY}"})
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    answer.read()
    connection.close()


def knock(door: str, ask: Callable[[], None]) -> None:
    while not over.is_set():
        try:
            ask()
            counts[door] += 1
        except Exception as exc:
            counts[f"{door} {type(exc).__name__}: {exc}"] += 1


threads = [threading.Thread(target=knock, args=door) for door in (("control", control), ("http", over_http)) * 2]
for thread in threads:
    thread.start()
print("knocking", flush=True)
sys.stdin.read()
over.set()
for thread in threads:
    thread.join()
print(json.dumps({"counts": counts, "pids": len(pids)}))
