"""An MCP server written with the published SDK: over standard streams, or `http PORT` / `sse PORT` on loopback.

Its tools do what servers do, and what they should not.
"""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import SamplingMessage, TextContent, ToolAnnotations
from pydantic import BaseModel

NAME = os.environ.get("TEST_NAME", "test")
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def made() -> MCPServer[Any]:
    """Return the server; with TEST_GUARDED, a port, one where somebody has to sign in (at TEST_ISSUER)."""
    port = os.environ.get("TEST_GUARDED")
    if port is None:
        return MCPServer(NAME)
    import mcp_auth

    url = f"http://127.0.0.1:{port}"
    auth = mcp_auth.settings(url, os.environ.get("TEST_ISSUER", url), os.environ.get("TEST_PATH", "mcp"))
    return MCPServer(NAME, auth=auth, auth_server_provider=mcp_auth.Provider())


server = made()


class Colour(BaseModel):
    """A form."""

    colour: str
    sure: bool


class Sum(BaseModel):
    """A structured result."""

    total: int


@server.tool()
def echo(text: str) -> str:
    """Return the text."""
    return f"{NAME}: {text}"


@server.tool()
def get_sum(a: int, b: int) -> Sum:
    """Add."""
    return Sum(total=a + b)


@server.tool(annotations=ToolAnnotations(read_only_hint=False))
def get_and_send(text: str) -> str:
    """Send it, although the name does not say so."""
    return f"sent {text}"


@server.tool()
def fail() -> str:
    """Fail."""
    raise ToolError("it is raining")


@server.tool()
def picture() -> Image:
    """Return a picture."""
    return Image(data=PIXEL, format="png")


@server.tool()
def crash() -> str:
    """End at once."""
    os._exit(3)


def note_down(file: str, text: str) -> None:
    Path(file).write_text(text)


@server.tool()
async def hang(note: str) -> str:
    """Never answer; write down when it begins, and when it is cancelled."""
    note_down(note, "begun")
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        note_down(note, "cancelled")
        raise
    return ""


@server.tool()
def environment() -> dict[str, str]:
    """Return what it was started with."""
    return dict(os.environ)


@server.tool()
def child() -> str:
    """Start a process that goes on, in a session of its own."""
    return str(subprocess.Popen(["sleep", "3600"], start_new_session=True).pid)


@server.tool()
def stderr(text: str) -> str:
    """Print to standard error."""
    print(text, file=sys.stderr, flush=True)
    return "printed"


@server.tool()
def header(name: str, ctx: Context[Any, Any]) -> str:
    """Return a header of the request."""
    return str((ctx.headers or {}).get(name.lower()))


@server.tool()
async def grow(name: str, ctx: Context[Any, Any]) -> str:
    """Have one tool more, and tell."""

    def grown() -> str:
        return "grown"

    server.add_tool(grown, name=name, description="New.")
    await ctx.session.send_tool_list_changed()  # what the protocol of 2025 has for it
    await ctx.notify_tools_changed()
    return "told"


@server.tool()
async def ask_model(question: str, ctx: Context[Any, Any]) -> str:
    """Ask the client's model."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text=question))
    answer = await ctx.session.create_message([message], max_tokens=50)
    return f"{answer.model} says {getattr(answer.content, 'text', answer.content)}"


@server.tool()
async def ask_person(ctx: Context[Any, Any]) -> str:
    """Ask the person."""
    answer = await ctx.elicit("Which colour?", Colour)
    return f"{answer.action} {getattr(answer, 'data', None)}"


@server.resource("note://today")
def today() -> str:
    """What is to be done."""
    return "water the plants"


@server.prompt()
def greeting(name: str) -> str:
    """Greet."""
    return f"Say hello to {name}."


if __name__ == "__main__":
    if len(sys.argv) > 1:
        transport: Any = {"http": "streamable-http", "sse": "sse"}[sys.argv[1]]
        server.run(transport, host="127.0.0.1", port=int(sys.argv[2]))
    else:
        server.run()
