"""A known secret, in each form, followed into everything that a running daemon stores, sends, prints and answers."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from peers.running import free_port, running
from worlds import HERMES, environment, run

MARKER = "k9Xw2LmQ8vRt4ZbN7cYd"
FORMS: dict[str, Callable[[str], str]] = {
    "plain": lambda s: s,
    "base64": lambda s: base64.b64encode(b"user:" + s.encode()).decode(),
    "hex": lambda s: s.encode().hex(),
    "percent": lambda s: "".join(f"%{byte:02X}" for byte in s.encode()),
    "reversed": lambda s: s[::-1],
    "split over lines": lambda s: "\n".join(s[i : i + 5] for i in range(0, len(s), 5)),
    "spelled": lambda s: " ".join(s),
}
HOOK_KEY = "the-key-of-this-webhook"
FULL = pytest.mark.skipif(os.environ.get("HERMES_ATTACK_FULL") != "1", reason="make attack runs a daemon for it")


def squeezed(text: str) -> str:
    """Return letters and digits alone, whatever stands between them."""
    return re.sub(r"\\+[nrtu]|[^A-Za-z0-9]", "", text)


def inner(form: str) -> str:
    """Return what of a form is the same wherever it begins."""
    text = squeezed(FORMS[form](MARKER))
    return text[len(text) // 4 : -len(text) // 8]


class Peer:
    """A model that streams in small pieces and knows the secret, and a collector of OpenTelemetry."""

    def __init__(self) -> None:
        self.form = "plain"
        self.asked: list[str] = []
        self.spans: list[str] = []

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return a message: first a call that prints the secret, then an answer that says it."""
        secret = FORMS[self.form](MARKER)
        last = body["messages"][-1]
        tools = [tool["function"]["name"] for tool in body.get("tools") or ()]
        calls = {
            "terminal": {"command": f"printf %s {json.dumps(secret)}"},
            "memory": {"target": "memory", "action": "add", "content": f"The {self.form} key is {secret}"},
            "todo": {"todos": [{"id": "1", "content": f"use {secret}"}]},
            "cronjob": {"action": "create", "schedule": "0 4 * * *", "name": secret, "prompt": f"use {secret}"},
        }
        if last["role"] != "user" or not tools:
            return {"role": "assistant", "content": f"The key is {secret} as you know."}
        made = [
            {
                "id": f"c{number}",
                "index": number,
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for number, (name, arguments) in enumerate(calls.items())
            if name in tools
        ]
        if not made:
            return {"role": "assistant", "content": f"Noted: {secret}"}
        return {"role": "assistant", "content": "", "tool_calls": made}


@contextlib.contextmanager
def served(peer: Peer) -> Iterator[str]:
    """Serve the peer; gives its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self.send_response(200)
            if self.path.endswith("/traces"):
                peer.spans.append(raw)
                self.end_headers()
                return
            peer.asked.append(raw)
            body = json.loads(raw)
            message = peer.answer(body)
            if not body.get("stream"):
                self.end_headers()
                done = {"model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
                self.wfile.write(json.dumps(done).encode())
                return
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            text, calls = message["content"], message.get("tool_calls")
            deltas: list[dict[str, Any]] = [{"content": text[i : i + 3]} for i in range(0, len(text), 3)]
            deltas += [{"tool_calls": calls}] if calls else []
            for delta in deltas:
                self._event({"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
            end = {"index": 0, "delta": {}, "finish_reason": "tool_calls" if calls else "stop"}
            self._event({"model": "m", "choices": [end]})
            self.wfile.write(b"data: [DONE]\n\n")

        def _event(self, value: dict[str, Any]) -> None:
            self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def settle(path: Path, address: str) -> Path:
    """Make a home that knows the secret."""
    home = path / "home"
    home.mkdir()
    config = {
        "model": {"provider": "custom", "base_url": f"{address}/v1", "default": "m"},
        "terminal": {"sandbox": "off", "cwd": str(path)},
        "approvals": {"mode": "off"},
        "plugins": {"enabled": ["observability/otel"]},
        "webhooks": {"push": {"check": "gitlab", "prompt": "{text}", "deliver": "log"}},
        "logging": {"level": "DEBUG"},
    }
    (home / "config.yaml").write_text(json.dumps(config))
    lines = [f"DOOR_TOKEN={MARKER}", f"WEBHOOK_PUSH_SECRET={HOOK_KEY}", f"OTEL_EXPORTER_OTLP_ENDPOINT={address}"]
    (home / ".env").write_text("\n".join([*lines, "OPENAI_API_KEY=none"]) + "\n")
    return home


def texts(stream: str, *path: str) -> str:
    """Return the pieces of a stream of server-sent events, put together."""
    found = []
    for line in stream.splitlines():
        if line.startswith("data: {"):
            value: Any = json.loads(line[6:])
            for name in path:
                value = (value[0] if isinstance(value, list) and value else value) or {}
                value = value.get(name) if isinstance(value, dict) else None
            found.append(value if isinstance(value, str) else "")
    return "".join(found)


def conversation(peer: Peer, home: Path, client: httpx.Client, form: str) -> dict[str, str]:
    """Let users talk about the secret in one form; return what each way showed them."""
    peer.form, typed = form, f"my {form} key is {FORMS[form](MARKER)} today"
    chat = {"model": "hermes-agent", "messages": [{"role": "user", "content": typed}]}
    responses = {"model": "hermes-agent", "input": typed}
    stream = client.post("/v1/chat/completions", json=chat | {"stream": True}).text
    events = client.post("/v1/responses", json=responses | {"stream": True}).text
    done = run(home, "-z", typed)
    shown = {
        "chat completions": client.post("/v1/chat/completions", json=chat).text,
        "chat completions, streamed": stream,
        "chat completions, streamed, put together": texts(stream, "choices", "delta", "content"),
        "responses": client.post("/v1/responses", json=responses).text,
        "responses, streamed": events,
        "responses, streamed, put together": texts(events, "delta"),
        "an error over HTTP": client.post("/v1/chat/completions", json=chat | {"model": typed}).text,
        "an address that is not there": client.get(f"/v1/{quote(FORMS[form](MARKER))}").text,
        "the terminal": done.stdout + done.stderr,
    }
    assert "as you know" in shown["chat completions"] and "as you know" in shown["responses"], shown
    assert "as you know" in shown["chat completions, streamed, put together"], stream
    hook = client.post("/webhooks/push", json={"text": typed}, headers={"X-Gitlab-Token": HOOK_KEY})
    assert hook.status_code in (200, 202), hook.text
    return shown | {"a webhook's answer": hook.text}


def kept(home: Path) -> dict[str, str]:
    """Return what lies in the home, by kind."""
    found: dict[str, str] = {}
    for path in home.rglob("*"):
        if path.is_file() and path.name != ".env":
            kind = path.relative_to(home).parts[0]
            kind = "state.db" if kind.startswith("state.db") else kind
            found[kind] = found.get(kind, "") + path.read_bytes().decode("latin-1")
    return found


def searched(home: Path, form: str) -> str:
    """Return what the index of the transcripts finds of a form."""
    with contextlib.closing(sqlite3.connect(f"file:{home}/state.db?mode=ro", uri=True)) as db:
        tables = [name for (name, sql) in db.execute("SELECT name, sql FROM sqlite_master") if "fts5" in (sql or "")]
        words = re.findall(r"[A-Za-z0-9]{5,}", FORMS[form](MARKER))
        query = " ".join(f'"{word}"' for word in words) or f'"{FORMS[form](MARKER)}"'
        return str(
            [row for table in tables for row in db.execute(f"SELECT * FROM {table} WHERE {table} MATCH ?", [query])]
        )


@FULL
@pytest.mark.attack("secrets", at="daemon")
def test_no_sink_of_a_daemon_has_the_secret_in_any_form(tmp_path: Path, attempt: Callable[[bool, str], None]) -> None:
    peer, port = Peer(), free_port()
    with served(peer) as address:
        home = settle(tmp_path, address)
        environ = environment(home, API_SERVER_PORT=str(port))
        shown: dict[str, dict[str, str]] = {}
        with running(
            [HERMES, "gateway", "run"], host="127.0.0.1", port=port, path="/health", environ=environ
        ) as daemon:
            key = run(home, "gateway", "key").stdout.strip()
            headers = {"Authorization": f"Bearer {key}"}
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as client:
                for form in FORMS:
                    shown[form] = conversation(peer, home, client, form)
                metrics = client.get("/metrics").text
            assert daemon.poll() is None
        everything = {
            "requests to the model": "\n".join(peer.asked),
            "spans": "\n".join(peer.spans),
            "metrics": metrics,
            **{f"the home: {kind}": text for kind, text in kept(home).items()},
        }
        for name, arguments in {
            "sessions export": ["sessions", "export"],
            "sessions list": ["sessions", "list", "--all"],
            "sessions search": ["sessions", "search", "key"],
            "cron list": ["cron", "list"],
            "insights": ["insights"],
            "logs": ["logs"],
        }.items():
            done = run(home, *arguments)
            everything[name] = done.stdout + done.stderr
    assert "as you know" in everything["sessions export"]
    assert "invoke_agent" in everything["spans"]
    assert "key is [redacted]" in everything["the home: memories"]
    assert '"prompt": "use [redacted]"' in everything["the home: state.db"]
    for form in FORMS:
        for sink, text in (everything | shown[form]).items():
            attempt(inner(form) not in squeezed(text), f"{form}: {sink}")
        attempt(searched(home, form) == "[]", f"{form}: the index of the transcripts")
