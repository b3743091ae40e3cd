"""Stand-ins for the services that published platform plugins speak to, written from what goes over their wire.

Each has `hear(text)`: somebody writes to the agent; and `said()`: what the agent wrote, in order. They are strict about
credentials and about what they are sent.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Callable
from typing import Any

from aiohttp import WSMsgType, web

from peers.threaded import Threaded

__all__ = ["AgentRooms", "CommunityApi", "MessageRelay", "Service"]

LONGEST_S = 40.0
NOW = "2026-10-01T12:00:00Z"


class Service(Threaded):
    """Attributes: `complaints`: what was not as the service wants it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.complaints: list[str] = []
        self._said: list[str] = []
        self._changed = threading.Condition()
        self._numbers = itertools.count(1)

    def hear(self, text: str) -> None:
        """Let somebody write to the agent."""
        raise NotImplementedError

    def said(self) -> list[str]:
        """Return what the agent wrote, as it stands now."""
        with self._changed:
            return list(self._said)

    def until(self, holds: Callable[[list[str]], bool]) -> None:
        """Wait until what the agent wrote is as it should be.

        Raises:
            AssertionError: it is not.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: holds(self._said), LONGEST_S):
                raise AssertionError(f"the agent wrote {self._said}; complaints: {self.complaints}")

    def _say(self, text: str, at: int | None = None) -> int:
        """Keep what the agent wrote, in place of an earlier text where `at` says so; return its place."""
        with self._changed:
            if at is None:
                self._said.append(text)
                at = len(self._said) - 1
            else:
                self._said[at] = text
            self._changed.notify_all()
            return at


class CommunityApi(Service):
    """A community's messages: calls by POST, updates by long poll (dev.vk.com, API 5.199)."""

    TOKEN, GROUP, PERSON = "vk1.a.token", 4711, 101

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._updates: list[dict[str, Any]] = []
        self._news: asyncio.Event | None = None
        self._by_random: dict[str, int] = {}

    def add_routes(self, app: web.Application) -> None:
        app.router.add_post("/method/{name}", self._call)
        app.router.add_get("/longpoll", self._poll)

    def hear(self, text: str) -> None:
        number = next(self._numbers)
        message = {"id": number, "conversation_message_id": number, "date": 1790000000, "peer_id": self.PERSON,
                   "from_id": self.PERSON, "text": text, "attachments": [], "fwd_messages": [], "out": 0}  # fmt: skip
        update = {"type": "message_new", "event_id": f"e{number}", "v": "5.199", "group_id": self.GROUP}

        async def put() -> None:
            self._updates.append({**update, "object": {"message": message, "client_info": {"keyboard": True}}})
            if self._news is not None:
                self._news.set()

        self.on_loop(put())

    async def _poll(self, request: web.Request) -> web.Response:
        if request.query["act"] != "a_check" or request.query["key"] != "lease":
            return web.json_response({"failed": 2})
        at = int(request.query["ts"])
        if at >= len(self._updates):
            self._news = asyncio.Event()
            try:
                await asyncio.wait_for(self._news.wait(), float(request.query["wait"]))
            except TimeoutError:
                return web.json_response({"ts": str(at), "updates": []})
        return web.json_response({"ts": str(len(self._updates)), "updates": self._updates[at:]})

    async def _call(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        if form.get("access_token") != self.TOKEN or form.get("v") != "5.199":
            return web.json_response({"error": {"error_code": 5, "error_msg": "User authorization failed"}})
        name = request.match_info["name"]
        try:
            return web.json_response({"response": self._answer(name, form)})
        except KeyError as exc:
            self.complaints.append(f"{name} {form}: {exc}")
            return web.json_response({"error": {"error_code": 100, "error_msg": f"One of the parameters: {exc}"}})

    def _answer(self, name: str, form: dict[str, str]) -> Any:
        if name == "groups.getById":
            return {"groups": [{"id": self.GROUP, "name": "Us", "type": "page", "is_closed": 0}], "profiles": []}
        if name == "groups.getLongPollServer":
            return {"key": "lease", "server": "https://lp.vk.com/longpoll", "ts": "0"}
        if name == "users.get":
            return [{"id": self.PERSON, "first_name": "Ann", "last_name": "Lee"}]
        if name == "messages.setActivity":
            return 1
        if name == "messages.send":
            random = form["random_id"]
            if form["peer_id"] != str(self.PERSON) or len(form["message"]) > 4096:
                raise KeyError("peer_id")
            if random == "0" or random not in self._by_random:  # one for each random_id
                self._by_random[random] = self._say(form["message"])
            return 1000 + self._by_random[random]
        if name == "messages.edit":
            self._say(form["message"], int(form["message_id"]) - 1000)
            return 1
        raise KeyError(name)


class AgentRooms(Service):
    """Rooms of agents and people: calls in REST, events over a Phoenix channel (protocol 2.0.0)."""

    KEY, AGENT, OWNER, ROOM = "band-key", "11111111-1111-4111-8111-111111111111", "owner-1", "room-1"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._socket: web.WebSocketResponse | None = None
        self._joined: dict[str, str] = {}
        self._in_room = threading.Event()
        self._marks: list[tuple[str, str]] = []

    def add_routes(self, app: web.Application) -> None:
        app.router.add_get("/api/v1/socket/websocket", self._channel)
        app.router.add_route("*", "/api/v1/agent/{path:.*}", self._call)

    @property
    def marks(self) -> list[tuple[str, str]]:
        """What the agent said of messages: `processing`, `processed`, with the message's id."""
        with self._changed:
            return list(self._marks)

    def hear(self, text: str) -> None:
        assert self._in_room.wait(LONGEST_S), "the agent did not enter the room"
        names = {"mentions": [{"id": self.AGENT, "handle": "owner/hermes"}], "status": "sent"}
        about = {
            "id": f"m{next(self._numbers)}",
            "message_type": "text",
            "sender_id": self.OWNER,
            "sender_type": "User",
        }
        times = {"inserted_at": NOW, "updated_at": NOW, "sender_name": "Ann", "chat_room_id": self.ROOM}
        content = f"@[[{self.AGENT}]] {text}"
        topic = f"chat_room:{self.ROOM}"
        payload = {**about, **times, "content": content, "metadata": names}
        self.on_loop(self._write(self._joined[topic], None, topic, "message_created", payload))

    async def _channel(self, request: web.Request) -> web.WebSocketResponse:
        known = request.headers.get("x-api-key") == self.KEY or request.query.get("api_key") == self.KEY
        if not known or request.query.get("vsn") != "2.0.0":
            raise web.HTTPForbidden
        self._socket = socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for frame in socket:
            if frame.type is not WSMsgType.TEXT:
                continue
            join, ref, topic, event, _ = json.loads(frame.data)
            if event == "phx_join":
                self._joined[topic] = join
            await self._write(join, ref, topic, "phx_reply", {"status": "ok", "response": {}})
            if topic == f"chat_room:{self.ROOM}":
                self._in_room.set()
        return socket

    async def _write(self, *frame: Any) -> None:
        assert self._socket is not None
        await self._socket.send_str(json.dumps(frame))

    async def _call(self, request: web.Request) -> web.Response:
        if request.headers.get("x-api-key") != self.KEY:
            return web.json_response({"error": {"code": "unauthorized", "message": "no"}}, status=401)
        path, body = request.match_info["path"], await request.json() if request.can_read_body else {}
        answer = self._answer(request.method, path, body)
        if answer is None:
            return web.Response(status=204)
        return web.json_response(answer, status=201 if request.method == "POST" and path.endswith("messages") else 200)

    def _answer(self, method: str, path: str, body: Any) -> Any:
        times = {"inserted_at": NOW, "updated_at": NOW}
        if path == "me":
            about = {"id": self.AGENT, "handle": "owner/hermes", "name": "Hermes", "owner_uuid": self.OWNER}
            return {"data": {**about, **times, "is_external": True}}
        if path == "chats":
            room = {"id": self.ROOM if method == "GET" else "hub-1", "title": "Team", "task_id": None, **times}
            pages = {"page": 1, "page_size": 20, "total_count": 1, "total_pages": 1}
            return {"data": [room], "metadata": pages} if method == "GET" else {"data": room}
        if path.endswith("/participants"):
            ann = {
                "id": self.OWNER,
                "name": "Ann",
                "handle": "ann",
                "role": "owner",
                "status": "active",
                "type": "User",
            }
            return {"data": [ann] if method == "GET" else ann}
        if path.endswith("/messages") and method == "POST":
            return self._posted(path.split("/")[1], body["message"])
        if path.endswith("/messages/next"):
            return None
        if path.endswith(("/processing", "/processed", "/failed")):
            with self._changed:
                self._marks.append((path.rpartition("/")[2], path.split("/")[3]))
                self._changed.notify_all()
            mark = {"id": path.split("/")[3], "status": path.rpartition("/")[2]}
            return {"data": {**mark, "attempt_number": 1, "success": True}}
        if path.endswith(("/context", "/messages")):
            return {"data": [], "metadata": {"page": 1, "page_size": 20, "total_count": 0, "total_pages": 1}}
        return {"data": {}}

    def _posted(self, room: str, message: Any) -> Any:
        if not message.get("mentions"):
            self.complaints.append(f"a message names nobody: {message}")
        if room == self.ROOM:
            self._say(message["content"])
        people = [{"id": one["id"], "handle": one["id"], "name": "Ann"} for one in message.get("mentions") or ()]
        return {"data": {"id": f"own{next(self._numbers)}", "recipients": people, "success": True}}


class MessageRelay(Service):
    """A relay between an app on a phone and the agent: frames in JSON over one socket for each key."""

    KEY, PERSON = "app-key", "ann"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._socket: web.WebSocketResponse | None = None
        self._has_socket = threading.Event()
        self._bubbles: dict[str, int] = {}

    def add_routes(self, app: web.Application) -> None:
        app.router.add_get("/message/messages/ws/plugin", self._tunnel)

    def hear(self, text: str) -> None:
        assert self._has_socket.wait(LONGEST_S), "the agent did not come"
        frame = {"event": "app.message", "messageId": f"a{next(self._numbers)}", "userId": self.PERSON, "text": text,
                 "conversationId": "main", "clientLabel": "app", "sessionKey": "main", "timestamp": NOW}  # fmt: skip

        async def send() -> None:
            assert self._socket is not None
            await self._socket.send_str(json.dumps(frame))

        self.on_loop(send())

    async def _tunnel(self, request: web.Request) -> web.WebSocketResponse:
        if request.query.get("apiKey") != self.KEY:
            raise web.HTTPUnauthorized
        self._socket = socket = web.WebSocketResponse()
        await socket.prepare(request)
        self._has_socket.set()
        async for frame in socket:
            if frame.type is not WSMsgType.TEXT:
                continue
            if frame.data == "ping":
                await socket.send_str("pong")
                continue
            said = json.loads(frame.data)
            if said.get("event") in ("app.reply", "app.message.update"):
                if said["userId"] != self.PERSON:
                    self.complaints.append(f"to somebody else: {said}")
                number = said["messageId"]
                self._bubbles[number] = self._say(said["text"], self._bubbles.get(number))
        return socket
