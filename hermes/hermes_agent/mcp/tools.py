"""Tools of an MCP server as tools of the agent: names, schemas, effects and results."""

from __future__ import annotations

import hashlib
import json
import logging
import mimetypes
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from hermes_agent.contracts.image_video import save_base64
from hermes_agent.contracts.tool import Effect
from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.untrusted import mark_untrusted
from hermes_agent.mcp.sdk import Json, McpSession
from hermes_agent.mcp.settings import McpServerSettings
from hermes_agent.policy.taint_rules import guess_effect
from hermes_agent.tools import tool_error, tool_result, tool_schema

logger = logging.getLogger(__name__)

LONGEST_NAME = 64
DESCRIPTION_CHARS = 2_000
SCHEMA_CHARS = 30_000
LISTED_CHARS = 200
"""Characters of the description of a resource or a prompt."""
_OTHER = re.compile(r"[^A-Za-z0-9_]")
SENDS = Effect("sends")

Work = Callable[[McpSession, Json], Awaitable[Json]]


class OfferedTool(LazyNamedTuple):
    """A tool of a server."""

    name: str
    """Its name for the agent: "mcp__SERVER__TOOL"."""
    schema: Json
    effect: Effect
    work: Work
    """Calls the server; returns a result of `tools/call`."""


def offered_tools(settings: McpServerSettings, tools: list[Json], capabilities: Json) -> list[OfferedTool]:
    """Return the used tools of a server, each name once."""
    found: dict[str, OfferedTool] = {}
    for tool in tools:
        offer = _offered_tool(settings, tool) if settings.takes(str(tool.get("name"))) else None
        if offer is not None and offer.name in found:
            logger.warning("MCP server %s: tool %s left out: its name is taken", settings.name, tool["name"])
        elif offer is not None:
            found[offer.name] = offer
    more = [*(_RESOURCES if settings.resources and "resources" in capabilities else ())]
    more += _PROMPTS if settings.prompts and "prompts" in capabilities else ()
    for own, about, properties, required, work in more:
        name = tool_name(settings.name, own)
        schema = tool_schema(name, about.format(settings.name), properties, required)
        found.setdefault(name, OfferedTool(name, schema, Effect("reads"), work))
    return list(found.values())


def _offered_tool(settings: McpServerSettings, tool: Json) -> OfferedTool | None:
    own = str(tool["name"])
    parameters = _bounded(tool.get("inputSchema"))
    if not isinstance(parameters, dict) or len(json.dumps(parameters)) > SCHEMA_CHARS:
        logger.warning("MCP server %s: tool %s left out: its schema is invalid or too long", settings.name, own)
        return None
    name = tool_name(settings.name, own)
    about = f"({settings.name}, an MCP server) {tool.get('description') or tool.get('title') or own}"
    schema = {"name": name, "description": about[:DESCRIPTION_CHARS], "parameters": parameters}
    hints = tool.get("annotations") or {}
    acts = hints.get("readOnlyHint") is False or hints.get("destructiveHint") is True
    # annotations of a server count only if they make the agent more careful
    effect = SENDS if acts else guess_effect(own)

    async def work(session: McpSession, arguments: Json) -> Json:
        return await session.call_tool(own, arguments)

    return OfferedTool(name, schema, effect._replace(returns="own"), work)  # `result_of` marks the text of the server


def tool_name(server: str, tool: str) -> str:
    """Return the name by plugin contract §9.1; a long name ends with a digest."""
    name = f"mcp__{_OTHER.sub('_', server)}__{_OTHER.sub('_', tool)}"
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 9]}_{hashlib.sha256(f'{server} {tool}'.encode()).hexdigest()[:8]}"


def _bounded(value: Any) -> Any:
    """Return a schema with its texts cut to the length of a description."""
    if isinstance(value, dict):
        return {str(k)[:DESCRIPTION_CHARS]: _bounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_bounded(v) for v in value]
    return value[:DESCRIPTION_CHARS] if isinstance(value, str) else value


# -- results ---------------------------------------------------------------------------------------------------------


