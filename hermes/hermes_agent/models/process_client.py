"""Clients of model providers that are programs: over ACP, and with a client of the plugin.

A request over ACP starts the program, sends the conversation as one prompt, and ends the program. The program gets a
listed environment and an empty directory. It is granted no permission, no file and no MCP server of the agent; its
calls of the agent's tools are blocks in its text.

Source: plugin contract of 0.23 §9.8; the published protocol (agentclientprotocol.com), version 1.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import tempfile
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from hermes_agent.contracts.model_client import (
    ModelDelta,
    ModelRequest,
    ReasoningPart,
    RequestOptions,
    TextPart,
)
from hermes_agent.contracts.model_provider import ProviderProfile, classify_by_profile
from hermes_agent.core.errors import ModelError, ModelErrorKind
from hermes_agent.core.messages import new_id
from hermes_agent.core.redaction import redactor
from hermes_agent.core.text import overlap, shorten
from hermes_agent.models.openai_format import parse_answer, to_keywords
from hermes_agent.system.program_pipe import ProgramEnded, ProgramPipe

logger = logging.getLogger(__name__)

SILENCE_S = 900.0
"""Longest wait for the next message of a program, in seconds."""
AUTH_REQUIRED = -32000
"""ACP's code of an error: sign in first."""
METHOD_NOT_FOUND = -32601
CALL, CALL_END = "<tool_call>", "</tool_call>"
_BEGIN, _END = re.compile(rf"{CALL}\s*(?={{)"), re.compile(rf"\s*{CALL_END}")
_JSON = json.JSONDecoder()
MOST_CALLS = 128
"""Marks of calls in an answer that are looked at: each is read up to where it is no JSON."""

_INSTRUCTIONS = """\
You answer as the model of an agent program. Do not use tools of your own: the agent runs the tools that are listed
here. To call one, write a block of exactly this form, with the arguments as a JSON object, and end your answer after
the last block:
<tool_call>{"name": "NAME", "arguments": {}}</tool_call>
Without a tool to call, answer in plain text."""


class _ProcessModelClient:
    """What both clients of a program have in common.

    Args:
        profile: as the plugin registered it.
        command: returns the program and its arguments.
    """

    base_url, url, api_mode, fits_within = "", "", "chat_completions", 0

    def __init__(self, profile: ProviderProfile, command: Callable[[], list[str]]) -> None:
        self.provider = profile.name
        self._profile = profile
        self._command = command

    def is_priced(self, model: str) -> bool:
        """Return False: a program does not report what an answer costs."""
        return False

    def warm_up(self) -> None:
        """Do nothing: there is nothing to import."""

    async def aclose(self) -> None:
        """Do nothing: no process outlives its request."""

    async def classify_error(self, error: ModelError, model: str) -> Any:
        """Return what the provider's profile makes of a failed request (see `ClassifyingClient`)."""
        return await classify_by_profile(self._profile, error, model, _in_thread)

    def _error(self, kind: ModelErrorKind, what: str, model: str, hint: str = "") -> ModelError:
        said = shorten(" ".join(redactor(what).split()), 300)
        name = self._profile.display_name or self.provider
        return ModelError(kind, f"{name} {said} (model {model!r}).", hint=hint or "Ask again, or `hermes logs`.")


