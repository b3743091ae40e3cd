"""Client of the embedded model: request an answer of the child process, and read its reply.

Under the grammar a reply is one JSON object: the final text, which is streamed as it arrives, or a tool call. A file of
the user's own may ignore the grammar and write a call as bare JSON, in a code fence or in `<tool_call>` tags, under one
of several key names (`find_calls`).
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncGenerator, Collection, Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from hermes_agent.contracts.model_client import (
    ClientServices,
    ModelAnswer,
    ModelDelta,
    ModelRequest,
    RequestOptions,
    TextPart,
)
from hermes_agent.core.errors import ContextTooLong, ModelError
from hermes_agent.core.messages import Message, ToolCall, Usage, new_id

from .call_arguments import drop_empty, ground_paths, normalise_arguments
from .prompt import ToolPrompt, build_prompt, canonical_call
from .repetition import RepetitionFilter
from .server import LocalModelServer, LocalServerSettings, ServerAddress
from .template_request import fit_request, normalise_calls
from .tool_menu import STRING_MAX
from .weights import format_bytes

UNSUPPORTED = ("stop", "reasoning_effort", "verbosity", "response_format")
"""Options that its own grammar and reader leave no room for."""

UNSUPPORTED_BY_TEMPLATE = ("reasoning_effort", "verbosity")
"""Options that the server does not know, for a model that writes tool calls by itself."""

logger = logging.getLogger(__name__)

_OPENING = re.compile(r'\s*\{\s*"action"\s*:\s*"final"\s*,\s*"text"\s*:\s*"')
_WRITTEN = re.compile(r'(?:[^"\\]|\\[^u]|\\u[0-9a-fA-F]{4})*')
"""Characters and whole escapes of a JSON string."""
_HALF = re.compile(r"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})$")
"""The first escape of a surrogate pair; an escaped backslash begins none."""
_UNKNOWN_ESCAPE = re.compile(r'\\(?:(["\\/bfnrtu])|(.))', re.DOTALL)
_NO_CHARACTER = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class ParsedToolCall:
    """A tool call that the model wrote."""

    name: str
    arguments: dict[str, Any]


def read_reply(text: str) -> ParsedToolCall | str | None:
    """Return the tool call or the final text of a complete reply, or None if it has neither form."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    action, arguments, final = value.get("action"), value.get("arguments"), value.get("text")
    if action == "final" and isinstance(final, str):
        return final
    if isinstance(action, str) and action != "final" and isinstance(arguments, dict):
        return ParsedToolCall(action, arguments)
    return None


def is_probably_cut(value: Any) -> bool:
    """Return whether a string in `value` has the grammar's greatest length, so that it is probably cut."""
    if isinstance(value, str):
        return len(value) >= STRING_MAX
    if isinstance(value, dict):
        return any(is_probably_cut(v) for v in value.values())
    return isinstance(value, list) and any(is_probably_cut(v) for v in value)


class FinalTextDecoder:
    """Decoder of the text in `{"action": "final", "text": "…"}` while it arrives."""

    def __init__(self) -> None:
        self._pending = ""
        self._inside = False
        self.text = ""
        """The text so far."""

    def feed(self, chunk: str) -> str:
        """Add the next characters of the reply; return the text that they complete, possibly ""."""
        self._pending += chunk
        if not self._inside:
            opening = _OPENING.match(self._pending)
            if opening is None:
                return ""
            self._inside = True
            self._pending = self._pending[opening.end() :]
        found = _WRITTEN.match(self._pending)
        written = found[0] if found is not None else ""
        rest = self._pending[len(written) :]
        if not rest.startswith('"') and (half := _HALF.search(written)) is not None:
            written, rest = written[: half.start(1)], half[1] + rest
        self._pending = rest
        valid = _UNKNOWN_ESCAPE.sub(lambda escape: escape[0] if escape[1] else escape[2], written)
        out = _NO_CHARACTER.sub("\ufffd", json.loads(f'"{valid}"', strict=False))
        self.text += out
        return out


_DECODER = json.JSONDecoder()
_START = re.compile(r"[{\[]")
_BRACKETS = re.compile(r"[{\[\s]+")
_NAME_KEYS = ("name", "action", "tool", "function")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input")


def find_calls(text: str, names: Collection[str]) -> list[ParsedToolCall]:
    """Return the calls of the tools `names` in `text`, in order; the rest of the text is ignored.

    Arguments may be an object, or JSON text of an object; a call without arguments gets an empty object.
    """
    return [call for value in _json_values(text) for call in _calls(value, names)]


def _json_values(text: str) -> Iterator[Any]:
    at = 0
    while (start := _START.search(text, at)) is not None:
        try:
            value, at = _DECODER.raw_decode(text, start.start())
        except ValueError:
            at = start.end()
        except RecursionError:  # thousands of brackets: those after the first nest as deep
            nested = _BRACKETS.match(text, start.start())
            at = start.end() if nested is None else nested.end()
        else:
            yield value


