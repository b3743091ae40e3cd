"""A daemon that is killed again and again under traffic of twenty conversations answers each message once, in order.

They talk over IRC (a real server), HTTP, webhooks and a chat service. `make chaos` kills 300 times; the normal run 20.
`HERMES_CHAOS_KILLS` sets how often, `HERMES_CHAOS_SEED` repeats a run.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import json
import os
import random
import secrets
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from chaos.irc import ROOM, IrcPerson
from chaos.world import ADAPTER, Model, Service, serving
from peers.install import NotInstalled
from peers.irc import IrcServer, ngircd
from peers.running import free_port

KILLS = int(os.environ.get("HERMES_CHAOS_KILLS", "20"))
SEED = int(os.environ.get("HERMES_CHAOS_SEED", "0")) or secrets.randbelow(1 << 30)
CONVERSATIONS = 5
"""Of each kind: chats of the service, webhooks, sessions over HTTP, and people on IRC."""
KEY = "key-of-this-test-0123456789"
SECRET = "the secret of this test"
ANSWERED_S = 120.0
"""How long everything that is open may take once nobody is killed any more."""
PACE_S = 1.0 if KILLS > 50 else 0.4
"""Longest time between a daemon that is ready and its end, mostly."""
LASTING, LASTING_S = 0.12, 8.0
"""How many of the daemons may last, and at most how long: a daemon that has just started repeats nothing yet."""


def home_at(folder: Path, model: str, service: str, port: int, irc: IrcServer | None = None) -> Path:
    home = folder / "home"
    plugin = home / "plugins" / "ledger"
    plugin.mkdir(parents=True)
    (plugin / "plugin.yaml").write_text("name: ledger\nversion: 1.0.0\ndescription: a chat service\nkind: platform\n")
    (plugin / "__init__.py").write_text(ADAPTER.format(address=service))
    config = {
        "model": {"provider": "here", "default": "instant"},
        "providers": {"here": {"base_url": f"{model}/v1", "api_key": "none"}},
        "plugins": {"enabled": ["ledger"]},
        "display": {"busy_input_mode": "queue"},
        "gateway": {"messages_per_minute": 0, "platform_messages_per_minute": 0},
        "platforms": {"ledger": {"enabled": True}, **at_irc(irc)},
        "server": {"port": port, "key": KEY, "drain_timeout_s": 5},
        "webhooks": {
            f"hook{number}": {
                "secret": SECRET,
                "prompt": "{word}",
                "session": "one",
                "deliver": f"ledger:w{number}",
                "per_minute": 100_000,
            }
            for number in range(CONVERSATIONS)
        },
    }
    (home / "config.yaml").write_text(json.dumps(config))
    return home


def at_irc(irc: IrcServer | None) -> dict[str, Any]:
    if irc is None:
        return {}
    where = {"server": irc.host, "port": irc.port, "channel": [ROOM], "nickname": "hermes"}
    return {"irc": {"enabled": True, "use_tls": False, "flood_interval": 0, **where}}


@contextlib.contextmanager
def irc_server(folder: Path) -> Iterator[IrcServer]:
    try:
        with ngircd(folder) as server:
            yield server
    except NotInstalled as exc:
        pytest.skip(str(exc))


class Daemon:
    def __init__(self, home: Path, port: int) -> None:
        self._home = home
        self._port = port
        self._log = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=(home / "out").open("ab"))
        """A pipe, so that what a full disk does to the daemon is seen."""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("API_SERVER_", "OPENAI", "HERMES", "XDG_"))}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hermes_agent", "gateway", "run"],
            env=kept
            | {"HERMES_HOME": str(self._home), "LEDGER_ALLOW_ALL_USERS": "true", "GATEWAY_ALLOW_ALL_USERS": "true"}
            | {"HERMES_GATEWAY_LOCK_DIR": str(self._home / "locks")},
            stdout=self._log.stdin,
            stderr=self._log.stdin,
            cwd=self._home,
        )

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=2)
        try:
            connection.request("GET", "/ready")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def wait_ready(self) -> None:
        end = time.monotonic() + 60
        while not self.ready():
            assert self._process is not None
            assert self._process.poll() is None, (self._home / "out").read_text()[-3000:]
            assert time.monotonic() < end, "the daemon does not become ready"
            time.sleep(0.02)

    def stop(self) -> int:
        assert self._process is not None
        self._process.terminate()
        status = self._process.wait(60)
        self._log.communicate()
        return status


class Traffic:
    """Twenty people: each says the next thing when what it said is answered, one to three at a time.

    Args:
        people: those on IRC.
    """

    def __init__(self, service: Service, port: int, people: dict[str, IrcPerson] | None = None) -> None:
        self.written: dict[str, list[str]] = {}
        self.refusals: set[str] = set()
        self._service = service
        self._port = port
        self._over = threading.Event()
        self.people = people or {}
        say = {"w": self._hook, "p": self._chat, "h": self._http}
        chats = [f"{kind}{number}" for kind in say for number in range(CONVERSATIONS)] + list(self.people)
        self._threads = [
            threading.Thread(target=self._talk, args=(chat, say.get(chat[0], self._irc)), daemon=True) for chat in chats
        ]
        for thread in self._threads:
            thread.start()

    def wait_answers(self, more: int) -> None:
        """Wait until so many more answers have come than there are now."""
        with self._service.changed:
            wanted = sum(map(len, self._service.seen.values())) + more
            self._service.changed.wait_for(lambda: sum(map(len, self._service.seen.values())) >= wanted, ANSWERED_S)

    def end(self) -> None:
        """Nobody says anything new; wait until everything is said and answered."""
        self._over.set()
        end = time.monotonic() + ANSWERED_S
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        for nick, person in self.people.items():
            self.written[nick] = person.order
            person.close()

    def _talk(self, chat: str, say) -> None:
        own = random.Random(f"{SEED}{chat}")
        said = self.written.setdefault(chat, [])
        while not self._over.is_set():
            for _ in range(own.randint(1, 3)):
                word = f"{chat}.{len(said)}"
                said.append(word)
                say(chat, word)
            with self._service.changed:
                self._service.changed.wait_for(lambda: len(self._service.seen[chat]) >= len(said))
            self._over.wait(own.random() * 0.3)

    def _chat(self, chat: str, word: str) -> None:
        self._service.write(chat, word)

    def _irc(self, chat: str, word: str) -> None:
        self.people[chat].say(word)

    def _http(self, chat: str, word: str) -> None:
        """Ask until there is an answer, as clients do; it is what the service has seen of this chat."""
        body = json.dumps({"messages": [{"role": "user", "content": word}]}).encode()
        headers = {"Authorization": f"Bearer {KEY}", "X-Hermes-Session-Id": chat, "Idempotency-Key": word}
        answer = json.loads(self._post("/v1/chat/completions", body, headers, 200))
        self._service.hear(chat, answer["choices"][0]["message"]["content"])

    def _hook(self, chat: str, word: str) -> None:
        body = json.dumps({"word": word}).encode()
        headers = {
            "X-Signature-256": hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest(),
            "Idempotency-Key": word,
        }
        self._post(f"/webhooks/hook{chat[1:]}", body, headers, 202)

    def _post(self, path: str, body: bytes, headers: dict[str, str], wanted: int) -> bytes:
        """Try until it succeeds, as services do that get no answer."""
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
            try:
                connection.request("POST", path, body, headers)
                answer = connection.getresponse()
                said = answer.read()
                if answer.status == wanted:
                    return said
                self.refusals.add(f"{answer.status} {said[:200]!r}")
            except (OSError, http.client.HTTPException):
                pass
            finally:
                connection.close()
            time.sleep(0.1)


def stored(home: Path, word: str) -> bool:
    with contextlib.closing(sqlite3.connect(home / "state.db", timeout=60)) as db:
        found = db.execute("SELECT 1 FROM inbox WHERE platform = 'irc' AND payload LIKE ?", (f'%"{word}"%',))
        return found.fetchone() is not None


def inbox(home: Path, chat: str) -> list[tuple[object, ...]]:
    """Return the last rows of a chat's messages, for the message of a failed test."""
    with contextlib.closing(sqlite3.connect(home / "state.db", timeout=60)) as db:
        what = "id, state, attempt, errors, reason, payload ->> '$.text'"
        last = f"SELECT {what} FROM inbox WHERE payload LIKE ? ORDER BY id DESC LIMIT 6"
        return db.execute(last, (f'%"{chat}.%',)).fetchall()