class AcpModelClient(_ProcessModelClient):
    """A `ModelClient` that asks a program over ACP."""

    def unsupported(self, model: str, options: RequestOptions) -> tuple[str, str] | None:
        """Return the first option: the program is sent text alone (see `ModelClient.unsupported`)."""
        values = options.values()
        if values.get("tool_choice") in ("auto", "none"):  # the agent applies these
            del values["tool_choice"]
        return next(((name, "the program takes no options") for name in values), None)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Start the program, send the conversation, and yield the answer (see `ModelClient.stream`)."""
        own = {name: os.environ[name] for name in self._profile.env_vars if name in os.environ}
        text, spoken = AnswerText(holds_calls=bool(request.tools)), ""
        try:
            with tempfile.TemporaryDirectory(prefix="hermes-model-") as folder:
                async with ProgramPipe.opened(self._command(), cwd=folder, env=own) as pipe:
                    session = await self._begin(pipe, folder, request.model)
                    async with contextlib.aclosing(self._updates(pipe, session, request)) as updates:
                        async for kind, piece in updates:
                            if kind == "agent_thought_chunk":
                                if request.shows_reasoning:
                                    yield ReasoningPart(piece)
                            elif shown := text.feed(piece):
                                spoken += shown
                                yield TextPart(shown)
        except TimeoutError:
            raise self._error("unreachable", f"said nothing for {SILENCE_S:g} seconds", request.model) from None
        except (AttributeError, TypeError) as exc:  # a message of another form
            raise self._error("cut_off", f"does not keep to the protocol: {exc}", request.model) from exc
        except (ProgramEnded, OSError) as exc:
            raise self._error("cut_off" if spoken else "unreachable", f"gave no answer: {exc}", request.model) from exc
        rest, calls = text.end()
        if rest:
            yield TextPart(rest)
        message = {"content": spoken + rest, "tool_calls": calls}
        try:
            answer = parse_answer({"choices": [{"message": message}]}, request.model)
        except ValueError as exc:
            raise self._error("empty", f"gave no answer: {exc}", request.model) from exc
        yield replace(answer, provider=self.provider)

    async def _begin(self, pipe: ProgramPipe, folder: str, model: str) -> str:
        """Open a session with the requested model, and return its id."""
        abilities = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
        await self._result(pipe, "initialize", {"protocolVersion": 1, "clientCapabilities": abilities}, model)
        session = await self._result(pipe, "session/new", {"cwd": folder, "mcpServers": []}, model)
        name = str(session.get("sessionId") or "")
        if not name:
            raise ProgramEnded("it opened no session")
        if choice := _model_choice(session, model):
            method, parameters = choice
            await self._result(pipe, method, {"sessionId": name, **parameters}, model)
        return name

    async def _result(self, pipe: ProgramPipe, method: str, parameters: dict[str, Any], model: str) -> dict[str, Any]:
        async for message in self._messages(pipe, method, parameters, model):
            if "method" not in message:
                result = message.get("result")
                return result if isinstance(result, dict) else {}
        raise ProgramEnded("it ended")

    async def _updates(
        self, pipe: ProgramPipe, session: str, request: ModelRequest
    ) -> AsyncGenerator[tuple[str, str], None]:
        """Send the prompt, and yield kind and text of each piece of the answer."""
        prompt = [{"type": "text", "text": prompt_text(request)}]
        parameters = {"sessionId": session, "prompt": prompt}
        async for message in self._messages(pipe, "session/prompt", parameters, request.model):
            given = message.get("params")
            update = given.get("update") if isinstance(given, dict) else None
            content = update.get("content") if isinstance(update, dict) else None
            piece = content.get("text") if isinstance(content, dict) else None
            kind = update.get("sessionUpdate") if isinstance(update, dict) else None
            if kind in ("agent_message_chunk", "agent_thought_chunk") and isinstance(piece, str) and piece:
                yield str(kind), piece

    async def _messages(
        self, pipe: ProgramPipe, method: str, parameters: dict[str, Any], model: str
    ) -> AsyncIterator[dict[str, Any]]:
        """Send a request, and yield the notifications and then its response. Decline requests of the program."""
        number = new_id("acp")
        await pipe.send({"jsonrpc": "2.0", "id": number, "method": method, "params": parameters})
        while True:
            async with asyncio.timeout(SILENCE_S):
                message = await pipe.receive()
            if "method" not in message and message.get("id") == number:
                if error := message.get("error"):
                    raise self._refusal(method, error, model)
                yield message
                return
            if "method" in message and "id" in message:
                await pipe.send({"jsonrpc": "2.0", "id": message["id"], **_declined(str(message["method"]))})
            elif "method" in message:
                yield message

    def _refusal(self, method: str, error: Any, model: str) -> ModelError:
        given = error if isinstance(error, dict) else {"message": error}
        text, code = str(given.get("message") or "it says nothing about it"), given.get("code")
        if code == AUTH_REQUIRED:
            made = self._error(
                "auth", f"is not signed in: {text}", model, f"Sign in with `{self._command()[0]}` itself."
            )
        else:
            made = self._error("refused", f"refused {method}: {text}", model)
        made.reply_text, made.reply_code, made.reply_body = text, str(code if code is not None else ""), given
        return made


def _model_choice(session: Mapping[str, Any], model: str) -> tuple[str, dict[str, Any]] | None:
    """Return the request that selects a model, if the session offers it in one of the two forms."""
    models = session.get("models")
    for each in (models.get("availableModels") or ()) if isinstance(models, dict) else ():
        if each.get("modelId") == model:
            return "session/set_model", {"modelId": model}
    for option in session.get("configOptions") or ():
        values = [value for each in option.get("options") or () for value in each.get("options") or [each]]
        if option.get("category") == "model" and any(value.get("value") == model for value in values):
            return "session/set_config_option", {"configId": option.get("id"), "value": model}
    return None


def _declined(method: str) -> dict[str, Any]:
    """Return the response to a request of a program: it is granted nothing."""
    if method == "session/request_permission":
        return {"result": {"outcome": {"outcome": "cancelled"}}}
    return {"error": {"code": METHOD_NOT_FOUND, "message": f"the agent does not offer {method}"}}


def prompt_text(request: ModelRequest) -> str:
    """Return a conversation with its tools as one text."""
    parts = [f"Requested model: {request.model}"] if request.model else []
    if request.tools:
        tools = [tool["function"] for tool in request.tools]
        parts += [_INSTRUCTIONS, "Tools:\n" + "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)]
    for message in request.messages:
        said = [message.text] if message.text else []
        for call in message.tool_calls:
            arguments = call.arguments if call.arguments.strip() else "{}"
            said.append(f'{CALL}{{"name": {json.dumps(call.name)}, "arguments": {arguments}}}{CALL_END}')
        parts.append(f"{message.role.capitalize()}:\n" + "\n".join(said))
    return "\n\n".join([*parts, "Continue with the assistant's next message."])


class AnswerText:
    """Splits an answer into text to show and calls of tools.

    Args:
        holds_calls: whether blocks in it are calls.
    """

    def __init__(self, *, holds_calls: bool) -> None:
        self._holds_calls = holds_calls
        self._held = ""

    def feed(self, piece: str) -> str:
        """Take a piece, and return the text that is known to be no call."""
        if not self._holds_calls:
            return piece
        self._held += piece
        at = self._held.find(CALL)
        end = at if at >= 0 else len(self._held) - overlap(self._held, CALL)
        shown, self._held = self._held[:end], self._held[end:]
        return shown

    def end(self) -> tuple[str, list[dict[str, Any]]]:
        """Return the text that was held back, and the calls in the form of chat completions."""
        calls: list[dict[str, Any]] = []
        text, begin = "", 0
        for mark in islice(_BEGIN.finditer(self._held), MOST_CALLS):
            if mark.start() < begin:  # inside a call
                continue
            call, end = _read_call(self._held, mark.end())
            text += self._held[begin : mark.start() if call else end]
            calls.extend([call] if call else [])
            begin = end
        text += self._held[begin:]
        return (text if text.strip() else ""), calls


def _read_call(text: str, begin: int) -> tuple[dict[str, Any] | None, int]:
    """Return the call that begins at a place of a text, and the place after its block.

    A call may have the form of chat completions. What is no call is None, and the place is the given one.
    """
    try:
        value, end = _JSON.raw_decode(text, begin)
    except (ValueError, RecursionError):
        return None, begin
    closed = _END.match(text, end)
    function = value.get("function") if isinstance(value.get("function"), dict) else value
    name, arguments = function.get("name"), function.get("arguments", {})
    if closed is None or not isinstance(name, str) or not name:
        return None, begin
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    call_id = str(value.get("id") or new_id("call"))
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": written}}, closed.end()


class OwnModelClient(_ProcessModelClient):
    """A `ModelClient` over the client that a plugin's `create_client` returns."""

    def __init__(self, profile: ProviderProfile, command: Callable[[], list[str]]) -> None:
        super().__init__(profile, command)
        self._client: Any = None

    def unsupported(self, model: str, options: RequestOptions) -> tuple[str, str] | None:
        """Return None: the plugin's client is given all options."""
        return None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Call the plugin's client in a thread, and yield its answer whole (see `ModelClient.stream`)."""
        try:
            answer = parse_answer(await _in_thread(self._create, to_keywords(request)), request.model)
        except asyncio.CancelledError:
            await self.aclose()  # ends what the client started
            raise
        except ValueError as exc:
            raise self._error("empty", f"gave no answer: {exc}", request.model) from exc
        except Exception as exc:  # a plugin's code
            logger.warning("client of model provider `%s` failed", self.provider, exc_info=exc)
            raise self._failure(exc, request.model) from exc
        if answer.message.text:
            yield TextPart(answer.message.text)
        yield replace(answer, provider=self.provider)

    def _create(self, keywords: dict[str, Any]) -> Any:
        if self._client is None:
            program, *arguments = self._command()
            self._client = self._profile.create_client(
                api_key=self.provider, base_url=self._profile.base_url, command=program, args=arguments
            )
        return self._client.chat.completions.create(**keywords)

    def _failure(self, exc: Exception, model: str) -> ModelError:
        status = getattr(exc, "status_code", None)
        kinds: dict[int, ModelErrorKind] = {401: "auth", 402: "payment", 403: "auth", 429: "rate_limit"}
        if isinstance(status, int):
            kind = kinds.get(status, "overloaded" if status >= 500 or status == 408 else "refused")
        else:
            kind = "unreachable" if isinstance(exc, TimeoutError | OSError) else "overloaded"
        made = self._error(kind, f"failed with {type(exc).__name__}: {exc}", model)
        body, code = getattr(exc, "body", None), getattr(exc, "code", None)
        made.status = status if isinstance(status, int) else None
        made.reply_text, made.reply_code = str(exc), str(code or "")
        made.reply_body = body if isinstance(body, dict) else {}
        return made

    async def aclose(self) -> None:
        """Close the plugin's client."""
        client, self._client = self._client, None
        if (close := getattr(client, "close", None)) is not None:
            await _in_thread(close)


async def _in_thread(work: Callable[..., Any], *args: Any, deadline_s: float | None = None) -> Any:
    """Run a plugin's code in a thread of its own.

    A model may take minutes, and workers are few; a thread that no longer has a caller does not keep the process alive.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if not done.done():
            done.set_result(value) if error is None else done.set_exception(error)

    def run() -> None:
        value, error = None, None
        try:
            value = work(*args)
        except BaseException as exc:  # noqa: BLE001 - goes to the caller
            error = exc
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=run, name="hermes-model-program", daemon=True).start()
    async with asyncio.timeout(deadline_s):
        return await done
