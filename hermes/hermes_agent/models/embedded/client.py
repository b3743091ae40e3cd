"""What the embedded model said, as it comes: the final text piece by piece, or a call at the end.

Models of the user's own, whose server has no grammar and no tool template, write a call as bare JSON, in a code fence
or in `<tool_call>` tags, under one of several key names (`find_calls`).

The embedded model as a provider: a `ModelClient` whose answers come from a child process of this machine.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from hermes_agent.contracts.model_provider import ProviderProfile
from hermes_agent.core.errors import ContextTooLong, ModelError
from hermes_agent.core.messages import Message, ToolCall, Usage, new_id
from hermes_agent.models.client import HttpModelClient
from hermes_agent.models.embedded.prompt import ToolPrompt, build_prompt, canonical_call
from hermes_agent.models.embedded.server import LocalModelServer, LocalServerSettings
from hermes_agent.models.embedded.tool_menu import STRING_MAX
from hermes_agent.models.http_transport import HttpTimeouts, load_http
from hermes_agent.models.providers import LOCAL, ModelEndpoint, provider_from_profile
from hermes_agent.models.request import ModelAnswer, ModelDelta, ModelRequest, RequestOptions, TextPart

_OPENING = re.compile(r'\s*\{\s*"action"\s*:\s*"final"\s*,\s*"text"\s*:\s*"')
_WRITTEN = re.compile(r'(?:[^"\\]|\\[^u]|\\u[0-9a-fA-F]{4})*')
"""Characters and whole escapes of a JSON string."""
_HALF = re.compile(r"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})$")
"""The first escape of two that are one character; a backslash that is written as two begins none."""
_UNKNOWN_ESCAPE = re.compile(r'\\(?:(["\\/bfnrtu])|(.))', re.DOTALL)
_NO_CHARACTER = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class ParsedToolCall:
    """A tool that the model wants to use."""

    name: str
    arguments: dict[str, Any]


def read_reply(text: str) -> ParsedToolCall | str | None:
    """Read one whole reply: a call, the final text, or None when it has neither form."""
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
    """Say whether a string in `value` is as long as the grammar allows: it was probably cut there."""
    if isinstance(value, str):
        return len(value) >= STRING_MAX
    if isinstance(value, dict):
        return any(is_probably_cut(v) for v in value.values())
    return isinstance(value, list) and any(is_probably_cut(v) for v in value)


class FinalTextDecoder:
    """Decodes the text of `{"action": "final", "text": "…"}` while it is being written."""

    def __init__(self) -> None:
        self._pending = ""
        self._inside = False
        self.text = ""
        """Everything decoded so far."""

    def feed(self, chunk: str) -> str:
        """Take the next characters of the reply; return the text that they complete, possibly empty."""
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
        sound = _UNKNOWN_ESCAPE.sub(lambda escape: escape[0] if escape[1] else escape[2], written)
        out = _NO_CHARACTER.sub("\ufffd", json.loads(f'"{sound}"', strict=False))
        self.text += out
        return out


_DECODER = json.JSONDecoder()
_START = re.compile(r"[{\[]")
_BRACKETS = re.compile(r"[{\[\s]+")
_NAME_KEYS = ("name", "action", "tool", "function")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input")


def find_calls(text: str, names: Collection[str]) -> list[ParsedToolCall]:
    """Return the calls of the tools `names` that `text` has in it, in order; everything else is prose.

    Arguments may be an object or a JSON text of one; a call without them has an empty object.
    """
    return [call for value in _json_values(text) for call in _calls(value, names)]


def _json_values(text: str) -> Iterator[Any]:
    at = 0
    while (start := _START.search(text, at)) is not None:
        try:
            value, at = _DECODER.raw_decode(text, start.start())
        except ValueError:
            at = start.end()
        except RecursionError:  # thousands of brackets: those behind the first are as deep
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
    if isinstance(several := value.get("tool_calls"), list):
        yield from _calls(several, names)
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


logger = logging.getLogger(__name__)

LOCAL_PROVIDER = provider_from_profile(ProviderProfile(LOCAL, display_name="the embedded model", needs_key=False))
TRIES = 3
"""Requests for one step: the first, and again after a reply that is cut, that repeats an answered call, or that states
a number of its own after a failed call."""
SILENCE_S = 600.0
"""Longest silence of the model: reading a full context of 8192 tokens takes up to 5 minutes on one core."""


class LocalModelClient:
    """Answers from local weights; the process starts with the first request.

    Args:
        settings: which weights, and how they are loaded.
        server: the process to use; None makes one from `settings`.
    """

    provider = LOCAL
    base_url = url = ""
    api_mode = "chat_completions"

    def __init__(self, settings: LocalServerSettings, *, server: LocalModelServer | None = None) -> None:
        self._settings = settings
        self.fits_within = settings.context_length
        self._server = server or LocalModelServer(settings)

    def is_priced(self, model: str) -> bool:
        """It costs nothing."""
        return True

    def warm_up(self) -> None:
        """Import the HTTP library (see `ModelClient.warm_up`)."""
        load_http()

    def unsupported(self, model: str, options: RequestOptions) -> tuple[str, str] | None:
        """Return the first option that cannot be sent (see `ModelClient.unsupported`)."""
        names = [name for name in options.values() if name in ("stop", "reasoning_effort", "verbosity")]
        if options.tool_choice not in (None, "auto", "none"):
            names.append("tool_choice")
        return (names[0], "the embedded model has nothing of the kind") if names else None

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        """Ask the model; see `ModelClient.stream`. A call comes whole, an answer's text as it is written.

        Raises:
            ModelError: `unreachable` (it does not start), `context_too_long`, or `cut_off` (the process died, or the
                reply had no usable form twice).
        """
        prompt = build_prompt(request, self._settings.context_length)
        usage, text = Usage(), ""
        body = prompt.body()
        for _ in range(TRIES):
            final = FinalTextDecoder()
            async with aclosing(self._reply(body)) as items:
                async for item in items:
                    if isinstance(item, ModelAnswer):
                        reply = item
                    elif (
                        piece := final.feed(item.text) if prompt.tools else item.text
                    ) and not prompt.is_after_failure:
                        yield TextPart(piece)
            usage += reply.usage
            text, call = (final.text if prompt.tools else reply.message.text), _find_menu_call(reply, prompt)
            if text and not (why := prompt.find_objection(text)):
                if prompt.is_after_failure:
                    yield TextPart(text)
                yield self._answer(text, (), reply.finish_reason, usage)
                return
            if text:
                body |= prompt.body(only_final=True, without_digits=True)
            elif reply.finish_reason == "length" and request.options.max_tokens is not None:
                raise _empty_answer_text(request.options.max_tokens, usage)
            elif call is None:
                # at temperature 0 the same request gives the same reply
                why, body = "unusable", body | {"temperature": 0.4, "repeat_penalty": 1.15}
            elif canonical_call(call.name, json.dumps(call.arguments)) in prompt.answered_calls:
                why, body = "a call again", body | prompt.body(only_final=True)
            else:
                made = ToolCall(new_id("call"), call.name, json.dumps(call.arguments, ensure_ascii=False))
                yield self._answer("", (made,), "tool_calls", usage)
                return
            logger.info("embedded model asked again: reply was %s", why)
        raise ModelError(
            "cut_off",
            f"The embedded model gave no usable answer ({len(reply.message.text)} characters, {reply.finish_reason}).",
            hint="Say it in other words, or configure a larger model.",
        )

    async def aclose(self) -> None:
        """Stop the process."""
        await self._server.aclose()

    def _answer(self, text: str, calls: tuple[ToolCall, ...], reason: str, usage: Usage) -> ModelAnswer:
        return ModelAnswer(Message("assistant", text, calls), reason, usage, self._settings.alias)

    async def _reply(self, body: dict[str, Any]) -> AsyncGenerator[ModelDelta, None]:
        """Yield one reply as it comes."""
        where = await self._server.ensure_started()
        client = HttpModelClient(
            ModelEndpoint(LOCAL_PROVIDER, f"{where.base_url}/v1", where.api_key),
            HttpTimeouts(first_byte_s=SILENCE_S, idle_s=SILENCE_S),
            is_child=True,
        )
        messages = [Message.from_dict(each) for each in body["messages"]]
        extra = {name: value for name, value in body.items() if name != "messages"}
        request = ModelRequest(self._settings.alias, messages, extra=extra)
        try:
            async with aclosing(client), aclosing(client.stream(request)) as items:
                async for item in items:
                    yield item
        except ModelError as exc:
            if isinstance(exc, ContextTooLong):
                exc.hint += " `model.local.context_length` says how much it can see."
            if exc.kind not in ("cut_off", "unreachable") or (how := await self._server.exit_reason()) is None:
                raise
            lines = self._server.last_lines()
            raise ModelError(
                "cut_off",
                f"The embedded model's process {how} in the middle of an answer.",
                hint="It is started again with the next question." + (f" Its last lines:\n{lines}" if lines else ""),
            ) from exc


def _empty_answer_text(max_tokens: int, usage: Usage) -> ModelError:
    error = ModelError("refused", f"The embedded model had no answer within {max_tokens} tokens.", hint="Ask for more.")
    error.finish_reason, error.usage = "length", usage
    return error


def _find_menu_call(reply: ModelAnswer, prompt: ToolPrompt) -> ParsedToolCall | None:
    """Return the call of a whole reply; None for one that is cut, or that is no call of the menu."""
    if reply.finish_reason == "length":
        return None
    said, names = reply.message.text, {t.name for t in prompt.tools}
    found = read_reply(said) or next(iter(find_calls(said, names)), None)
    if isinstance(found, ParsedToolCall) and found.name in names and not is_probably_cut(found.arguments):
        return found
    return None
