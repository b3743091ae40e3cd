"""A stand-in for Slack's wire, written from its documentation and driven by Slack's own SDK: web API and socket mode.

`SlackApi` listens on 127.0.0.1 while a `with` block lasts, in a thread and loop of its own. It checks tokens, holds
threads to their messages, delivers an envelope again that nobody confirms, and keeps what is uploaded.
"""

from __future__ import annotations

import itertools
import json
import threading
from typing import Any

from aiohttp import WSMsgType, web

from peers.threaded import WAIT_S, Threaded

__all__ = ["APP_TOKEN", "BOT_TOKEN", "SlackApi"]

BOT_TOKEN, APP_TOKEN = "xoxb-a-bot-token", "xapp-an-app-token"
ME = "UHERMES"
USERS = {"UANN": "Ann", "UBOB": "Bob", ME: "Hermes"}
CHANNELS = {
    "DANN": {"id": "DANN", "is_im": True, "user": "UANN"},
    "CTEAM": {"id": "CTEAM", "name": "team", "is_channel": True},
    "CGONE": {"id": "CGONE", "name": "gone", "is_archived": True},
}


class SlackApi(Threaded):
    """Attributes: `calls`: name and parameters of each call; `messages`: what stands in channels, by ts; `faults`: by
    method, taken from the front: an error of Slack's, or a status; `files`: what was uploaded or can be fetched, by id;
    `opened`: how often a socket was opened; `confirmed`: envelopes that were confirmed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.messages: dict[str, dict[str, Any]] = {}
        self.faults: list[tuple[str, str | int]] = []
        self.files: dict[str, bytes] = {}
        self.opened = 0
        self.confirmed: list[str] = []
        self._numbers = itertools.count(1)
        self._socket: web.WebSocketResponse | None = None
        self._has_socket = threading.Event()

    @property
    def url(self) -> str:
        """The base address of the web API."""
        return f"http://{self.address}/api/"

    def add_routes(self, app: web.Application) -> None:
        app.router.add_route("*", "/api/{method}", self._call)
        app.router.add_post("/upload/{id}", self._upload)
        app.router.add_get("/files/{id}", self._file)
        app.router.add_get("/socket", self._connected)

    # -- people --------------------------------------------------------------------------------------------------

    def say(self, channel: str, user: str, text: str = "", **more: Any) -> str:
        """Let somebody write; return the message's ts."""
        ts = self._ts()
        kind = "im" if CHANNELS[channel].get("is_im") else "channel"
        event = {
            "type": "message",
            "channel": channel,
            "channel_type": kind,
            "user": user,
            "text": text,
            "ts": ts,
            **more,
        }
        self.messages[ts] = event
        self.deliver("events_api", {"type": "event_callback", "event": event, "team_id": "T1"})
        if f"<@{ME}>" in text:
            mention = {**event, "type": "app_mention"}
            mention.pop("channel_type")
            self.deliver("events_api", {"type": "event_callback", "event": mention, "team_id": "T1"})
        return ts

    def press(self, ts: str, user: str, label: str) -> None:
        """Let somebody press a button."""
        message = self.messages[ts]
        elements = next(block["elements"] for block in message["blocks"] if block["type"] == "actions")
        button = next(one for one in elements if one["text"]["text"] == label)
        action = {**button, "type": "button", "block_id": "b", "action_ts": self._ts()}
        channel = {"id": message["channel"], "name": "x"}
        who = {"id": user, "name": USERS[user].lower()}
        body = {"type": "block_actions", "user": who, "channel": channel, "message": message, "actions": [action]}
        self.deliver("interactive", body)

    def deliver(self, kind: str, payload: Any, envelope: str = "") -> str:
        """Put an envelope onto the socket, and return its id."""
        envelope = envelope or f"e{next(self._numbers)}"
        self.emit({"type": kind, "envelope_id": envelope, "payload": payload, "accepts_response_payload": False})
        return envelope

    def emit(self, body: Any) -> None:
        """Put something onto the socket; waits until there is one."""
        assert self._has_socket.wait(WAIT_S)

        async def send() -> None:
            assert self._socket is not None
            await self._socket.send_str(json.dumps(body))

        self.on_loop(send())

    def drop(self) -> None:
        """Cut the socket."""
        socket = self._socket
        assert socket is not None
        self._has_socket.clear()

        async def cut() -> None:
            await socket.close()

        self.on_loop(cut())

    def sent(self, *methods: str) -> list[dict[str, Any]]:
        """Return the parameters of the calls of these methods."""
        return [params for name, params in self.calls if name in methods]

    # -- the wire ------------------------------------------------------------------------------------------------

    def _ts(self) -> str:
        return f"1790000000.{next(self._numbers):06d}"

    async def _connected(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.opened += 1
        await socket.send_str(json.dumps({"type": "hello", "num_connections": 1, "debug_info": {}}))
        self._socket = socket
        self._has_socket.set()
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                self.confirmed.append(json.loads(message.data)["envelope_id"])
        return socket

    async def _call(self, request: web.Request) -> web.Response:
        method = request.match_info["method"]
        params: dict[str, Any] = {**request.query}
        if request.content_type == "application/json":
            params |= await request.json()
        else:
            params |= {name: _plain(value) for name, value in (await request.post()).items()}
        wanted = APP_TOKEN if method == "apps.connections.open" else BOT_TOKEN
        if request.headers.get("authorization") != f"Bearer {wanted}":
            return web.json_response({"ok": False, "error": "invalid_auth"})
        for at, (name, fault) in enumerate(self.faults):
            if name == method:
                del self.faults[at]
                if isinstance(fault, int):
                    return web.Response(status=fault, text="bad gateway")
                limited = fault == "ratelimited"
                headers = {"Retry-After": "7"} if limited else {}
                return web.json_response({"ok": False, "error": fault}, status=429 if limited else 200, headers=headers)
        self.calls.append((method, params))
        return web.json_response(self._answer(method, params))

    def _answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        channel = CHANNELS.get(str(params.get("channel") or params.get("channel_id") or "DANN"))
        if channel is None or channel.get("is_archived"):
            return {"ok": False, "error": "is_archived" if channel else "channel_not_found"}
        if method == "auth.test":
            return {"ok": True, "user_id": ME, "user": "hermes", "team_id": "T1", "bot_id": "B1"}
        if method == "apps.connections.open":
            return {"ok": True, "url": f"ws://{self.address}/socket"}
        if method == "users.info":
            name = USERS.get(params["user"])
            found = {"id": params["user"], "name": str(name).lower(), "profile": {"display_name": name}}
            return {"ok": True, "user": found} if name else {"ok": False, "error": "user_not_found"}
        if method == "conversations.info":
            return {"ok": True, "channel": channel}
        if method.startswith("chat."):
            return self._chat(method, params)
        if method == "files.getUploadURLExternal":
            self.files[f"F{next(self._numbers)}"] = b""
            name = list(self.files)[-1]
            return {"ok": True, "file_id": name, "upload_url": f"http://{self.address}/upload/{name}"}
        if method == "files.completeUploadExternal":
            return {
                "ok": True,
                "files": [{"id": one["id"], "title": one.get("title")} for one in _list(params["files"])],
            }
        return {"ok": True}

    def _chat(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        text = params.get("markdown_text") or params.get("text") or ""
        blocks = _list(params.get("blocks") or [])
        if method != "chat.delete" and not text and not blocks:
            return {"ok": False, "error": "no_text"}
        if len(params.get("markdown_text") or "") > 12_000 or len(text) > 40_000:
            return {"ok": False, "error": "msg_too_long"}
        if method in ("chat.update", "chat.delete"):
            message = self.messages.get(str(params["ts"]))
            if message is None or message["user"] != ME:
                return {"ok": False, "error": "message_not_found" if message is None else "cant_update_message"}
            if method == "chat.delete":
                del self.messages[str(params["ts"])]
            else:
                message |= {"text": text, "blocks": blocks}
            return {"ok": True, "ts": message["ts"], "channel": message["channel"]}
        thread = params.get("thread_ts")
        if thread and str(thread) not in self.messages:
            return {"ok": False, "error": "thread_not_found"}
        ts = self._ts()
        message = {"ts": ts, "channel": params["channel"], "user": ME, "text": text, "blocks": blocks}
        if method == "chat.postMessage":
            self.messages[ts] = {**message, **({"thread_ts": thread} if thread else {})}
        return {"ok": True, "ts": ts, "channel": params["channel"], "message": message}

    async def _upload(self, request: web.Request) -> web.Response:
        self.files[request.match_info["id"]] = await request.read()
        return web.Response(text="OK")

    async def _file(self, request: web.Request) -> web.Response:
        if request.headers.get("authorization") != f"Bearer {BOT_TOKEN}":
            return web.Response(text="<html>log in</html>", content_type="text/html")
        return web.Response(body=self.files[request.match_info["id"]], content_type="application/octet-stream")


def _plain(value: Any) -> Any:
    return value if isinstance(value, str) else str(value)


def _list(value: Any) -> list[Any]:
    return list(json.loads(value)) if isinstance(value, str) else list(value)
