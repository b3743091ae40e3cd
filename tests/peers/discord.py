"""A stand-in for Discord's wire, written from its documentation and driven by discord.py: HTTP calls and gateway.

`DiscordApi` listens on 127.0.0.1 while a `with` block lasts, in a thread and loop of its own. It checks tokens, intents
and what is sent, shows one message for one nonce, and delivers after a resume what a connection missed.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
import zlib
from typing import Any

from aiohttp import WSMsgType, web

from peers.threaded import WAIT_S, Threaded

__all__ = ["ANN", "BOB", "DIRECT", "GUILD", "ME", "TEAM", "TOKEN", "DiscordApi"]

TOKEN = "a-bot-token"
GUILD, TEAM, DIRECT, APP = 100, 101, 102, 900
ME, ANN, BOB = 900, 201, 202
NAMES = {ME: "Hermes", ANN: "Ann", BOB: "Bob"}
MESSAGE_CONTENT = 1 << 15
EPOCH_MS = 1420070400000


class Refused(Exception):
    """An answer that is an error: status, Discord's code, text."""


class DiscordApi(Threaded):
    """Attributes: `calls`: method, path and body of each; `messages`: what stands in channels, by id; `files`: by name;
    `faults`: by pattern of method and path, taken from the front: a status, or the body of a 429; `commands`: the menu;
    `answers`: responses to interactions; `sessions`, `resumes`: how many; `intents`: what the bot asked for.
    """

    def __init__(self, *, content_allowed: bool = True) -> None:
        super().__init__()
        self.calls: list[tuple[str, str, Any]] = []
        self.messages: dict[str, dict[str, Any]] = {}
        self.faults: list[tuple[str, Any]] = []
        self.files: dict[str, bytes] = {}
        self.commands: list[dict[str, Any]] = []
        self.answers: list[dict[str, Any]] = []
        self.reactions: list[tuple[str, str, str]] = []
        self.typing: list[str] = []
        self.sessions = self.resumes = self.intents = 0
        self._allowed = content_allowed
        self._channels: dict[str, dict[str, Any]] = {
            str(TEAM): {"id": str(TEAM), "type": 0, "guild_id": str(GUILD), "name": "team", "topic": "work"},
            str(DIRECT): {"id": str(DIRECT), "type": 1, "recipients": [user(ANN)]},
        }
        for channel in self._channels.values():
            channel.update(position=0, permission_overwrites=[], nsfw=False, parent_id=None, last_message_id=None)
        self._nonces: dict[str, str] = {}
        self._numbers = itertools.count((1790000000000 - EPOCH_MS) << 22, 1 << 22)
        self._sent: list[dict[str, Any]] = []
        self._socket: web.WebSocketResponse | None = None
        self._deflate: Any = None
        self._has_socket = threading.Event()

    @property
    def url(self) -> str:
        """The base address of the calls."""
        return f"http://{self.address}/api/v10"

    def add_routes(self, app: web.Application) -> None:
        app.router.add_route("*", "/api/v10/{path:.*}", self._call)
        app.router.add_get("/attachments/{name}", self._file)
        app.router.add_get("/", self._gateway)

    # -- people --------------------------------------------------------------------------------------------------

    def say(self, channel: int | str, who: int, text: str = "", *, deliver: bool = True, **more: Any) -> str:
        """Let somebody write; return the message's id. `deliver`: the bot is told."""
        made = self._message(str(channel), who, text, **more)
        if deliver:
            self.dispatch("MESSAGE_CREATE", self._shown(made))
        return str(made["id"])

    def press(self, message_id: str, who: int, label: str) -> None:
        """Let somebody press a button."""
        message = self.messages[message_id]
        button = next(one for row in message["components"] for one in row["components"] if one["label"] == label)
        data = {"custom_id": button["custom_id"], "component_type": 2}
        self._interact(3, message["channel_id"], who, data, message=self._shown(message))

    def command(self, channel: int | str, who: int, name: str, rest: str = "") -> None:
        """Let somebody use a slash command."""
        options = [{"name": "rest", "type": 3, "value": rest}] if rest else []
        self._interact(2, str(channel), who, {"id": "1", "name": name, "type": 1, "options": options})

    def _interact(self, kind: int, channel: str, who: int, data: Any, **more: Any) -> None:
        place = self._channels[channel]
        person = {"member": member(who), "guild_id": str(GUILD)} if "guild_id" in place else {"user": user(who)}
        about = {"id": self._id(), "application_id": str(APP), "type": kind, "token": "t", "version": 1, "data": data}
        about |= {"channel": place, "channel_id": channel, "locale": "en-US", "entitlements": [], **person, **more}
        self.dispatch(
            "INTERACTION_CREATE",
            {**about, "authorizing_integration_owners": {}, "context": 0, "attachment_size_limit": 2**20},
        )

    def dispatch(self, event: str, data: Any) -> None:
        """Let something happen; a bot that is away is told when it resumes."""

        async def send() -> None:
            await self._event(event, data)

        self.on_loop(send())

    def emit(self, body: Any) -> None:
        """Put something onto the socket; waits until there is one."""
        assert self._has_socket.wait(WAIT_S)
        self.on_loop(self._write(body))

    def drop(self, code: int = 4000) -> None:
        """Cut the socket."""
        assert self._has_socket.wait(WAIT_S)
        socket = self._socket
        assert socket is not None

        async def cut() -> None:
            self._socket = None
            self._has_socket.clear()
            await socket.close(code=code)

        self.on_loop(cut())

    def said(self) -> list[dict[str, Any]]:
        """Return the messages of the bot."""
        return [one for one in self.messages.values() if one["author"]["id"] == str(ME)]

    # -- the gateway ---------------------------------------------------------------------------------------------

    async def _gateway(self, request: web.Request) -> web.WebSocketResponse:
        assert (request.query["v"], request.query["encoding"]) == ("10", "json")
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self._socket = socket
        self._deflate = zlib.compressobj() if request.query.get("compress") == "zlib-stream" else None
        await self._write({"op": 10, "d": {"heartbeat_interval": 41250}})
        async for message in socket:
            if message.type is not WSMsgType.TEXT:
                continue
            said = json.loads(message.data)
            if said["op"] == 1:
                await self._write({"op": 11})
            elif said["op"] == 2:
                await self._identify(socket, said["d"])
            elif said["op"] == 6:
                await self._resume(socket, said["d"])
        if self._socket is socket:
            self._socket = None
            self._has_socket.clear()
        return socket

    async def _identify(self, socket: web.WebSocketResponse, about: Any) -> None:
        if about["token"] != TOKEN:
            await socket.close(code=4004, message=b"Authentication failed.")
            return
        if about["intents"] & MESSAGE_CONTENT and not self._allowed:
            await socket.close(code=4014, message=b"Disallowed intent(s).")
            return
        self.intents, self.sessions, self._sent = about["intents"], self.sessions + 1, []
        address = f"ws://{self.address}/"
        ready = {"v": 10, "user": user(ME), "session_id": f"s{self.sessions}", "resume_gateway_url": address}
        guilds = [{"id": str(GUILD), "unavailable": True}]
        await self._event("READY", {**ready, "guilds": guilds, "application": {"id": str(APP), "flags": 0}})
        here = [one for one in self._channels.values() if one["type"] == 0]
        threads = [one for one in self._channels.values() if one["type"] == 11]
        about_us = {"id": str(GUILD), "name": "Guild", "owner_id": str(ANN), "roles": [EVERYONE], "member_count": 3}
        lists = {"emojis": [], "features": [], "stickers": [], "members": [member(ME)], "voice_states": []}
        levels = {"verification_level": 0, "default_message_notifications": 0, "explicit_content_filter": 0}
        rest = {
            "mfa_level": 0,
            "nsfw_level": 0,
            "premium_tier": 0,
            "preferred_locale": "en-US",
            "system_channel_flags": 0,
        }
        guild = {**about_us, **lists, **levels, **rest, "channels": here, "threads": threads, "presences": []}
        await self._event("GUILD_CREATE", guild)
        self._has_socket.set()

    async def _resume(self, socket: web.WebSocketResponse, about: Any) -> None:
        if about["token"] != TOKEN or about["session_id"] != f"s{self.sessions}":
            await self._write({"op": 9, "d": False})
            return
        self.resumes += 1
        for body in self._sent[about["seq"] :]:
            await self._write(body)
        await self._event("RESUMED", {"_trace": []})
        self._has_socket.set()

    async def _event(self, name: str, data: Any) -> None:
        self._sent.append({"op": 0, "t": name, "s": len(self._sent) + 1, "d": data})
        await self._write(self._sent[-1])

    async def _write(self, body: Any) -> None:
        socket, text = self._socket, json.dumps(body)
        if socket is None or socket.closed:
            return
        if self._deflate is None:
            await socket.send_str(text)
        else:
            await socket.send_bytes(self._deflate.compress(text.encode()) + self._deflate.flush(zlib.Z_SYNC_FLUSH))

    # -- the calls -----------------------------------------------------------------------------------------------

    async def _call(self, request: web.Request) -> web.Response:
        path = request.match_info["path"]
        if "/callback" not in path and request.headers.get("authorization") != f"Bot {TOKEN}":
            return _json({"message": "401: Unauthorized", "code": 0}, status=401)
        body = await self._body(request)
        for at, (pattern, fault) in enumerate(self.faults):
            if re.search(pattern, f"{request.method} {path}"):
                del self.faults[at]
                if isinstance(fault, dict):
                    headers = {"Via": "1.1 google", "Retry-After": str(fault["retry_after"])}
                    return _json(fault, status=429, headers=headers)
                if fault != "answer lost":
                    return _json({"message": "no", "code": 0}, status=fault)
                self._answer(request.method, path, body)
                return _json({"message": "no", "code": 0}, status=502)
        self.calls.append((request.method, path, body))
        try:
            answer = self._answer(request.method, path, body)
        except Refused as exc:
            status, code, text = exc.args
            return _json({"message": text, "code": code}, status=status)
        return web.Response(status=204) if answer is None else _json(answer)

    async def _body(self, request: web.Request) -> Any:
        if request.content_type == "multipart/form-data":
            form = await request.post()
            body = json.loads(str(form["payload_json"]))
            for number, about in enumerate(body.get("attachments") or ()):
                given = form[f"files[{number}]"]
                assert isinstance(given, web.FileField)
                self.files[about["filename"]] = given.file.read()
            return body
        return await request.json() if request.can_read_body else dict(request.query)

    def _answer(self, method: str, path: str, body: Any) -> Any:
        if path in ("gateway", "gateway/bot"):
            limits = {"total": 1000, "remaining": 999, "reset_after": 1, "max_concurrency": 1}
            return {"url": f"ws://{self.address}/", "shards": 1, "session_start_limit": limits}
        if path == "users/@me":
            return user(ME)
        if path == "oauth2/applications/@me":
            about = {"id": str(APP), "name": "Hermes", "description": "", "summary": "", "icon": None, "flags": 0}
            return {**about, "bot_public": True, "bot_require_code_grant": False, "verify_key": "", "owner": user(ANN)}
        if path == f"applications/{APP}/commands" and method == "PUT":
            return self._menu(body)
        if path.startswith("interactions/"):
            self.answers.append(body)
            return {"interaction": {"id": path.split("/")[1], "type": 3}} if method == "POST" else None
        found = re.fullmatch(r"channels/(\d+)(?:/(messages|typing|threads))?(?:/(\d+))?(?:/(.*))?", path)
        if not found:
            raise Refused(404, 0, "404: Not Found")
        channel, what, message, rest = found.groups()
        if channel not in self._channels:
            raise Refused(404, 10003, "Unknown Channel")
        if what is None:
            return self._renamed(channel, body) if method == "PATCH" else self._channels[channel]
        if what == "typing":
            self.typing.append(channel)
            return None
        if what == "threads" or rest == "threads":
            return self._open_thread(channel, message, body)
        return self._of_messages(method, channel, message, rest or "", body)

    def _renamed(self, channel: str, body: Any) -> Any:
        if not 1 <= len(body["name"]) <= 100:
            raise Refused(400, 50035, "Invalid Form Body: name")
        self._channels[channel]["name"] = body["name"]
        return self._channels[channel]

    def _of_messages(self, method: str, channel: str, message: str | None, rest: str, body: Any) -> Any:
        if message is None and method == "GET":
            after = int(body.get("after") or 0)
            here = [one for one in self.messages.values() if one["channel_id"] == channel and int(one["id"]) > after]
            return [self._shown(one, guild=False) for one in here[: int(body["limit"])][::-1]]
        if message is None:
            return self._post(channel, body)
        there = self.messages.get(message)
        if there is None or there["channel_id"] != channel:
            raise Refused(404, 10008, "Unknown Message")
        if rest.startswith("reactions/"):
            self.reactions.append((method, message, rest.split("/")[1]))
            return None
        if there["author"]["id"] != str(ME):
            raise Refused(403, 50005, "Cannot edit a message authored by another user")
        if method == "DELETE":
            del self.messages[message]
            return None
        self._check(body, files=False)
        there |= {key: body[key] for key in ("content", "components") if key in body}
        return self._shown(there, guild=False)

    def _post(self, channel: str, body: Any) -> Any:
        nonce = body.get("nonce")
        if nonce is not None and (len(str(nonce)) > 25 or body.get("enforce_nonce") is not True):
            raise Refused(400, 50035, "Invalid Form Body: nonce")
        if nonce in self._nonces:
            return self._shown(self.messages[self._nonces[nonce]], guild=False)
        self._check(body, files=bool(body.get("attachments")))
        answered = body.get("message_reference")
        if answered is not None:
            whole = str(answered.get("message_id")) in self.messages and str(answered.get("channel_id")) == channel
            if not whole and answered.get("fail_if_not_exists", True):
                raise Refused(400, 50035, "Invalid Form Body: message_reference: Unknown message")
        mentions = body.get("allowed_mentions") or {"parse": ["everyone", "roles", "users"]}
        assert "everyone" not in mentions["parse"], "the bot may never call everybody"
        attachments = [
            {
                "id": str(n),
                "filename": one["filename"],
                "size": len(self.files[one["filename"]]),
                "url": "x",
                "proxy_url": "x",
            }
            for n, one in enumerate(body.get("attachments") or ())
        ]
        made = self._message(channel, ME, body.get("content") or "", components=body.get("components") or [],
                             attachments=attachments, message_reference=answered)  # fmt: skip
        if nonce is not None:
            self._nonces[nonce] = made["id"]
        return self._shown(made, guild=False)

    def _check(self, body: Any, *, files: bool) -> None:
        text = body.get("content")
        if not text and not files and not body.get("components"):
            raise Refused(400, 50006, "Cannot send an empty message")
        if len((text or "").encode("utf-16-le")) // 2 > 2000:
            raise Refused(400, 50035, "Invalid Form Body: content: Must be 2000 or fewer in length.")
        rows, ids = body.get("components") or [], set()
        if len(rows) > 5:
            raise Refused(400, 50035, "Invalid Form Body: components")
        for row in rows:
            if row["type"] != 1 or not 1 <= len(row["components"]) <= 5:
                raise Refused(400, 50035, "Invalid Form Body: components")
            for one in row["components"]:
                valid = one["type"] == 2 and 1 <= len(one["label"]) <= 80 and 1 <= len(one["custom_id"]) <= 100
                if not valid or one["custom_id"] in ids:
                    raise Refused(400, 50035, "Invalid Form Body: button")
                ids.add(one["custom_id"])

    def _menu(self, body: Any) -> Any:
        for one in body:
            if not re.fullmatch(r"[-_a-z0-9]{1,32}", one["name"]) or not 1 <= len(one["description"]) <= 100:
                raise Refused(400, 50035, f"Invalid Form Body: {one}")
        if len(body) > 100 or len({one["name"] for one in body}) < len(body):
            raise Refused(400, 30032, "Maximum number of application commands reached")
        self.commands = body
        return [{**one, "id": self._id(), "application_id": str(APP), "version": "1"} for one in body]

    def _open_thread(self, channel: str, message: str | None, body: Any) -> Any:
        if not 1 <= len(body["name"]) <= 100:
            raise Refused(400, 50035, "Invalid Form Body: name")
        if message in self._channels:
            raise Refused(400, 160004, "A thread has already been created for this message")
        made = message or self._id()
        times = {"archived": False, "auto_archive_duration": 1440, "archive_timestamp": "2026-10-01T00:00:00+00:00"}
        thread = {"id": made, "type": 11, "guild_id": str(GUILD), "parent_id": channel, "name": body["name"]}
        thread |= {
            "owner_id": str(ME),
            "message_count": 0,
            "member_count": 1,
            "thread_metadata": {**times, "locked": False},
        }
        self._channels[made] = {**thread, "last_message_id": None}
        self._loop.create_task(self._event("THREAD_CREATE", {**self._channels[made], "newly_created": True}))
        return self._channels[made]

    # -- what is kept --------------------------------------------------------------------------------------------

    def _message(self, channel: str, who: int, text: str, **more: Any) -> dict[str, Any]:
        made = {"id": self._id(), "channel_id": channel, "author": user(who), "content": text, "type": 0, **more}
        if made.get("message_reference"):
            made["message_reference"] = {"channel_id": channel, **made["message_reference"]}
        self.messages[made["id"]] = made
        self._channels[channel]["last_message_id"] = made["id"]
        return made

    def _shown(self, message: dict[str, Any], *, guild: bool = True) -> dict[str, Any]:
        named = [user(int(one)) for one in re.findall(r"<@!?(\d+)>", message["content"])]
        empty: dict[str, Any] = {"attachments": [], "embeds": [], "components": [], "mention_roles": []}
        flags = {"tts": False, "mention_everyone": False, "pinned": False, "edited_timestamp": None, "flags": 0}
        shown = {**empty, **flags, "timestamp": "2026-10-01T12:00:00+00:00", "mentions": named, **message}
        answered = (message.get("message_reference") or {}).get("message_id")
        if str(answered) in self.messages:
            shown["referenced_message"] = self._shown(self.messages[str(answered)], guild=False)
        if guild and "guild_id" in self._channels[message["channel_id"]]:
            shown |= {"guild_id": str(GUILD), "member": member(int(message["author"]["id"]))}
        return {key: value for key, value in shown.items() if not (key == "message_reference" and value is None)}

    async def _file(self, request: web.Request) -> web.Response:
        data = self.files.get(request.match_info["name"])
        return web.Response(status=404) if data is None else web.Response(body=data)

    def link(self, name: str) -> str:
        """Return where a file can be fetched."""
        return f"http://{self.address}/attachments/{name}"

    def _id(self) -> str:
        return str(next(self._numbers))


EVERYONE = {
    "id": str(GUILD), "name": "@everyone", "permissions": "2147483647", "color": 0, "hoist": False, "position": 0,
    "managed": False, "mentionable": False, "flags": 0,
}  # fmt: skip


def _json(body: Any, *, status: int = 200, headers: Any = None) -> web.Response:
    kind = {"content-type": "application/json"}  # as Discord has it: the SDK takes no other for JSON
    return web.Response(body=json.dumps(body).encode(), status=status, headers={**kind, **(headers or {})})


def user(who: int) -> dict[str, Any]:
    """Return what is told of somebody."""
    name = NAMES[who]
    return {
        "id": str(who),
        "username": name.lower(),
        "global_name": name,
        "discriminator": "0",
        "avatar": None,
        "bot": who == ME,
    }


def member(who: int) -> dict[str, Any]:
    """Return what is told of somebody in the guild."""
    times = {"joined_at": "2026-01-01T00:00:00+00:00", "permissions": "2147483647"}
    return {
        "user": user(who),
        "roles": [],
        "deaf": False,
        "mute": False,
        "flags": 0,
        "nick": None,
        "avatar": None,
        **times,
    }
