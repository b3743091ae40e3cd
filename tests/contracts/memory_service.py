"""A memory service that keeps everything in memory: the other end of the bundled `http-memory`."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

__all__ = ["MemoryService"]


class MemoryService(ThreadingHTTPServer):
    """The API of docs/operator/memory-http.md."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.memories: dict[str, tuple[str, str]] = {}
        """User and text, by id."""
        self.seen: list[tuple[str, str, str, Any]] = []
        """Method, path, authorization, body of each request."""
        self.answer: tuple[int, bytes] | None = None
        """Status and body that every request gets."""
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def respond(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        parts = urlsplit(path)
        if (method, parts.path) == ("POST", "/v1/recall"):
            words = {word.strip("?.,") for word in body["query"].lower().split()}
            found = [
                {"id": number, "text": text}
                for number, (user, text) in self.memories.items()
                if user == body["user"] and words & set(text.lower().split())
            ]
            return {"memories": found[: body["limit"]]}
        if (method, parts.path) == ("POST", "/v1/turns"):
            return {"id": self._keep(body["user"], body["messages"][0]["content"])}
        if (method, parts.path) == ("POST", "/v1/memories"):
            return {"id": self._keep(body["user"], body["text"])}
        if method == "DELETE" and parts.path.startswith("/v1/memories/"):
            number = parts.path.rpartition("/")[2]
            if self.memories.get(number, ("", ""))[0] == parse_qs(parts.query)["user"][0]:
                del self.memories[number]
            return {}
        raise KeyError(path)

    def _keep(self, user: str, text: str) -> str:
        number = str(len(self.memories) + 1)
        self.memories[number] = (user, text)
        return number


class _Handler(BaseHTTPRequestHandler):
    server: MemoryService

    def do_POST(self) -> None:
        self._do(json.loads(self.rfile.read(int(self.headers["content-length"]))))

    def do_DELETE(self) -> None:
        self._do({})

    def do_GET(self) -> None:
        self._do({})

    def _do(self, body: dict[str, Any]) -> None:
        self.server.seen.append((self.command, self.path, self.headers.get("authorization", ""), body))
        if self.server.answer is not None:
            status, text = self.server.answer
        else:
            status, text = 200, json.dumps(self.server.respond(self.command, self.path, body)).encode()
        self.send_response(status)
        if status == 302:
            self.send_header("location", "/elsewhere")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args: Any) -> None: ...
