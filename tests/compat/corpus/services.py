"""Stand-ins for the services that plugins speak to: each keeps what it is told, and speaks that service's own wire."""

from __future__ import annotations

import fcntl
import json
import re
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

__all__ = ["ANSWER", "SERVICES", "Service", "loopback_up"]

KEY = "dummy-key-0123456789abcdef"
ANSWER = "This came through the service."
CREATED = "2026-01-02T03:04:05+00:00"

Answer = Callable[["Service", Mapping[str, Any]], Any]
"""Returns what a request with this body (or query) is answered with, as JSON; a list of it is a stream of events."""


class Service:
    """One service on a port of this machine; it answers those who show the key."""

    def __init__(self, kind: str, port: int) -> None:
        self.texts: list[str] = []
        self.asked: list[str] = []
        """Method and path of each request."""
        self.bodies: list[Mapping[str, Any]] = []
        routes, service = SERVICES[kind], self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                address = urlsplit(self.path)
                length = int(self.headers.get("Content-Length") or 0)
                query = {name: values[0] for name, values in parse_qs(address.query).items()}
                body = json.loads(self.rfile.read(length) or b"{}") | query
                line = f"{self.command} {address.path}"
                service.asked.append(line)
                service.bodies.append(body)
                answer = next((a for pattern, a in routes.items() if re.fullmatch(pattern, line)), None)
                if KEY not in (self.headers.get("Authorization") or self.headers.get("X-API-Key") or ""):
                    self._send(401, {"error": "no key"})
                elif answer is None:
                    self._send(404, {"error": line})
                else:
                    self._send(200, answer(service, body))

            do_GET = do_POST = do_DELETE = _answer

            def _send(self, status: int, value: Any) -> None:
                stream = isinstance(value, list)
                lines = [f"data: {json.dumps(item)}\n\n" for item in value] if stream else [json.dumps(value)]
                data = "".join([*lines, "data: [DONE]\n\n"] if stream else lines).encode()
                self.send_response(status)
                self.send_header("Content-Type", "text/event-stream" if stream else "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def keep(self, text: str) -> str:
        """Keep a text and return its id."""
        self.texts.append(text)
        return f"m{len(self.texts)}"

    def found(self, query: str) -> list[dict[str, Any]]:
        """Return the memories that share a word with a query."""
        words = set(re.findall(r"\w{4,}", query.lower()))
        return [
            {"id": f"m{number}", "content": text, "score": 0.9, "created_at": CREATED, "user_id": "u"}
            for number, text in enumerate(self.texts, 1)
            if query == "*" or words & set(re.findall(r"\w{4,}", text.lower()))
        ]


def _envelope(data: Any) -> dict[str, Any]:
    return {"success": True, "data": data}


def _add_messages(service: Service, body: Mapping[str, Any]) -> dict[str, Any]:
    said = [service.keep(m["content"]) for m in body["messages"] if m["role"] == "user"]
    return _envelope({"results": [{"id": number, "event": "ADD"} for number in said]})


def _ingest(service: Service, body: Mapping[str, Any]) -> dict[str, Any]:
    number = service.keep(str(body["conversation"]))
    return {"stored_memory_ids": [number], "updated_memory_ids": [], "episode_id": "e1", "status": "completed"}


def _package(service: Service, body: Mapping[str, Any]) -> dict[str, Any]:
    found = service.found(body["query"])
    text = "\n".join(memory["content"] for memory in found)
    return {
        "memories": found,
        "count": len(found),
        "injection_text": text,
        "estimated_context_tokens": 10,
        "budget_constrained": False,
    }


def _recall(service: Service, body: Mapping[str, Any]) -> dict[str, Any]:
    found = service.found(body["query"])
    return {"items": found, "context_text": "\n".join(memory["content"] for memory in found)}


def _chat(service: Service, body: Mapping[str, Any]) -> Any:
    """Ask for a tool first, then answer."""
    usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "todo", "arguments": "{}"}}
    asked = any(message["role"] == "tool" for message in body["messages"])
    delta = {"content": ANSWER} if asked else {"tool_calls": [call]}
    common = {"id": "r1", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
    end = {"index": 0, "delta": {}, "finish_reason": "stop" if asked else "tool_calls"}
    return [
        {**common, "choices": [{"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": None}]},
        {**common, "choices": [end], "usage": usage},
    ]


def _health(service: Service, body: Mapping[str, Any]) -> dict[str, Any]:
    return {"status": "ok"}


_LAKE = "/openapi/memorylake/api/v[12]/projects/[^/]+"
SERVICES: dict[str, dict[str, Answer]] = {
    "memorylake": {
        f"GET {_LAKE}": lambda s, b: _envelope({"name": "p", "industries": []}),
        f"POST {_LAKE}/memories/search": lambda s, b: _envelope({"results": s.found(b["query"])}),
        f"POST {_LAKE}/memories": _add_messages,
        f"GET {_LAKE}/memories": lambda s, b: _envelope({"items": s.found("*")}),
        f"GET {_LAKE}/memories/conflicts": lambda s, b: _envelope({"items": []}),
        f"POST {_LAKE}/documents/search": lambda s, b: _envelope({"count": 0, "results": []}),
    },
    "xmemo": {
        "GET /health": _health,
        "POST /v1/remember": lambda s, b: {"id": s.keep(b["content"]), "status": "stored"},
        "POST /v1/recall/context": _recall,
        "POST /v1/restart/snapshot": lambda s, b: {"id": "r1", "status": "stored"},
        "GET /v1/memories/search": lambda s, b: {"results": s.found(b["query"])},
    },
    "atomicmemory": {
        "GET /v1/memories/health": _health,
        "POST /v1/memories/ingest(/quick)?": _ingest,
        "POST /v1/memories/search/fast": lambda s, b: {"memories": s.found(b["query"]), "count": 1},
        "POST /v1/memories/search": _package,
        "GET /v1/memories/list": lambda s, b: {"memories": s.found("*"), "count": len(s.texts)},
    },
    "chat": {
        "POST /v1/chat/completions": _chat,
        "GET /v1/models": lambda s, b: {"object": "list", "data": [{"id": "a-model", "object": "model"}]},
    },
}
"""By service: patterns of method and path, and what is answered."""


def loopback_up() -> None:
    """Let a network namespace of its own reach itself; elsewhere it does already."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        flags = struct.unpack("16sh", fcntl.ioctl(probe, 0x8913, struct.pack("16sh", b"lo", 0)))[1]  # SIOCGIFFLAGS
        if not flags & 1:
            fcntl.ioctl(probe, 0x8914, struct.pack("16sh", b"lo", flags | 1))  # SIOCSIFFLAGS, IFF_UP
