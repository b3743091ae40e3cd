"""What plugins ask of models beside the conversation: text, speech, pictures. Source: plugin contract §8.7, §11.2."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hermes_agent.compat.hosting import host, of_host
from hermes_agent.media.service import MediaService
from hermes_agent.models.completions import Response
from hermes_agent.plugins.llm.auxiliary import AuxiliaryCall, call_auxiliary, call_auxiliary_async
from hermes_agent.tools import tool_error

__all__ = [
    "async_call_llm",
    "call_llm",
    "flatten_message_text",
    "text_to_speech_tool",
    "transcribe_audio",
    "vision_analyze_tool",
]


def _auxiliary_call(
    task: str | None = None,
    *,
    provider: str | None = None,
    model: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    main_runtime: Mapping[str, Any] | None = None,
    messages: Sequence[Mapping[str, Any]],
    temperature: float | None = None,
    max_tokens: int | None = None,
    tools: Sequence[dict[str, Any]] | None = None,
    timeout: float | None = None,
    extra_body: Mapping[str, Any] | None = None,
    **fields: Any,
) -> AuxiliaryCall:
    """Read the arguments of the two functions below.

    Args:
        task: key of `auxiliary` in the config; None asks the model of the conversation.
        provider, model, base_url, api_key: take the place of the task's.
        main_runtime: what the conversation runs on, in the same words; it stands for `auto`.
        timeout: seconds; None takes the task's, or 30.
        fields: further fields of the request, as in `extra_body`.
    """
    given = {"provider": provider, "model": model, "base_url": base_url, "api_key": api_key}
    extra = {**fields, **(extra_body or {})}
    return AuxiliaryCall(task, messages, given, main_runtime, temperature, max_tokens, tools, timeout, extra)


def call_llm(*args: Any, **kwargs: Any) -> Response:
    """Ask the model of a side task and wait for the answer; from any thread but the core loop's.

    Raises:
        UserError: there is no model to be had.
        ModelError: there is no answer.
        ValueError: `messages` are none.
    """
    return call_auxiliary(host(), _auxiliary_call(*args, **kwargs))


async def async_call_llm(*args: Any, **kwargs: Any) -> Response:
    """Do what `call_llm` does, on any loop."""
    return await call_auxiliary_async(host(), _auxiliary_call(*args, **kwargs))


call_llm.__signature__ = inspect.signature(_auxiliary_call)  # type: ignore[attr-defined]
async_call_llm.__signature__ = inspect.signature(_auxiliary_call)  # type: ignore[attr-defined]


def flatten_message_text(content: Any, *, sep: str = "\n") -> str:
    """Return the text of a message's content: a string, or the text parts of a list."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return str(content.get("text") or content.get("content") or "")
    if isinstance(content, list):
        parts = (flatten_message_text(part, sep=sep) for part in content if isinstance(part, str | Mapping))
        return sep.join(part for part in parts if part)
    return str(content)


transcribe_audio = of_host(lambda host: host.media, MediaService.transcribe)


def text_to_speech_tool(text: str, output_path: str | None = None) -> str:
    """Speak `text` into a file and return a tool's result: `success`, `file_path`, `provider`."""
    return _tool_result(host().media.synthesize(text, str(Path(output_path).resolve()) if output_path else None))


async def vision_analyze_tool(
    image_url: str, user_prompt: str, model: str | None = None, task_id: str | None = None
) -> str:
    """Look at a picture and return a tool's result: `success`, `analysis`.

    Args:
        image_url: an address, or the path of a file.
        model: taken and not needed: `auxiliary.vision` says which model looks.
    """
    current = host()
    look = current.bridge.off_loop(lambda: current.media.describe_image(image_url, user_prompt))
    return _tool_result(await asyncio.ensure_future(look))


def _tool_result(found: dict[str, Any]) -> str:
    if found["success"]:
        return json.dumps(found, ensure_ascii=False)
    return tool_error(**{"message": found.pop("error"), **found})
