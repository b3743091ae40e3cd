"""A model that answers at once, and a chat service that a platform plugin talks to. They outlive every daemon."""

from __future__ import annotations

import base64
import contextlib
import json
import random
import re
import struct
import threading
from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["ADAPTER", "Model", "Service", "serving"]

WORD = re.compile(r"\b[a-z]\d+\.\d+\b")
"""What each message of a test says: its conversation and its number."""

ADAPTER = """
import asyncio, json, urllib.request

from gateway.platforms.base import BasePlatformAdapter, MessageEvent, SendResult
from gateway.config import Platform


class Ledger(BasePlatformAdapter):
    idempotent_sends = True

    def __init__(self, config):
        super().__init__(config, Platform("ledger"))

    def _ask(self, path, value):
        request = urllib.request.Request("{address}" + path, json.dumps(value).encode())
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.loads(answer.read())

    async def connect(self, *, is_reconnect=False):
        self._mark_connected()
        self.polling = asyncio.create_task(self._poll())
        return True

    async def disconnect(self):
        self.polling.cancel()
        self._mark_disconnected()

    async def _poll(self):
        while True:
            try:
                for one in await asyncio.to_thread(self._ask, "/next", {{}}):
                    source = self.build_source(one["chat"], user_id="ann", user_name="Ann")
                    event = MessageEvent(text=one["text"], source=source, message_id=one["id"])
                    await self.handle_message(event)
                    await asyncio.to_thread(self._ask, "/acknowledge", {{"id": one["id"]}})
            except Exception:  # also that nothing can be stored now: it is not acknowledged, and comes again
                await asyncio.sleep(0.05)

    async def send(self, chat_id, content, reply_to=None, metadata=None):
        key = (metadata or {{}}).get("delivery_key", "")
        try:
            said = await asyncio.to_thread(self._ask, "/send", {{"chat": chat_id, "text": content, "key": key}})
        except OSError as exc:
            return SendResult(False, error=f"timed out or lost: {{exc}}", error_kind="unknown")
        return SendResult(True, message_id=said["id"])


def register(ctx):
    ctx.register_platform("ledger", "Ledger", lambda config: Ledger(config), lambda: True)
"""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answer: Any

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        kind, data = self.answer(self.path, body)
        if data is None:  # taken, and never answered
            self.close_connection = True
            return
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A daemon that was killed left in the middle of a request."""


class Model:
    """Answers each message with its own word."""

    def __init__(self) -> None:
        self.held: list[str] = []
        """The words of the requests that it hangs on."""
        self._slow = ""
        self._go_on = threading.Event()
        self._go_on.set()

    def hangs_for(self, conversation: str) -> None:
        """Answer nothing of a conversation from now on."""
        self._go_on.clear()
        self._slow = conversation

    def let_go(self) -> None:
        """Answer everything again."""
        self._slow = ""
        self._go_on.set()

    def __call__(self, path: str, body: Any) -> tuple[str, bytes | None]:
        if path.endswith("/embeddings"):
            return "application/json", json.dumps(_embeddings(body)).encode()
        said = [str(m.get("content")) for m in body["messages"] if m["role"] == "user"]
        word = next((found[-1] for text in reversed(said) if (found := WORD.findall(text))), "nothing")
        if self._slow and word.startswith(f"{self._slow}."):
            self.held.append(word)
            self._go_on.wait()
        chunk = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "instant"}
        delta = {**chunk, "choices": [{"index": 0, "delta": {"role": "assistant", "content": f"echo {word}"}}]}
        end = {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        lines = [json.dumps(delta), json.dumps(end), "[DONE]"]
        return "text/event-stream", "".join(f"data: {line}\n\n" for line in lines).encode()


def _embeddings(body: Any) -> dict[str, Any]:
    """Return embeddings of each text in OpenAI's form, all of them the same."""
    texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
    vector = [0.5] * min(body.get("dimensions") or 4, 4096)
    if body.get("encoding_format") == "base64":
        shown: Any = base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
    else:
        shown = vector
    data = [{"object": "embedding", "index": index, "embedding": shown} for index, _ in enumerate(texts)]
    return {"object": "list", "model": body["model"], "data": data, "usage": {"prompt_tokens": 1, "total_tokens": 1}}


class Service:
    """A chat service: it hands over what people write until that is acknowledged, and drops a second send of a key.

    Args:
        drops: how often a send is taken and never confirmed, or lost on the way, from 0 to 1.
    """

    def __init__(self, drops: float, seed: int) -> None:
        self.seen: dict[str, list[str]] = defaultdict(list)
        self.keys: set[str] = set()
        self.changed = threading.Condition()
        self._waiting: list[dict[str, str]] = []
        self._drops = drops
        self._random = random.Random(seed)

    def write(self, chat: str, text: str) -> None:
        """Somebody writes something."""
        with self.changed:
            self._waiting.append({"chat": chat, "text": text, "id": f"m-{text}"})
            self.changed.notify_all()

    def hear(self, chat: str, text: str) -> None:
        """Somebody was answered elsewhere."""
        with self.changed:
            self.seen[chat].append(text)
            self.changed.notify_all()

    def __call__(self, path: str, body: Any) -> tuple[str, bytes | None]:
        with self.changed:
            if path == "/next":
                self.changed.wait_for(lambda: self._waiting, 2)
                value: Any = list(self._waiting)
            elif path == "/acknowledge":
                self._waiting = [one for one in self._waiting if one["id"] != body["id"]]
                value = {}
            else:
                chance = self._random.random()
                if chance < self._drops / 2:  # lost on the way
                    return "", None
                if body["key"] not in self.keys:
                    self.keys.add(body["key"])
                    self.seen[body["chat"]].append(body["text"])
                    self.changed.notify_all()
                if chance < self._drops:  # it is there, and nobody says so
                    return "", None
                value = {"id": body["key"]}
            return "application/json", json.dumps(value).encode()


@contextlib.contextmanager
def serving(answer: Any) -> Iterator[str]:
    """Serve while the block lasts; yield the address."""
    handler = type("Handler", (_Handler,), {"answer": staticmethod(answer)})
    server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
