"""A chat service of lines, and a platform plugin for it that uses the standard library alone."""

from __future__ import annotations

import contextlib
import socketserver
import threading
from collections.abc import Iterator
from typing import Any

__all__ = ["LINE_PLUGIN", "LineServer", "line_server"]

LINE_PLUGIN = """
import asyncio
from gateway.config import Platform
from gateway.platforms.base import BasePlatformAdapter, MessageEvent, SendResult

class LineAdapter(BasePlatformAdapter):
    MAX_MESSAGE_LENGTH = 400

    def __init__(self, config):
        super().__init__(config, Platform("lines"))

    async def connect(self, *, is_reconnect=False):
        host, port = self.config.extra["server"].split(":")
        self.reader, self.writer = await asyncio.open_connection(host, int(port))
        self.task = asyncio.create_task(self.listen())
        self._mark_connected()
        return True

    async def listen(self):
        while line := await self.reader.readline():
            number, nick, room, text = line.decode().rstrip("\\n").split(" ", 3)
            source = self.build_source(chat_id=room, user_id=nick, chat_type="group" if room[0] == "#" else "dm")
            await self.handle_message(MessageEvent(text, source=source, message_id=number))
        self._set_fatal_error("closed", "the server hung up", retryable=True)
        await self._notify_fatal_error()

    async def disconnect(self):
        self.task.cancel()
        self.writer.close()
        self._mark_disconnected()

    async def send(self, chat_id, content, reply_to=None, metadata=None):
        self.writer.write(f"{chat_id} {content}\\n".encode())
        await self.writer.drain()
        return SendResult(success=True)

    async def get_chat_info(self, chat_id):
        return {"name": chat_id, "type": "group"}

def register(ctx):
    ctx.register_platform(
        name="lines", label="Lines", adapter_factory=LineAdapter, check_fn=lambda: True,
        validate_config=lambda config: ":" in config.extra.get("server", ""),
        is_connected=lambda config: bool(config.extra.get("server")), required_env=["LINES_SERVER"],
        env_enablement_fn=lambda: {"server": __import__("os").environ["LINES_SERVER"]},
        allowed_users_env="LINES_FRIENDS", max_message_length=400, emoji="📜", platform_hint="Plain lines.",
    )
"""


class LineServer:
    """A chat server that speaks lines: `number nick room text` in, `room text` out."""

    def __init__(self) -> None:
        self.received: list[str] = []
        self.changed = threading.Condition()
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with outer.changed:
                    outer.writer = self.wfile
                    outer.changed.notify_all()
                for line in self.rfile:
                    with outer.changed:
                        outer.received.append(line.decode().strip())
                        outer.changed.notify_all()

        self.writer: Any = None
        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = "{}:{}".format(*self.server.server_address)

    def say(self, line: str) -> None:
        self.writer.write(f"{line}\n".encode())
        self.writer.flush()

    def heard(self, *wanted: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: set(wanted) <= set(self.received), 20), self.received


@contextlib.contextmanager
def line_server() -> Iterator[LineServer]:
    """Serve while the block runs."""
    served = LineServer()
    thread = threading.Thread(target=served.server.serve_forever)
    thread.start()
    try:
        yield served
    finally:
        served.server.shutdown()
        served.server.server_close()
        thread.join()