def result_of(server: str, answer: Mapping[str, Any]) -> str:
    """Return the result of a call for the model: text is marked as untrusted, pictures become files."""
    texts, files = [], []
    for part in answer.get("content") or ():
        text, file = _read(part)
        texts += [text] if text else []
        files += [file] if file else []
    structured = answer.get("structuredContent")
    if structured is not None and not any(_is_same(text, structured) for text in texts):
        texts.append(json.dumps(structured, ensure_ascii=False))
    marked = mark_untrusted("\n".join(texts), f"MCP server {server}") if texts else ""
    if answer.get("isError"):
        return tool_error(marked or f"the MCP server {server} reports an error, and does not say which")
    if not files:
        return marked or tool_result(result="", note="the server returned nothing")
    return tool_result(result=marked, files=[{"path": file, "media_tag": f"MEDIA:{file}"} for file in files])


def _read(part: Mapping[str, Any]) -> tuple[str, str]:
    """Return the text of a part of an answer, or the file that it was written to."""
    kind = part.get("type")
    if kind == "text":
        return str(part.get("text", "")), ""
    if kind in ("image", "audio"):
        return _save_file(str(part.get("data", "")), str(part.get("mimeType", "")))
    if kind == "resource_link":
        return f"{part.get('name', '')}: {part.get('uri', '')}", ""
    resource = part.get("resource") if kind == "resource" else part
    if isinstance(resource, Mapping) and "blob" in resource:
        return _save_file(str(resource["blob"]), str(resource.get("mimeType", "")))
    text = resource.get("text") if isinstance(resource, Mapping) else None
    return str(text) if text is not None else json.dumps(part, ensure_ascii=False), ""


def _save_file(data: str, mime: str) -> tuple[str, str]:
    folder = {"image": "images", "audio": "audio"}.get(mime.partition("/")[0], "documents")
    extension = (mimetypes.guess_extension(mime) or ".bin").removeprefix(".")
    try:
        return "", str(save_base64(folder, data, prefix="mcp", extension=extension))
    except (ValueError, OSError) as exc:
        return f"(a file of type {mime or 'unknown'} that cannot be kept: {exc})", ""


def _is_same(text: str, structured: Any) -> bool:
    try:
        value = json.loads(text)
    except ValueError:
        return isinstance(structured, dict) and structured == {"result": text}
    return bool(value == structured or (isinstance(structured, dict) and structured == {"result": value}))


# -- resources and prompts ------------------------------------------------------------------------------------------


def _texts(value: Any) -> Json:
    return {"content": [{"type": "text", "text": json.dumps(value, ensure_ascii=False)}]}


def _summary(listed: list[Json], *names: str) -> Json:
    return _texts([{n: str(item[n])[:LISTED_CHARS] for n in (*names, "description") if n in item} for item in listed])


async def _list_resources(session: McpSession, arguments: Json) -> Json:
    return _summary(await session.list_all("resources"), "uri", "name", "mimeType")


async def _read_resource(session: McpSession, arguments: Json) -> Json:
    return {"content": (await session.read_resource(_text_of(arguments, "uri"))).get("contents") or []}


async def _list_prompts(session: McpSession, arguments: Json) -> Json:
    listed = await session.list_all("prompts")
    return _texts(
        [
            {k: item[k] for k in ("name", "arguments") if k in item}
            | {"description": str(item.get("description", ""))[:LISTED_CHARS]}
            for item in listed
        ]
    )


async def _get_prompt(session: McpSession, arguments: Json) -> Json:
    given = arguments.get("arguments") or {}
    if not isinstance(given, dict):
        raise ToolFailed(f"`arguments` is {given!r:.100}: expected names with their texts")
    found = await session.get_prompt(_text_of(arguments, "name"), {k: str(v) for k, v in given.items()})
    return {"content": [message.get("content") or {} for message in found.get("messages") or ()]}


def _text_of(arguments: Json, name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not value:
        raise ToolFailed(f"`{name}` is {value!r:.100}: expected a text")
    return value


_TEXT = {"type": "string"}
_RESOURCES: tuple[tuple[str, str, Json, tuple[str, ...], Work], ...] = (
    ("list_resources", "List what can be read at the MCP server {}.", {}, (), _list_resources),
    ("read_resource", "Read a resource of the MCP server {}.", {"uri": _TEXT}, ("uri",), _read_resource),
)
_PROMPTS: tuple[tuple[str, str, Json, tuple[str, ...], Work], ...] = (
    ("list_prompts", "List the prompts that the MCP server {} has.", {}, (), _list_prompts),
    (
        "get_prompt",
        "Return a prompt of the MCP server {}.",
        {"name": _TEXT, "arguments": {"type": "object", "additionalProperties": _TEXT}},
        ("name",),
        _get_prompt,
    ),
)
