"""Upstream's functions that hear, speak and look. Source: plugin contract §8.7, §11.2."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hermes_agent.compat.hosting import host
from hermes_agent.tools import tool_error

__all__ = ["text_to_speech_tool", "transcribe_audio", "vision_analyze_tool"]


def transcribe_audio(file_path: str, model: str | None = None) -> dict[str, Any]:
    """Return what is said in a file: `success`, `transcript`, `provider`; `error` when it failed."""
    return host().media.transcribe(file_path, model)


def text_to_speech_tool(text: str, output_path: str | None = None) -> str:
    """Speak `text` into a file and return a tool's result: `success`, `file_path`, `provider`."""
    return _result(host().media.speak(text, output_path))


async def vision_analyze_tool(
    image_url: str, user_prompt: str, model: str | None = None, task_id: str | None = None
) -> str:
    """Look at a picture and return a tool's result: `success`, `analysis`.

    Args:
        image_url: an address, or the path of a file.
        model: taken and not needed: `auxiliary.vision` says which model looks.
    """
    current = host()
    look = current.bridge.off_loop(lambda: current.media.look(image_url, user_prompt))
    return _result(await asyncio.ensure_future(look))


def _result(found: dict[str, Any]) -> str:
    if found["success"]:
        return json.dumps(found, ensure_ascii=False)
    return tool_error(**{"message": found.pop("error"), **found})