def transcript(home: Path, session: str) -> list[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(home / "state.db")) as db:
        rows = db.execute("SELECT role, content FROM messages WHERE session_id = ? ORDER BY id", (session,))
        return [(role, text) for role, text in rows if not text.startswith("[The agent was restarted")]


@pytest.mark.timeout(120 + KILLS * 20)
def test_every_message_is_answered_once_and_in_order_however_often_the_daemon_is_killed(tmp_path: Path) -> None:
    print(f"HERMES_CHAOS_SEED={SEED} HERMES_CHAOS_KILLS={KILLS}")
    moments = random.Random(SEED)
    service, port = Service(0.05, SEED), free_port()
    with serving(Model()) as model, serving(service) as address, irc_server(tmp_path / "irc") as irc:
        home = home_at(tmp_path, model, address, port, irc)
        daemon = Daemon(home, port)
        daemon.start()
        nicks = [f"i{number}" for number in range(CONVERSATIONS)]
        people = {nick: IrcPerson(nick, irc, partial(service.hear, nick), partial(stored, home)) for nick in nicks}
        traffic = Traffic(service, port, people)
        for number in range(KILLS):
            when = moments.random()
            if when > 0.3:  # mostly at work, now and then while it starts
                daemon.wait_ready()
            if when > 0.65:  # however slow the machine is, something is answered between two ends
                traffic.wait_answers(moments.randint(1, CONVERSATIONS))
            time.sleep(moments.random() * (LASTING_S if moments.random() < LASTING else PACE_S))
            if number and number % 50 == 0:
                print(f"{number} kills, {sum(map(len, list(service.seen.values())))} answers", flush=True)
            daemon.kill()
            daemon.start()
        daemon.wait_ready()
        traffic.end()
        status = daemon.stop()

    for chat, words in traffic.written.items():
        about = people[chat].state if chat in people else f"{chat}: {traffic.refusals}"
        assert service.seen[chat] == [f"echo {word}" for word in words], f"seed {SEED}, {about}, {inbox(home, chat)}"
        if chat[0] == "h":
            said = [one for word in words for one in (("user", word), ("assistant", f"echo {word}"))]
            assert transcript(home, chat) == said, f"{chat}, seed {SEED}"
    assert sum(map(len, traffic.written.values())) > 2 * CONVERSATIONS
    assert status == 0
