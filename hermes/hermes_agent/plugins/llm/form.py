"""What `ctx.llm` is given and gives back (`agent.plugin_llm`): values, messages, and reading a structured answer.

Source: plugin contract §5.2, §5.3.
"""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hermes_agent.core.messages import Message

__all__ = [
    "StructuredForm",
    "PluginLlmCompleteResult",
    "PluginLlmImageInput",
    "PluginLlmStructuredResult",
    "PluginLlmTextInput",
    "PluginLlmUsage",
    "chat_messages",
    "has_images",
    "parse_structured",
]

logger = logging.getLogger(__name__)


@dataclass
class PluginLlmTextInput:
    """A piece of text for `complete_structured`."""

    text: str
    type: str = "text"


@dataclass
class PluginLlmImageInput:
    """A picture for `complete_structured`: its bytes, or where it is."""

    data: bytes | None = None
    url: str | None = None
    mime_type: str = "image/png"
    file_name: str = ""
    type: str = "image"


@dataclass
class PluginLlmUsage:
    """Tokens of one call; zeros where the provider did not say."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float | None = None
    """US dollars; 0 for the embedded model, what the provider says where it does, None where it is not known."""


@dataclass
class PluginLlmCompleteResult:
    """An answer."""

    text: str
    provider: str
    model: str
    agent_id: str
    usage: PluginLlmUsage = field(default_factory=PluginLlmUsage)
    audit: dict[str, Any] = field(default_factory=dict)
    """`plugin_id`, `purpose`, `profile`; `schema_name` where one was given."""


@dataclass
class PluginLlmStructuredResult(PluginLlmCompleteResult):
    """An answer that may be JSON."""

    parsed: Any = None
    """The value; None when the answer is no JSON, or none was asked for: `text` has it as it came."""
    content_type: str = "text"
    """`json` when `parsed` is the answer, else `text`."""


JSON_ONLY = (
    "Reply with one single JSON object and nothing else: no prose before or after it, and no code fences around it."
)
_FENCE = re.compile(r"\A```[\w-]*[ \t]*\r?\n?(.*?)\s*```\Z", re.DOTALL)
_IMAGES = frozenset({"image_url", "input_image", "image"})


def chat_messages(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Read the messages of `complete`.

    Raises:
        ValueError: there are none, or one of them is no message of the chat-completions protocol.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise ValueError(f"messages is {type(messages).__name__}: expected a list of role/content mappings")
    read = [_message(at, value) for at, value in enumerate(messages)]
    if not read:
        raise ValueError("messages is empty: expected at least one role/content mapping")
    return read


def _message(at: int, value: Any) -> Message:
    if not isinstance(value, Mapping):
        raise ValueError(f"messages[{at}] is {type(value).__name__}: expected a mapping with role and content")
    try:
        return Message.from_dict(dict(value))
    except ValueError as exc:
        raise ValueError(f"messages[{at}]: {exc}") from None


def has_images(messages: Iterable[Message]) -> bool:
    """Say whether a part of a message is a picture."""
    return any(part.get("type") in _IMAGES for m in messages if isinstance(m.content, list) for part in m.content)


@dataclass(frozen=True, slots=True)
class StructuredForm:
    """A structured call: what goes in, and what shape has to come out."""

    messages: list[Message]
    schema: dict[str, Any] | None
    wants_json: bool
    schema_name: str

    @classmethod
    def of(
        cls,
        method: str,
        *,
        instructions: str,
        blocks: Sequence[Any],
        json_schema: dict[str, Any] | None,
        json_mode: bool,
        schema_name: str | None,
        system_prompt: str | None,
    ) -> StructuredForm:
        """Read the arguments of a structured call.

        Args:
            method: its name, for the errors.

        Raises:
            ValueError: there are no instructions, there is no input, or a block of it is none.
        """
        if not isinstance(instructions, str) or not instructions.strip():
            raise ValueError(f"{method} requires non-empty instructions")
        parts = [_part(block) for block in blocks or ()]
        if not parts:
            raise ValueError(f"{method} requires at least one input block")
        wants_json = bool(json_schema is not None or json_mode)
        system = "\n\n".join(t for t in (system_prompt or "", JSON_ONLY if wants_json else "") if t.strip())
        text = instructions
        if schema_name:
            text += f"\n\nSchema name: {schema_name}"
        if json_schema is not None:
            text += f"\n\nJSON schema:\n{json.dumps(json_schema, sort_keys=True, ensure_ascii=False)}"
        user = Message("user", [{"type": "text", "text": text}, *parts])
        return cls([Message("system", system), user] if system else [user], json_schema, wants_json, schema_name or "")

    def response_format(self) -> dict[str, Any]:
        """Return the fields of the request that ask the provider for the shape; none when it is not JSON."""
        if self.schema is not None:
            named = {"name": "plugin_structured_output", "schema": self.schema, "strict": False}
            return {"response_format": {"type": "json_schema", "json_schema": named}}
        return {"response_format": {"type": "json_object"}} if self.wants_json else {}


def parse_structured(form: StructuredForm, text: str) -> tuple[Any, str]:
    """Return the value of an answer and its content type, `json` or `text`.

    Raises:
        ValueError: it is JSON and does not match the schema.
        jsonschema.SchemaError: the schema is none.
    """
    if not form.wants_json:
        return None, "text"
    bare = text.strip()
    fenced = _FENCE.match(bare)
    try:
        value = json.loads(fenced[1] if fenced else bare)
    except (ValueError, RecursionError):
        return None, "text"
    if form.schema is not None:
        _validate(value, form.schema)
    return value, "json"


def _validate(value: Any, schema: dict[str, Any]) -> None:
    try:
        import jsonschema  # 0.1 s: only a call with a schema pays it
    except ImportError:
        logger.debug("jsonschema is not installed: the answer is not compared with its schema")
        return
    try:
        jsonschema.validate(value, schema)
    except jsonschema.ValidationError as exc:
        raise ValueError(f"Plugin LLM structured output did not match schema: {exc.message}") from exc


def _part(block: Any) -> dict[str, Any]:
    """Return a block as a part of a message."""
    if isinstance(block, PluginLlmTextInput | PluginLlmImageInput):
        block = vars(block)
    if not isinstance(block, Mapping):
        raise ValueError(f"Unsupported input block: {type(block).__name__}")
    kind = block.get("type")
    if kind == "text":
        return _text(block.get("text"))
    if kind == "image":
        return _image(block.get("data"), block.get("url"), block.get("mime_type"))
    raise ValueError(f"Unknown input block type: '{kind}'")


def _text(text: Any) -> dict[str, Any]:
    if not isinstance(text, str):
        raise ValueError("text input block requires 'text' string")
    return {"type": "text", "text": text}


def _image(data: Any, url: Any, mime_type: Any) -> dict[str, Any]:
    if data:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise ValueError("image input 'data' must be bytes")
        url = f"data:{mime_type or 'image/png'};base64,{base64.b64encode(data).decode()}"
    if not url or not isinstance(url, str):
        raise ValueError("image input block requires 'data' bytes or 'url'")
    return {"type": "image_url", "image_url": {"url": url}}