def _calls(value: Any, names: Collection[str]) -> Iterator[ParsedToolCall]:
    if isinstance(value, list):
        for item in value:
            yield from _calls(item, names)
    if not isinstance(value, dict):
        return
    inner = value.get("function")
    if isinstance(inner, dict):
        value = inner
    if isinstance(calls := value.get("tool_calls"), list):
        yield from _calls(calls, names)
    name = next((value[k] for k in _NAME_KEYS if isinstance(value.get(k), str)), None)
    if name not in names or name is None:
        return
    arguments = _arguments(next((value[k] for k in _ARGUMENT_KEYS if k in value), {}))
    if arguments is not None:
        yield ParsedToolCall(name, arguments)


def _arguments(value: Any) -> dict[str, Any] | None:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return value if isinstance(value, dict) else None


MAX_REQUESTS = 3
"""Requests for one step: a reply is rejected if it is cut, repeats an answered call, or invents a number after a failed
call."""
SILENCE_S = 1800.0
"""Longest silence of the model: a prompt of 32,768 tokens takes up to 25 minutes on one core."""


class ReplyAttempt:
    """The requests for one step: the first, and those that follow a reply without use.

    Args:
        body: JSON of the first request.
    """

    def __init__(self, prompt: ToolPrompt, body: dict[str, Any]) -> None:
        self._prompt = prompt
        self.body = body
        """JSON of the next request."""
        self._is_corrected = False

    def find_new_call(self, reply: ModelAnswer) -> ParsedToolCall | None:
        """Return the call of a reply, or None if it has none or repeats one; then `body` is another request."""
        call = _find_menu_call(reply, self._prompt)
        if call is None:
            why = "unusable"
            # at temperature 0 the same request gives the same reply
            self.body = self.body | {"temperature": 0.4, "repeat_penalty": 1.15}
        elif canonical_call(call.name, json.dumps(call.arguments)) in self._prompt.answered_calls:
            why, call = "a repeated call", None
            self.body = self.body | self._prompt.body(only_final=True)
        else:
            return call
        logger.info("embedded model: request repeated: reply was %s", why)
        return None

    def correct(self, text: str, objection: str) -> bool:
        """Set `body` to a request for an answer without what no result has; return False after the first time."""
        if self._is_corrected:
            return False
        self._is_corrected = True
        self.body = self._prompt.correct(text, objection)
        logger.info("embedded model: request repeated: no result has %s", objection)
        return True


