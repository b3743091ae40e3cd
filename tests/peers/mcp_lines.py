"""An MCP server in plain Python, of the protocol of 2025: it starts in an instant, and misbehaves as it is told to.

It speaks lines over standard streams. `say` returns a text; `pid` its own number, `child` that of a process that it
leaves in a session of its own, `crash` ends it, `hang` never answers, and notes in a file when it is cancelled.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

NAME = os.environ.get("TEST_NAME", "test")
TEXT = {"type": "string"}
TOOLS = {"say": ["text"], "pid": [], "child": [], "crash": [], "hang": ["note"]}
NEWEST = ["2026-07-28"]
COMPLETE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if os.environ.get("TEST_NEWEST") else {}
waiting: dict[Any, Path] = {}


def tool(name: str, parameters: list[str]) -> dict[str, Any]:
    schema = {"type": "object", "properties": dict.fromkeys(parameters, TEXT), "required": parameters}
    return {"name": name, "description": "x" * 5000 if name == "say" else name, "inputSchema": schema}


def called(number: Any, name: str, given: dict[str, Any]) -> str | None:
    if name == "crash":
        os._exit(3)
    if name == "hang":
        waiting[number] = Path(given["note"])
        waiting[number].write_text("begun")
        return None
    if name == "child":
        return str(subprocess.Popen(["sleep", "3600"], start_new_session=True, stdout=subprocess.DEVNULL).pid)
    return str(os.getpid()) if name == "pid" else f"{NAME}: {given['text']}"


def answer(number: Any, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """Return what a request is answered with; None: nothing."""
    if os.environ.get("TEST_NEWEST") and method in ("initialize", "server/discover"):
        if method == "initialize":
            return {"error": {"code": -32022, "message": "too old", "data": {"supported": NEWEST, "requested": ""}}}
        return {"result": {"supportedVersions": NEWEST, "capabilities": {"tools": {}}, **COMPLETE}}
    if method == "initialize":
        about = {"name": NAME, "version": "1"}
        return {"result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}}
    if method == "tools/list":
        return {"result": {"tools": [tool(*each) for each in TOOLS.items()], **COMPLETE}}
    if method == "tools/call":
        text = called(number, params["name"], params.get("arguments") or {})
        return None if text is None else {"result": {"content": [{"type": "text", "text": text}], **COMPLETE}}
    return {"error": {"code": -32601, "message": f"there is no {method}"}}


for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "notifications/cancelled":
        if note := waiting.pop(asked["params"]["requestId"], None):
            note.write_text("cancelled")
    elif "id" in asked and (said := answer(asked["id"], asked["method"], asked.get("params") or {})) is not None:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}), flush=True)
