"""A stand-in for Telegram's HTTP interface for bots, written from its documentation, not from our adapter.

`BotApi` listens on 127.0.0.1 while a `with` block lasts. It checks tokens, lengths in UTF-16, MarkdownV2 with
its reserved characters, reply and thread ids; it holds polls back, and gives an update until an offset confirms it.
"""

from __future__ import annotations

import email
import email.policy
import json
import re
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote

__all__ = ["ANN", "BOB", "TOKEN", "Bad", "BotApi", "entities_problem"]

WAIT_S = 60.0
TOKEN = "4711:secret-token"
ME = {"id": 4711, "is_bot": True, "first_name": "Hermes", "username": "hermes_bot", "can_join_groups": True,
      "can_read_all_group_messages": False, "supports_inline_queries": False}  # fmt: skip
ANN = {"id": 100, "is_bot": False, "first_name": "Ann", "username": "ann", "language_code": "en"}
BOB = {"id": 200, "is_bot": False, "first_name": "Bob"}
RESERVED = set("_*[]()~`>#+-=|{}.!")
MEDIA = {"sendPhoto": "photo", "sendDocument": "document", "sendVideo": "video", "sendVoice": "voice",
         "sendAudio": "audio", "sendAnimation": "animation"}  # fmt: skip


class Bad(Exception):
    """An error that Telegram would answer with."""

    def __init__(self, code: int, text: str, **parameters: Any) -> None:
        super().__init__(text)
        self.body = {"ok": False, "error_code": code, "description": text}
        if parameters:
            self.body["parameters"] = parameters


