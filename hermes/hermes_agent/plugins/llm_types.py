"""Arguments, results and permissions of `ctx.llm`; upstream's name is "agent.plugin_llm".

The texts of refusals are those of the contract, word for word. Source: plugin contract §5.2 to §5.4.
"""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from hermes_agent.config import load, stamp
from hermes_agent.core.errors import ConfigError
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.core.messages import Message
from hermes_agent.credentials.logins import LoginStore
from hermes_agent.models.providers import list_key_profiles

logger = logging.getLogger(__name__)


@lazy_dataclass
class PluginLlmTextInput:
    """A text block of `complete_structured`."""

    text: str
    type: str = "text"


@lazy_dataclass
class PluginLlmImageInput:
    """An image block of `complete_structured`: its bytes or its URL."""

    data: bytes | None = None
    url: str | None = None
    mime_type: str = "image/png"
    file_name: str = ""
    type: str = "image"


@lazy_dataclass
class PluginLlmUsage:
    """Tokens of one call; zero where the provider reports none."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float | None = None
    """US dollars; 0 for a free provider, the figure that the provider reports, or None if it is unknown."""


@lazy_dataclass
class PluginLlmCompleteResult:
    """An answer of the model."""

    text: str
    provider: str
    model: str
    agent_id: str
    usage: PluginLlmUsage = field(default_factory=PluginLlmUsage)
    audit: dict[str, Any] = field(default_factory=dict)
    """`plugin_id`, `purpose`, `profile`; also `schema_name` if one was given."""


@lazy_dataclass
class PluginLlmStructuredResult(PluginLlmCompleteResult):
    """An answer that may be JSON."""

    parsed: Any = None
    """The value, or None if the answer is no JSON or none was requested; `text` has the raw answer."""
    content_type: str = "text"
    """`json` if `parsed` is the answer, else `text`."""


JSON_ONLY = (
    "Reply with one single JSON object and nothing else: no prose before or after it, and no code fences around it."
)
_FENCE = re.compile(r"\A```[\w-]*[ \t]*\r?\n?(.*?)\s*```\Z", re.DOTALL)
_IMAGES = frozenset({"image_url", "input_image", "image"})


def chat_messages(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Read the messages of `complete`.

    Raises:
        ValueError: the list is empty, or an item is no message of the chat-completions protocol.
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
    """Return whether a part of a message is an image."""
    return any(part.get("type") in _IMAGES for m in messages if isinstance(m.content, list) for part in m.content)


@lazy_dataclass(frozen=True, slots=True)
class StructuredForm:
    """A structured call: its input and the requested format of the answer."""

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
            method: name of the method, for error texts.

        Raises:
            ValueError: the instructions or the input are missing, or a block is invalid.
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
        """Return the request fields for the answer format; empty if JSON is not requested."""
        if self.schema is not None:
            named = {"name": "plugin_structured_output", "schema": self.schema, "strict": False}
            return {"response_format": {"type": "json_schema", "json_schema": named}}
        return {"response_format": {"type": "json_object"}} if self.wants_json else {}


def parse_structured(form: StructuredForm, text: str) -> tuple[Any, str]:
    """Return the value of an answer and its content type, `json` or `text`.

    Raises:
        ValueError: the answer is JSON and does not match the schema.
        jsonschema.SchemaError: the schema is invalid.
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
        import jsonschema  # 0.1 s: only a call with a schema needs it
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


class PluginLlmTrustError(PermissionError):
    """A plugin requested a choice for which the operator gave no permission."""


class Overrides(LazyNamedTuple):
    """Choices of a call that differ from the operator's; empty fields request nothing."""

    provider: str
    model: str
    agent_id: str
    profile: str

    @classmethod
    def of(cls, *wanted: str | None) -> Overrides:
        """Read the four arguments of a call; None and blank texts request nothing."""
        return cls(*(str(value or "").strip() for value in wanted))


_OVERRIDE_VERBS = {
    "provider": "override the provider",
    "model": "override the model",
    "agent_id": "run completions against a non-default agent id",
    "profile": "override the auth profile",
}


def check_overrides(plugin_id: str, policy: Mapping[str, Any], wanted: Overrides) -> None:
    """Check that the operator permits the requested choices.

    Args:
        policy: `plugins.entries.<plugin id>.llm`.

    Raises:
        PluginLlmTrustError: a choice is not permitted.
    """
    place = f"plugins.entries.{plugin_id}.llm"
    for name, doing in _OVERRIDE_VERBS.items():
        value = getattr(wanted, name)
        if value and policy.get(f"allow_{name}_override") is not True:
            raise PluginLlmTrustError(
                f"Plugin '{plugin_id}' cannot {doing} (set {place}.allow_{name}_override to true to allow)."
            )
        allowed = policy.get(f"allowed_{name}s") if value and name in ("provider", "model") else None
        if not isinstance(allowed, list):  # without a list every value is permitted, with an empty one none
            continue
        names = {str(each).strip().lower() for each in allowed}
        if "*" not in names and value.lower() not in names:
            raise PluginLlmTrustError(
                f"Plugin '{plugin_id}' {name} override '{value}' is not in {place}.allowed_{name}s."
            )


def known_profile(name: str, values: Mapping[str, Any], logins: LoginStore) -> None:
    """Check the name of a credential.

    Args:
        values: the effective config; `providers.<name>.profiles` names the credentials.
        logins: the stored sign-ins, each with its name.

    Raises:
        ValueError: no provider has a credential of that name.
    """
    known = list_key_profiles(values.get("providers"), logins) if name else ()
    if name and name not in known:
        raise ValueError(f"unknown auth profile {name!r}; known: {', '.join(known)}")


class LlmPermissions:
    """The present permissions of one plugin; a revocation takes effect without a restart.

    Args:
        home: the home with the config.
        plugin_id: key in `plugins.entries`.
    """

    def __init__(self, home: Path, plugin_id: str) -> None:
        self._home = home
        self._plugin_id = plugin_id
        self._known: tuple[object, Mapping[str, Any]] | None = None

    def read(self) -> Mapping[str, Any]:
        """Return `plugins.entries.<plugin id>.llm`; the config files are read again after a change.

        While one of the files is invalid, nothing is permitted.
        """
        now = stamp(self._home)
        if self._known is None or self._known[0] != now:
            self._known = (now, self._load())
        return self._known[1]

    def _load(self) -> Mapping[str, Any]:
        try:
            found: Any = load(self._home).values
        except ConfigError as exc:
            logger.warning("the config is broken: plugin %s may choose nothing for the model: %s", self._plugin_id, exc)
            return {}
        for key in ("plugins", "entries", self._plugin_id):
            found = found.get(key) if isinstance(found, Mapping) else None
        entry: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
        policy = entry.get("llm")
        granted = entry.get("granted_capabilities")
        names = [str(name) for name in granted] if isinstance(granted, list) else []
        opened = {f"allow_{name[4:]}": True for name in names if name.startswith("llm.")}
        return {**(policy if isinstance(policy, Mapping) else {}), **opened}