class LocalModelClient:
    """A `ModelClient` for weights on this machine; the process starts with the first request.

    Args:
        services: parts of the host.
        settings: which weights are loaded, and how.
        server: the process to use; None makes one from `settings`.
    """

    provider = "local"
    base_url = url = ""
    api_mode = "chat_completions"

    def __init__(
        self, services: ClientServices, settings: LocalServerSettings, *, server: LocalModelServer | None = None
    ) -> None:
        self._services = services
        self._settings = settings
        self.fits_within = settings.context_length
        self._server = server or LocalModelServer(settings)

    def is_priced(self, model: str) -> bool:
        """Return True: an answer costs nothing."""
        return True

    def warm_up(self) -> None:
        """Import the HTTP library (see `ModelClient.warm_up`)."""
        self._services.load_http()

    def loading_notice(self) -> str:
        """Return a sentence on what the next request waits for (see `LoadingModel`)."""
        path = self._settings.path
        if self._server.is_ready or not path.is_file():
            return ""
        size = format_bytes(path.stat().st_size)
        return f"Loading the embedded model {self._settings.alias} ({size}) …"

    def unsupported(self, model: str, options: RequestOptions) -> tuple[str, str] | None:
        """Return the first option that cannot be sent (see `ModelClient.unsupported`)."""
        by_template = self._settings.writes_tool_calls
        refused = UNSUPPORTED_BY_TEMPLATE if by_template else UNSUPPORTED
        names = [name for name in options.values() if name in refused]
        if not by_template and options.tool_choice not in (None, "auto", "none"):
            names.append("tool_choice")
        return (names[0], "the embedded model has no such option") if names else None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Send a request (see `ModelClient.stream`); a tool call is yielded whole, text as it arrives.

        An answer after a tool call is checked before it is yielded, and asked for once more if it fails.

        Raises:
            ModelError: `unreachable` (the process does not start), `context_too_long`, or `cut_off` (the process ended,
                or no reply had a usable form).
        """
        answer = self._stream_by_template if self._settings.writes_tool_calls else self._stream_by_grammar
        async with aclosing(answer(request)) as items:
            async for item in items:
                yield item

    async def _stream_by_grammar(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Yield the answer of a model whose replies the grammar restricts."""
        prompt = build_prompt(
            request, self._settings.context_length, self._services.mask_message, self._settings.system_place
        )
        usage, attempt = Usage(), ReplyAttempt(prompt, prompt.body())
        is_held = bool(prompt.plain_answer)
        for _ in range(MAX_REQUESTS):
            final, repetition, text = FinalTextDecoder(), RepetitionFilter(), ""
            async with aclosing(self._reply(attempt.body)) as items:
                async for item in items:
                    if isinstance(item, ModelAnswer):
                        reply, piece = item, repetition.flush()
                    else:
                        written = item.text if prompt.is_plain else final.feed(item.text)
                        piece = written if prompt.response_format else repetition.feed(written)
                    text += piece
                    if piece and not is_held:
                        yield TextPart(piece)
                    if repetition.is_loop:
                        logger.info("embedded model: answer ended: it repeats itself")
                        reply = self._answer(text, (), "stop", Usage())
                        break
            usage += reply.usage
            if text and not (objection := prompt.find_objection(text)):
                if is_held:
                    yield TextPart(text)
                yield self._answer(text, (), reply.finish_reason, usage)
                return
            if not text and reply.finish_reason == "length" and request.options.max_tokens is not None:
                raise _empty_answer(request.options.max_tokens, usage)
            if not text and (call := attempt.find_new_call(reply)) is not None:
                tool_call = ToolCall(new_id("call"), call.name, json.dumps(call.arguments, ensure_ascii=False))
                yield self._answer("", (tool_call,), "tool_calls", usage)
                return
            if text and not attempt.correct(text, objection):
                break
        if plain := prompt.fallback(text):
            yield TextPart(plain)
            yield self._answer(plain, (), "stop", usage)
            return
        raise ModelError(
            "cut_off",
            f"The embedded model gave no usable answer ({len(reply.message.text)} characters, {reply.finish_reason}).",
            hint="Use other words, or configure a larger model.",
        )

    async def aclose(self) -> None:
        """Stop the process."""
        await self._server.aclose()

    def _answer(self, text: str, calls: tuple[ToolCall, ...], reason: str, usage: Usage) -> ModelAnswer:
        return ModelAnswer(Message("assistant", text, calls), reason, usage, self._settings.alias, listed_cost_usd=0.0)

    async def _stream_by_template(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Yield the answer of a model that writes tool calls by itself."""
        fitted = fit_request(request, self._settings.context_length, self._services.mask_message)
        extra = {**fitted.options.extra, **fitted.extra, "cache_prompt": True}
        if fitted.tools and "tool_choice" not in extra and fitted.options.tool_choice == "none":
            extra["tool_choice"] = "none"
        sent = replace(fitted, model=self._settings.alias, extra=extra, session_id="")
        async with self._server.use() as address, aclosing(self._send(address, sent)) as items:
            async for item in items:
                if isinstance(item, ModelAnswer):
                    item = replace(normalise_calls(item, request.tools), listed_cost_usd=0.0)
                yield item

    async def _reply(self, body: dict[str, Any]) -> AsyncGenerator[ModelDelta, None]:
        """Yield one reply as it arrives."""
        messages = [Message.from_dict(each) for each in body["messages"]]
        extra = {name: value for name, value in body.items() if name != "messages"}
        request = ModelRequest(self._settings.alias, messages, extra=extra)
        async with self._server.use() as address, aclosing(self._send(address, request)) as items:
            async for item in items:
                yield item

    async def _send(self, address: ServerAddress, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        client = self._services.http_client(f"{address.base_url}/v1", address.api_key, silence_s=SILENCE_S)
        try:
            async with aclosing(client), aclosing(client.stream(request)) as items:
                async for item in items:
                    yield item
        except ModelError as exc:
            if isinstance(exc, ContextTooLong):
                exc.hint += " `model.local.context_length` sets its context window."
            if exc.kind not in ("cut_off", "unreachable") or (reason := await self._server.exit_reason()) is None:
                raise
            lines = self._server.last_lines()
            raise ModelError(
                "cut_off",
                f"The embedded model's process {reason} in the middle of an answer.",
                hint="It starts again with the next request." + (f" Its last lines:\n{lines}" if lines else ""),
            ) from exc


def _empty_answer(max_tokens: int, usage: Usage) -> ModelError:
    error = ModelError("refused", f"The embedded model had no answer within {max_tokens} tokens.", hint="Allow more.")
    error.finish_reason, error.usage = "length", usage
    return error


def _find_menu_call(reply: ModelAnswer, prompt: ToolPrompt) -> ParsedToolCall | None:
    """Return the tool call of a complete reply, or None if it is cut or calls no tool of the menu."""
    if reply.finish_reason == "length":
        return None
    text, names = reply.message.text, {t.name for t in prompt.tools}
    found = read_reply(text) or next(iter(find_calls(text, names)), None)
    if not isinstance(found, ParsedToolCall) or found.name not in names or is_probably_cut(found.arguments):
        return None
    tool = next(t for t in prompt.tools if t.name == found.name)
    required = tool.parameters["required"]
    arguments = drop_empty(normalise_arguments(found.arguments, tool.schema, tool.texts), required)
    return ParsedToolCall(found.name, ground_paths(arguments, required, prompt.sources))
