"""The published MCP SDK in either major version: a session over a transport, and its messages.

Version 1 is used through `ClientSession`, version 2 through `Client`, which also has the protocol of 2026. Their
results are used as the JSON of the wire, which has the same names in both. The import of the SDK takes a second and 60
MB, so the functions here import it when they are called, on the loop of the servers.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from hermes_agent import __version__
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.system.installation import install_hint

TOO_OLD = -32022
"""Error of a server that has only newer revisions of the protocol."""
MOST_PAGES = 50
MOST_LISTED = 1_000

Json = dict[str, Any]


class ServerCallbacks(LazyNamedTuple):
    """Callbacks for the requests and notifications of a server; values are JSON."""

    changed: Callable[[], None]
    """Called when its list of tools has changed."""
    sample: Callable[[Json], Awaitable[Json]] | None
    """Answers a sampling request; raises ValueError to refuse, as `elicit` does."""
    elicit: Callable[[Json], Awaitable[Json]] | None
    sampling_tools: bool = False


def mcp_install_hint() -> str:
    """Return the message for a missing library."""
    return f"mcp_servers needs the library `mcp`: {install_hint('mcp')}"


def is_installed() -> bool:
    """Return whether the library is installed, without an import."""
    return importlib.util.find_spec("mcp") is not None


def _sdk() -> Any:
    return importlib.import_module("mcp")


def _types() -> Any:
    return importlib.import_module("mcp.types")


def load_class(module: str, name: str) -> Any:
    """Return a class of the SDK."""
    return getattr(importlib.import_module(module), name)


def http_library() -> Any:
    """Return the HTTP library of this version of the SDK."""
    return importlib.import_module("httpx2" if hasattr(_sdk(), "Client") else "httpx")


def decode(line: bytes) -> Any:
    """Return the message of a line, or raise ValueError."""
    types = _types()
    if hasattr(types, "jsonrpc_message_adapter"):
        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    else:
        message = types.JSONRPCMessage.model_validate_json(line)
    return load_class("mcp.shared.message", "SessionMessage")(message)


def encode(message: Any) -> bytes:
    """Return the line of a message."""
    options = {"exclude_unset": True} if hasattr(_sdk(), "Client") else {"exclude_none": True}
    return message.message.model_dump_json(by_alias=True, **options).encode() + b"\n"  # type: ignore[no-any-return]


class McpSession:
    """A connected server; answers are the JSON of the protocol."""

    def __init__(self, client: Any, capabilities: Any) -> None:
        self._client = client
        self.capabilities = _json(capabilities)

    async def list_all(self, what: str) -> list[Json]:
        """Return all items of a kind: `tools`, `resources` or `prompts`."""
        found: list[Json] = []
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            page = _json(await getattr(self._client, f"list_{what}")(cursor=cursor))
            found += page.get(what) or ()
            cursor = page.get("nextCursor")
            if not cursor or len(found) >= MOST_LISTED:
                break
        return found[:MOST_LISTED]

    async def call_tool(self, name: str, arguments: Json) -> Json:
        """Return `content`, `structuredContent`, `isError`."""
        return _json(await self._client.call_tool(name, arguments))

    async def read_resource(self, uri: str) -> Json:
        """Return `contents`."""
        address = uri if hasattr(_sdk(), "Client") else load_class("pydantic", "AnyUrl")(uri)
        return _json(await self._client.read_resource(address))

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> Json:
        """Return `messages`."""
        return _json(await self._client.get_prompt(name, dict(arguments)))

    async def listen(self, changed: Callable[[], None]) -> None:
        """Subscribe to changes if the protocol supports it; older servers notify (`ServerCallbacks.changed`)."""
        if not hasattr(self._client, "listen") or not (self.capabilities.get("tools") or {}).get("listChanged"):
            return
        versions = load_class("mcp_types.version", "MODERN_PROTOCOL_VERSIONS")
        if self._client.protocol_version in versions:
            async with self._client.listen(tools_list_changed=True) as events:
                async for _ in events:
                    changed()


@contextlib.asynccontextmanager
async def open_session(
    transport: AbstractAsyncContextManager[Any], callbacks: ServerCallbacks, *, newest: bool = False
) -> AsyncIterator[McpSession]:
    """Open a session over a transport, an async context manager that yields two streams.

    Args:
        newest: whether to offer the protocol of 2026. In it, servers that have both cannot ask the user during a tool
            call, as most do.
    """
    sdk, types = _sdk(), _types()

    async def on_message(message: Any) -> None:
        if "ToolListChanged" in type(getattr(message, "root", message)).__name__:
            callbacks.changed()

    settings: Json = {
        "client_info": types.Implementation(name="hermes-agent", version=__version__),
        "message_handler": on_message,
    }
    if callbacks.sample is not None:
        settings["sampling_callback"] = _make_callback(callbacks.sample, "CreateMessageResult")
        if callbacks.sampling_tools:
            tools = types.SamplingToolsCapability()
            settings["sampling_capabilities"] = types.SamplingCapability(tools=tools)
    if callbacks.elicit is not None:
        settings["elicitation_callback"] = _make_callback(callbacks.elicit, "ElicitResult")
    if hasattr(sdk, "Client"):
        mode = "auto" if newest else "legacy"
        async with sdk.Client(transport, cache=None, mode=mode, **settings) as client:
            yield McpSession(client, client.server_capabilities)
        return
    async with transport as streams, sdk.ClientSession(streams[0], streams[1], **settings) as client:
        yield McpSession(client, (await client.initialize()).capabilities)


def _make_callback(answer: Callable[[Json], Awaitable[Json]], kind: str) -> Callable[..., Awaitable[Any]]:
    """Return a callback of the SDK that returns a result of a kind, or an error."""

    async def callback(context: Any, params: Any) -> Any:
        types = _types()
        try:
            result = await answer(_json(params))
            suffix = "WithTools" if result.get("stopReason") == "toolUse" else ""
            return getattr(types, kind + suffix).model_validate(result)
        except ValueError as exc:
            return types.ErrorData(code=types.INVALID_REQUEST, message=str(exc)[:500])

    return callback


def _json(value: Any) -> Json:
    return value.model_dump(by_alias=True, mode="json", exclude_none=True)  # type: ignore[no-any-return]
