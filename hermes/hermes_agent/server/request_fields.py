"""The fields of a request: which are accepted, and the options for the model request.

`CHAT` and `RESPONSES` list all accepted fields; others are rejected by name. Null counts as absent.

read     the request itself (`chat_format`, `responses_format`)
sent     passed on with each model request of the turn (`contracts.model_client.RequestOptions`)
label    names the request, or hints at a cache of OpenAI; it has no effect on the answer and is ignored
refused  requests something that the agent does not support; only a neutral value is accepted

`docs/operator/http.md` and `openapi.json` have the same tables (a test compares them).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from hermes_agent.contracts.model_client import NO_OPTIONS, RequestOptions
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.server.http_types import HttpError

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
LONGEST = 1 << 31
"""Tokens; above the limit of any model."""
LARGEST_SEED = 1 << 63
STOPS = 4
"""Limit of stop sequences, as at OpenAI."""


def bad_request(message: str, param: str | None) -> HttpError:
    """Return the error 400 for a value that is wrong at `param`."""
    return HttpError(400, message, code="invalid_request", param=param)


def unsupported_field(name: str, reason: str) -> HttpError:
    """Return the error 400 for a field that is not supported."""
    return HttpError(400, f"{name} is not supported: {reason}", code="unsupported_parameter", param=name)


def kind_of(value: Any) -> str:
    """Return the name of the type of a JSON value."""
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


# -- reading one option ------------------------------------------------------------------------------------------------

Reader = Callable[[Any, str], Any]
"""Returns a checked value; raises HttpError. The second argument is the name of the field."""


def _number(low: float, high: float) -> Reader:
    def read(value: Any, name: str) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise bad_request(f"{name} is {kind_of(value)}: expected a number from {low:g} to {high:g}", name)
        if not low <= value <= high:
            raise bad_request(f"{name} is {value:g}: expected a number from {low:g} to {high:g}", name)
        return value

    return read


def _whole(low: int, high: int) -> Reader:
    def read(value: Any, name: str) -> Any:
        if isinstance(value, bool) or not isinstance(value, int):
            raise bad_request(f"{name} is {kind_of(value)}: expected a whole number", name)
        if not low <= value < high:
            raise bad_request(f"{name} is {str(value)[:30]}: expected {low} or more, below {high}", name)
        return value

    return read


def _word(*known: str) -> Reader:
    def read(value: Any, name: str) -> Any:
        if value not in known:
            shown = repr(value[:100]) if isinstance(value, str) else kind_of(value)
            raise bad_request(f"{name} is {shown}: expected one of {', '.join(known)}", name)
        return value

    return read


def _flag(value: Any, name: str) -> Any:
    if not isinstance(value, bool):
        raise bad_request(f"{name} is {kind_of(value)}: expected true or false", name)
    return value


def _stop(value: Any, name: str) -> Any:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts) or len(texts) > STOPS:
        raise bad_request(f"{name}: expected text, or a list of at most {STOPS} texts", name)
    return value or None


def _bias(value: Any, name: str) -> Any:
    if not isinstance(value, dict):
        raise bad_request(f"{name} is {kind_of(value)}: expected an object", name)
    for token, number in value.items():
        _number(-100, 100)(number, f"{name}.{token[:30]}")
    return value or None


def _tool_choice(value: Any, name: str) -> Any:
    """Return `tool_choice` or `function_call` of either API in the form of chat completions."""
    if value in ("none", "auto", "required"):
        return value
    function = value.get("function", value) if isinstance(value, dict) else None
    if isinstance(value, dict) and value.get("type", "function") != "function":
        raise unsupported_field(name, "the agent offers all of its own functions and the caller's, and no others")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
        raise bad_request(f"{name}: expected none, auto, required or a function of the agent", name)
    return {"type": "function", "function": {"name": function["name"]}}


def read_response_format(value: Any, name: str) -> Any:
    """Return `response_format` (`text.format` of Responses) as in chat completions; None for text."""
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "json_object"}
    form = value.get("json_schema", value) if kind == "json_schema" else None
    if not isinstance(form, dict):
        raise bad_request(f"{name}: expected an object with the type text, json_object or json_schema", name)
    if not isinstance(form.get("name"), str) or not _FUNCTION_NAME.fullmatch(form["name"]):
        raise bad_request(f"{name}.json_schema.name: expected 1 to 64 letters, digits, `_` or `-`", f"{name}.name")
    if not isinstance(form.get("schema"), dict):
        raise bad_request(f"{name}.json_schema.schema: expected an object", f"{name}.schema")
    own = {key: form[key] for key in ("name", "description", "schema", "strict") if form.get(key) is not None}
    return {"type": "json_schema", "json_schema": own}


_FUNCTION_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
MOST_TOOLS = 128
"""Tools of one request, as at OpenAI."""


def read_tools(value: Any, name: str) -> tuple[dict[str, Any], ...]:
    """Return the tools of the caller, in the form of chat completions.

    Args:
        value: `tools` of either API, or `functions`; a tool of the Responses API has its fields one level up.

    Raises:
        HttpError: 400 with the path and the expected value.
    """
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MOST_TOOLS:
        raise bad_request(f"{name}: expected a list of at most {MOST_TOOLS} functions", name)
    found = tuple(_function(item, f"{name}[{i}]") for i, item in enumerate(value))
    names = [tool["function"]["name"] for tool in found]
    if twice := next((each for i, each in enumerate(names) if each in names[:i]), ""):
        raise bad_request(f"{name}: two functions have the name {twice!r}", name)
    return found


def _function(item: Any, at: str) -> dict[str, Any]:
    kind = item.get("type", "function") if isinstance(item, dict) else None
    if isinstance(kind, str) and kind != "function":
        raise unsupported_field(f"{at}.type", f"the agent runs no {kind[:40]!r}; only functions of the caller")
    function = item.get("function", item) if isinstance(item, dict) else None
    if not isinstance(function, dict) or kind is None:
        raise bad_request(f"{at}: expected a function", at)
    if not isinstance(function.get("name"), str) or not _FUNCTION_NAME.fullmatch(function["name"]):
        raise bad_request(f"{at}.function.name: expected 1 to 64 letters, digits, `_` or `-`", f"{at}.function.name")
    description, parameters = function.get("description"), function.get("parameters")
    if not isinstance(description, str | None):
        raise bad_request(f"{at}.function.description: expected text", f"{at}.function.description")
    if not isinstance(parameters, dict | None):
        raise bad_request(f"{at}.function.parameters: expected an object", f"{at}.function.parameters")
    own: dict[str, Any] = {"name": function["name"]}
    if description is not None:
        own["description"] = description
    own["parameters"] = parameters or {"type": "object", "properties": {}}
    if isinstance(function.get("strict"), bool):
        own["strict"] = function["strict"]
    return {"type": "function", "function": own}


# -- the tables --------------------------------------------------------------------------------------------------------


class OptionField(LazyNamedTuple):
    """A field that is passed on. `name`: its name in chat completions."""

    name: str
    read: Reader


class Fields(LazyNamedTuple):
    """Fields of one API."""

    read: frozenset[str]
    sent: Mapping[str, OptionField]
    labels: frozenset[str]
    refused: Mapping[str, tuple[tuple[Any, ...], str]]
    """Neutral values, and the reason why others are rejected."""

    @property
    def all(self) -> frozenset[str]:
        """All accepted fields."""
        return self.read | self.labels | frozenset(self.sent) | frozenset(self.refused)


_TEMPERATURE = OptionField("temperature", _number(0, 2))
_TOP_P = OptionField("top_p", _number(0, 1))
_MAX_TOKENS = OptionField("max_tokens", _whole(1, LONGEST))
_TOOL_CHOICE = OptionField("tool_choice", _tool_choice)
_PARALLEL = OptionField("parallel_tool_calls", _flag)
_PENALTY = _number(-2, 2)
EFFORT = OptionField("reasoning_effort", _word(*EFFORTS))
VERBOSITY = OptionField("verbosity", _word("low", "medium", "high"))

_LABELS = frozenset(
    {
        *("user", "safety_identifier", "metadata"),
        *("prompt_cache_key", "prompt_cache_retention", "prompt_cache_options"),
    }
)
_REFUSED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "top_logprobs": ((0,), "the agent does not have them"),
    "service_tier": (("auto", "default"), "the agent does not choose it"),
    "moderation": ((), "the agent does not have it"),
}

CHAT = Fields(
    frozenset({"model", "messages", "stream", "stream_options", "store", "tools"}),
    {
        "temperature": _TEMPERATURE,
        "top_p": _TOP_P,
        "max_tokens": _MAX_TOKENS,
        "max_completion_tokens": _MAX_TOKENS,
        "stop": OptionField("stop", _stop),
        "seed": OptionField("seed", _whole(-LARGEST_SEED, LARGEST_SEED)),
        "presence_penalty": OptionField("presence_penalty", _PENALTY),
        "frequency_penalty": OptionField("frequency_penalty", _PENALTY),
        "logit_bias": OptionField("logit_bias", _bias),
        "reasoning_effort": EFFORT,
        "verbosity": VERBOSITY,
        "tool_choice": _TOOL_CHOICE,
        "function_call": _TOOL_CHOICE,
        "parallel_tool_calls": _PARALLEL,
        "response_format": OptionField("response_format", read_response_format),
    },
    _LABELS,
    {
        **_REFUSED,
        "functions": (([],), "send tools, which have a newer form"),
        "n": ((1,), "the agent gives one answer"),
        "logprobs": ((False,), "the agent does not have them"),
        "modalities": ((["text"],), "the agent answers with text"),
        "audio": ((), "the agent answers with text"),
        "prediction": ((), "the agent makes several model requests of one"),
        "web_search_options": ((), "the agent has tools of its own to search with"),
    },
)

RESPONSES = Fields(
    frozenset(
        {
            *("model", "input", "instructions", "stream", "stream_options", "store", "previous_response_id"),
            *("reasoning", "text", "tools"),
        }
    ),
    {
        "temperature": _TEMPERATURE,
        "top_p": _TOP_P,
        "max_output_tokens": _MAX_TOKENS,
        "tool_choice": _TOOL_CHOICE,
        "parallel_tool_calls": _PARALLEL,
    },
    _LABELS,
    {
        **_REFUSED,
        "background": ((False,), "send the request and wait, or stream"),
        "conversation": ((), "previous_response_id goes on with an answer"),
        "prompt": ((), "the agent stores no prompt templates"),
        "include": (([], ["reasoning.encrypted_content"]), "the agent does not have it"),
        "max_tool_calls": ((), "the agent's steps have a limit of their own (`agent.max_turns`)"),
        "truncation": (("disabled",), "the agent shortens sessions by itself, and no others"),
        "context_management": ((), "the agent shortens sessions by itself"),
    },
)


def check_fields(value: Mapping[str, Any], fields: Fields) -> None:
    """Reject unknown fields, and fields that the agent does not support.

    Raises:
        HttpError: 400 with the name of the field.
    """
    for name, given in value.items():
        if name not in fields.all:
            raise HttpError(
                400,
                f"{name[:100]} is an unknown field; GET /openapi.json lists the fields",
                code="unknown_parameter",
                param=name[:100],
            )
        if given is None or name not in fields.refused:
            continue
        neutral, reason = fields.refused[name]
        if not any(given == item and isinstance(given, bool) == isinstance(item, bool) for item in neutral):
            raise unsupported_field(name, reason)
    metadata = value.get("metadata")
    if metadata is not None and not (isinstance(metadata, dict) and all(isinstance(v, str) for v in metadata.values())):
        raise bad_request("metadata: expected an object of texts", "metadata")


def options_of(value: Mapping[str, Any], fields: Fields) -> tuple[RequestOptions, dict[str, str]]:
    """Return the options for the model, and their names in the request.

    Raises:
        HttpError: 400 with the path and the expected value.
    """
    found: dict[str, Any] = {}
    names: dict[str, str] = {}
    for field, option in fields.sent.items():
        read = None if value.get(field) is None else option.read(value[field], field)
        if read is None:
            continue
        if found.setdefault(option.name, read) != read:
            raise bad_request(f"{field} and {names[option.name]} have different values: send one of them", field)
        names[option.name] = field
    tools = read_tools(value.get("tools"), "tools")
    if not found and not tools:
        return NO_OPTIONS, names
    own = {name: found.pop(name, None) for name in ("max_tokens", "temperature", "tool_choice")}
    return RequestOptions(**own, extra=found, tools=tools), names
