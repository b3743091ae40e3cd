"""A model for script.py, on port 8643: it says what it is told to (`say WORDS`), or has a command run (`run COMMAND`).

`count` says how many questions there were, `hang` says nothing for as long as it runs.
"""

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def answer(messages):
    """Return the message that follows, of the chat-completions form."""
    last = messages[-1]
    if last["role"] == "tool":
        return {"content": f"the command said: {last['content']}"}
    text = last["content"] if isinstance(last["content"], str) else last["content"][-1]["text"]
    word, _, rest = text.strip().splitlines()[-1].partition(" ")
    if word == "run":
        function = {"name": "terminal", "arguments": json.dumps({"command": rest})}
        return {"content": "", "tool_calls": [{"index": 0, "id": "call-1", "type": "function", "function": function}]}
    if word == "hang":
        Path(os.environ["RUNTIME_DIRECTORY"], "hanging").touch()
        threading.Event().wait()
    if word == "count":
        return {"content": f"{sum(m['role'] == 'user' for m in messages)} questions"}
    return {"content": rest}


class Handler(BaseHTTPRequestHandler):
    """Streams, when it is asked to."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = answer(asked["messages"])
        end = "tool_calls" if "tool_calls" in message else "stop"
        whole = {"id": "x", "created": 0, "model": asked["model"]}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        said = {"role": "assistant", **message}
        if asked.get("stream"):
            chunk = {**whole, "object": "chat.completion.chunk"}
            parts = [
                {**chunk, "choices": [{"index": 0, "delta": said, "finish_reason": None}]},
                {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": end}], "usage": usage},
            ]
            body = "".join(f"data: {json.dumps(part)}\n\n" for part in parts) + "data: [DONE]\n\n"
            kind = "text/event-stream"
        else:
            choice = {"index": 0, "message": said, "finish_reason": end}
            body = json.dumps({**whole, "object": "chat.completion", "choices": [choice], "usage": usage})
            kind = "application/json"
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *arguments):
        """Say nothing."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", 8643), Handler).serve_forever()
