"""An instant model: answers chat completions over HTTP at once, in a process of its own.

    python stub_model.py [TOOL]

It prints its port. A request whose last message is a person's is answered with a call of TOOL when that is given and
the message has the word "tool"; every other request with a short text. Requests are not parsed, so that the model
costs little beside what is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator

__all__ = ["main", "running"]

USAGE = {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}


class Model(asyncio.Protocol):
    """One connection."""

    tool = ""
    count = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._data = bytearray()

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._data[:end]).lower()
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or b"0")
            if len(self._data) < end + 4 + length:
                return
            body = bytes(self._data[end + 4 : end + 4 + length])
            del self._data[: end + 4 + length]
            self._answer(head.split(b" ", 2)[1], body)

    def _answer(self, path: bytes, body: bytes) -> None:
        if path.endswith(b"/chat/completions"):
            kind, out = _completion(self._message(body), streamed=b'"stream":true' in body.replace(b" ", b""))
        else:
            kind, out = b"application/json", json.dumps({"object": "list", "data": [{"id": "stub"}]}).encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n" % (kind, len(out))
        self._transport.write(head + out)

    def _message(self, body: bytes) -> dict[str, object]:
        Model.count += 1
        last = max(body.rfind(b'"role":"user"'), body.rfind(b'"role": "user"'))
        answered = max(body.rfind(b'"role":"tool"'), body.rfind(b'"role": "tool"'))
        if not self.tool or answered > last or b"tool" not in body[last + 20 : last + 400]:
            return {"role": "assistant", "content": "All right."}
        function = {"name": self.tool, "arguments": '{"text": "hi"}'}
        calls = [{"index": 0, "id": f"call_{Model.count}", "type": "function", "function": function}]
        return {"role": "assistant", "content": None, "tool_calls": calls}


def _completion(message: dict[str, object], *, streamed: bool) -> tuple[bytes, bytes]:
    reason = "tool_calls" if "tool_calls" in message else "stop"
    base = {"id": "c", "created": 1, "model": "stub"}
    if not streamed:
        choice = {"index": 0, "message": message, "finish_reason": reason}
        whole = {**base, "object": "chat.completion", "choices": [choice], "usage": USAGE}
        return b"application/json", json.dumps(whole).encode()
    base["object"] = "chat.completion.chunk"
    chunks = [
        {**base, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
        {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
        {**base, "choices": [], "usage": USAGE},
    ]
    return b"text/event-stream", b"".join(
        b"data: %s\n\n" % json.dumps(c).encode() for c in chunks
    ) + b"data: [DONE]\n\n"


@contextlib.contextmanager
def running(tool: str = "") -> Iterator[int]:
    """Run the model beside this process, and give its port."""
    with subprocess.Popen([sys.executable, __file__, tool], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


async def main(tool: str) -> None:
    """Serve until the process is ended."""
    Model.tool = tool
    server = await asyncio.get_running_loop().create_server(Model, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else ""))