class BotApi:
    """Attributes: `calls`: name and parameters of each call but polls; `messages`: what stands in chats, by id;
    `faults`: taken from the front by the next call of that method: a `Bad`, or a status without JSON;
    `files`: by id, for `getFile`; `polls`: the offset of each poll.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.messages: dict[int, dict[str, Any]] = {}
        self.faults: list[tuple[str, Bad | int]] = []
        self.files: dict[str, bytes] = {}
        self.polls: list[int | None] = []
        self.chats: dict[int, dict[str, Any]] = {
            100: {"id": 100, "type": "private", "first_name": "Ann"},
            200: {"id": 200, "type": "private", "first_name": "Bob"},
            -500: {"id": -500, "type": "supergroup", "title": "Team"},
            -600: {"id": -600, "type": "supergroup", "title": "Forum", "is_forum": True},
        }
        self._updates: list[dict[str, Any]] = []
        self._news = threading.Condition()
        self._number = 1000
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        """What stands before `/bot<token>/`."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> BotApi:
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers.get("content-length") or 0))
                api._answer(self, raw)

            do_GET = do_POST

            def log_message(self, *args: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        assert self._server is not None
        with self._news:
            self._news.notify_all()
        self._server.shutdown()
        self._server.server_close()

    # -- people --------------------------------------------------------------------------------------------------

    def say(self, chat: int, who: dict[str, Any], text: str = "", **more: Any) -> int:
        """Let somebody write; return the message's id."""
        body = {"from": who, "chat": self.chats[chat], "date": int(time.time()), **({"text": text} if text else {})}
        entities = [
            {"type": kind, "offset": len(text[: m.start()].encode("utf-16-le")) // 2, "length": len(m[0])}
            for kind, pattern in (("mention", r"(?<!\w)@\w+"), ("bot_command", r"^/[a-z_]+(@\w+)?"))
            for m in re.finditer(pattern, text)
        ]
        message = self._stored({**body, **({"entities": entities} if entities else {}), **more})
        self.update("message", message)
        return int(message["message_id"])

    def press(self, message: int, who: dict[str, Any], label: str) -> None:
        """Let somebody press a button."""
        found = self.messages[message]
        data = {b["text"]: b["callback_data"] for row in found["reply_markup"]["inline_keyboard"] for b in row}[label]
        self._number += 1
        query = {"id": str(self._number), "from": who, "chat_instance": "1", "message": found, "data": data}
        self.update("callback_query", query)

    def update(self, kind: str, body: Any) -> None:
        """Let an update come."""
        with self._news:
            self._number += 1
            self._updates.append({"update_id": self._number, kind: body})
            self._news.notify_all()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until something stands in the chats; raises TimeoutError."""
        with self._news:
            if not self._news.wait_for(condition, WAIT_S):
                raise TimeoutError(f"it did not come: {list(self.messages.values())[-5:]}")

    def sent(self, *methods: str) -> list[dict[str, Any]]:
        """Return the parameters of the calls of these methods."""
        return [params for name, params in self.calls if name in methods]

    # -- the interface -------------------------------------------------------------------------------------------

    def _answer(self, request: BaseHTTPRequestHandler, raw: bytes) -> None:
        status, body, path = 200, b"", unquote(request.path)
        if path.startswith(f"/file/bot{TOKEN}/"):
            body = self.files[path.rpartition("/")[2]]
        else:
            method = path.rpartition("/")[2]
            try:
                if not path.startswith(f"/bot{TOKEN}/"):
                    raise Bad(401, "Unauthorized")
                result = self._called(method, _parameters(request.headers, raw))
                body = json.dumps({"ok": True, "result": result}).encode()
            except Bad as exc:
                status, body = exc.body["error_code"], json.dumps(exc.body).encode()
            except _Status as exc:
                status, body = exc.status, b"<html>bad gateway</html>"
        try:
            request.send_response(status)
            request.send_header("content-length", str(len(body)))
            request.end_headers()
            request.wfile.write(body)
        except OSError:
            request.close_connection = True

    def _fail(self, method: str) -> None:
        for at, (name, fault) in enumerate(self.faults):
            if name == method:
                del self.faults[at]
                raise _Status(fault) if isinstance(fault, int) else fault

    def _called(self, method: str, params: dict[str, Any]) -> Any:
        self._fail(method)
        if method == "getUpdates":
            return self._poll(params)
        self.calls.append((method, params))
        if method == "getMe":
            return ME
        if method == "getFile":
            name = params["file_id"]
            if name not in self.files:
                raise Bad(400, "Bad Request: file is too big")
            return {"file_id": name, "file_unique_id": name, "file_path": f"documents/{name}"}
        chat = self._chat(params) if "chat_id" in params else {}
        if method == "getChat":
            return {**chat, "accent_color_id": 0, "max_reaction_count": 1}
        return self._done(method, chat, params)

    def _done(self, method: str, chat: dict[str, Any], params: dict[str, Any]) -> Any:
        if method in ("sendMessage", "editMessageText"):
            return self._text(method, chat, params)
        if method in MEDIA:
            if len(params.get("caption", "").encode("utf-16-le")) > 2048:
                raise Bad(400, "Bad Request: message caption is too long")
            return self._stored({**self._about(chat, params), MEDIA[method]: {"file_id": "f", "file_unique_id": "f"}})
        if method == "sendMediaGroup":
            return [self._stored(self._about(chat, params)) for _ in params["media"]]
        if method == "setMessageReaction" and int(params["message_id"]) not in self.messages:
            raise Bad(400, "Bad Request: message to react not found")
        if method == "editForumTopic" and not (chat.get("is_forum") and 1 <= len(params["name"]) <= 128):
            raise Bad(400, "Bad Request: TOPIC_NOT_MODIFIED or name of a wrong length")
        if method == "deleteMessage" and self.messages.pop(int(params["message_id"]), None) is None:
            raise Bad(400, "Bad Request: message to delete not found")
        return True

    def _poll(self, params: dict[str, Any]) -> list[dict[str, Any]]:
        offset = params.get("offset")
        end = time.monotonic() + float(params.get("timeout") or 0)
        with self._news:
            self.polls.append(offset)
            self._updates = [u for u in self._updates if u["update_id"] >= (offset or 0)]
            while not self._updates and time.monotonic() < end and self._news.wait(max(end - time.monotonic(), 0)):
                pass
            return list(self._updates)

    def _chat(self, params: dict[str, Any]) -> dict[str, Any]:
        chat = self.chats.get(int(params["chat_id"])) if str(params["chat_id"]).lstrip("-").isdigit() else None
        if chat is None:
            raise Bad(400, "Bad Request: chat not found")
        if chat.get("blocked"):
            raise Bad(403, "Forbidden: bot was blocked by the user")
        if chat.get("moved"):
            text = "Bad Request: group chat was upgraded to a supergroup chat"
            raise Bad(400, text, migrate_to_chat_id=chat["moved"])
        return chat

    def _about(self, chat: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
        reply = params.get("reply_parameters") or {}
        if reply and reply["message_id"] not in self.messages and not reply.get("allow_sending_without_reply"):
            raise Bad(400, "Bad Request: message to be replied not found")
        thread = params.get("message_thread_id")
        if thread is not None and not chat.get("is_forum"):
            raise Bad(400, "Bad Request: message thread not found")
        found = {"from": ME, "chat": chat, "date": int(time.time())}
        return {**found, **({"message_thread_id": thread, "is_topic_message": True} if thread is not None else {})}

    def _text(self, method: str, chat: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
        text = params.get("text", "")
        if params.get("parse_mode") == "MarkdownV2":
            problem = entities_problem(text)
            if problem:
                raise Bad(400, f"Bad Request: can't parse entities: {problem}")
            text = shown(text)
        if not text.strip():
            raise Bad(400, "Bad Request: message text is empty")
        if len(text.encode("utf-16-le")) // 2 > 4096:
            raise Bad(400, "Bad Request: message is too long")
        if method == "editMessageText":
            message = self.messages.get(int(params["message_id"]))
            if message is None:
                raise Bad(400, "Bad Request: message to edit not found")
            if message["text"] == text and "reply_markup" not in message:
                raise Bad(400, "Bad Request: message is not modified: specified new message content is the same")
            with self._news:
                message["text"] = text
                message.pop("reply_markup", None)
                self._news.notify_all()
            return message
        more = {"reply_markup": params["reply_markup"]} if params.get("reply_markup") else {}
        return self._stored({**self._about(chat, params), "text": text, **more})

    def _stored(self, message: dict[str, Any]) -> dict[str, Any]:
        with self._news:
            self._number += 1
            stored = {"message_id": self._number, **message}
            self.messages[self._number] = stored
            self._news.notify_all()
            return stored


class _Status(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def _parameters(headers: Any, raw: bytes) -> dict[str, Any]:
    kind = headers.get("content-type", "")
    if kind.startswith("application/json"):
        return dict(json.loads(raw))
    if kind.startswith("application/x-www-form-urlencoded"):
        return {name: _plain(value) for name, value in parse_qsl(raw.decode())}
    if not kind.startswith("multipart/form-data"):
        return {}
    found: dict[str, Any] = {}
    whole = email.message_from_bytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + raw, policy=email.policy.HTTP)
    for part in whole.iter_parts():
        name = part.get_param("name", header="content-disposition")
        data = part.get_payload(decode=True)
        file = part.get_filename()
        found[str(name)] = (file, data) if file else _plain(data.decode())
    return found


def _plain(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


_TOKEN = re.compile(
    r"(?s)(?P<plain>\\[\x01-\x7e])|```(?:\w*\n)?(?P<block>(?:\\.|[^`\\])*)```|`(?P<code>(?:\\.|[^`\\])+)`"
    r"|(?P<link>\]\((?:\\.|[^)\\])*\))|(?P<mark>__|\|\||[*_~\[])|(?P<quote>(?:^|(?<=\n))>)|(?P<other>.)"
)


def entities_problem(text: str) -> str:
    """Return what is wrong with a text in MarkdownV2, in Telegram's words; empty when nothing is."""
    return _read(text)[0]


def shown(text: str) -> str:
    """Return what people see of a text in MarkdownV2."""
    return _read(text)[1]


def _read(text: str) -> tuple[str, str]:
    open_marks: list[str] = []
    seen: list[str] = []
    for found in _TOKEN.finditer(text):
        kind, said = str(found.lastgroup), found[0]
        if kind == "link" and "[" in open_marks:
            if open_marks.pop() != "[":
                return "Can't find end of the entity within a link", ""
        elif kind == "mark" and said in open_marks:
            if open_marks.pop() != said:
                return f"Can't find end of the entity that begins before {said}", ""
        elif kind == "mark":
            open_marks.append(said)
        elif kind == "plain":
            seen.append(said[1])
        elif kind in ("block", "code"):
            seen.append(re.sub(r"\\(.)", r"\1", found[kind]))
        elif kind == "link" or (kind == "other" and said in RESERVED):
            return f"Character '{said[0]}' is reserved and must be escaped with the preceding '\\'", ""
        elif kind == "other":
            seen.append(said)
    return (f"Can't find end of the entity that begins with {open_marks[-1]}" if open_marks else ""), "".join(seen)
