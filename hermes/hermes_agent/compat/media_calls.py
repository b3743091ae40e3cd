"""Upstream's functions that hear, speak and look: over the chosen providers, and the model that sees.

Source: plugin contract §8.7, §11.2.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from hermes_agent.compat.addresses import is_safe_url
from hermes_agent.compat.guarded_files import raise_if_read_blocked
from hermes_agent.compat.hosting import host
from hermes_agent.compat.texts import image_type
from hermes_agent.config import hermes_home
from hermes_agent.core.ids import new_id
from hermes_agent.plugins.llm.client import PluginLlm
from hermes_agent.tools import tool_error

__all__ = ["text_to_speech_tool", "transcribe_audio", "vision_analyze_tool"]

logger = logging.getLogger(__name__)

CALLER = "host.vision"
"""What the log calls who asks the model."""


def transcribe_audio(file_path: str, model: str | None = None) -> dict[str, Any]:
    """Return what is said in a file: `success`, `transcript`, `provider`; `error` when it failed."""
    current = host()
    chosen = current.providers.choose("transcription", current.config.values)
    if chosen.provider is None:
        return {"success": False, "transcript": "", "error": f"nothing transcribes speech: {chosen.why}"}
    try:
        found = chosen.provider.transcribe(file_path, model=model)
    except Exception as exc:  # a plugin's provider: the caller is told, as upstream does
        logger.exception("transcription provider %s failed", chosen.provider.name)
        return {"success": False, "transcript": "", "error": f"{type(exc).__name__}: {exc}"}
    return found if isinstance(found, dict) else {"success": True, "transcript": str(found)}


def text_to_speech_tool(text: str, output_path: str | None = None) -> str:
    """Speak `text` into a file and return a tool's result: `success`, `file_path`, `provider`."""
    current = host()
    chosen = current.providers.choose("tts", current.config.values)
    if chosen.provider is None:
        return tool_error(f"nothing speaks: {chosen.why}", success=False)
    place = Path(output_path) if output_path else hermes_home() / "cache" / "audio" / f"{new_id('speech')}.mp3"
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        written = chosen.provider.synthesize(text, str(place))
    except Exception as exc:  # a plugin's provider
        logger.exception("speech provider %s failed", chosen.provider.name)
        return tool_error(f"{type(exc).__name__}: {exc}", success=False, provider=chosen.provider.name)
    return json.dumps({"success": True, "file_path": str(written or place), "provider": chosen.provider.name})


async def vision_analyze_tool(
    image_url: str, user_prompt: str, model: str | None = None, task_id: str | None = None
) -> str:
    """Look at a picture and return a tool's result: `success`, `analysis`.

    Args:
        image_url: an address, or the path of a file.
        model: taken and not needed: `auxiliary.vision` says which model looks.
    """
    try:
        picture = _picture(image_url)
        message = {"role": "user", "content": [{"type": "text", "text": user_prompt}, picture]}
        answer = await PluginLlm(CALLER, host()).acomplete([message], purpose="vision_analyze")
    except Exception as exc:  # noqa: BLE001 - a tool's errors are results
        return tool_error(f"{type(exc).__name__}: {exc}", success=False)
    return json.dumps({"success": True, "analysis": answer.text}, ensure_ascii=False)


def _picture(place: str) -> dict[str, Any]:
    """Return the picture as a part of a message.

    Raises:
        ValueError: it is no picture, or its address is not public.
        OSError: it cannot be read.
    """
    if place.startswith(("http://", "https://")):
        if not is_safe_url(place):
            raise ValueError(f"{place} is not a public address")
        return {"type": "image_url", "image_url": {"url": place}}
    import base64  # few look at pictures

    path = place.removeprefix("file://")
    raise_if_read_blocked(path)
    data = Path(path).expanduser().read_bytes()
    kind = image_type(data)
    if kind is None:
        raise ValueError(f"{place} is no picture")
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{base64.b64encode(data).decode()}"}}
