"""A child that takes the place of the model's: it answers from the script that its "weights" file is.

The file has a JSON list, an entry per request: `pieces` (texts to stream), `endless` (a text to stream after them until
the client leaves), `finish`, `status`, `body`, `die` (end the process in the middle), `cut` (end the connection without
an end). Each request is appended to `<file>.asked`.
The key `start` of a first entry says how to misbehave before anything is served: `fail`, `hang`,
`stubborn` (does not end when it is told).
"""

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

settings = json.loads(sys.stdin.readline())
script = json.loads(Path(settings["path"]).read_text())
asked = settings["path"] + ".asked"
with open(settings["path"] + ".told", "a") as file:
    told = {
        "settings": settings,
        "environ": dict(os.environ),
        "argv": sys.argv,
        "pid": os.getpid(),
        "sid": os.getsid(0),
    }
    file.write(json.dumps(told) + "\n")

start = script.pop(0)["start"] if script and "start" in script[0] else ""
if start == "fail":
    print("E no such tensor\nE giving up", file=sys.stderr)
    raise SystemExit(3)
if start == "hang":
    print("loading", file=sys.stderr, flush=True)
    time.sleep(60)
if start == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


class Handler(BaseHTTPRequestHandler):
    def log_message(self, format, *args):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with open(asked, "a") as file:
            file.write(json.dumps({"key": self.headers["Authorization"], "path": self.path, "body": body}) + "\n")
        done = len(Path(asked).read_text().splitlines()) - 1
        entry = script[min(done, len(script) - 1)]
        self.send_response(entry.get("status", 200))
        self.end_headers()
        if "body" in entry:
            self.wfile.write(entry["body"].encode())
            return
        for piece in entry["pieces"]:
            self.event({"choices": [{"delta": {"content": piece}, "finish_reason": None}]})
        while "endless" in entry:
            try:
                self.event({"choices": [{"delta": {"content": entry["endless"]}, "finish_reason": None}]})
            except ConnectionError:
                return
        if entry.get("die"):
            print("E out of luck", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if entry.get("cut"):
            return
        self.event({"choices": [{"delta": {}, "finish_reason": entry.get("finish", "stop")}]})
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}
        self.event({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def event(self, value):
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(json.dumps({"url": f"http://127.0.0.1:{server.server_port}"}), flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
while sys.stdin.read():
    pass
if start == "stubborn":
    time.sleep(60)
os._exit(0)
