"""Schema and provider call of the tool `video_generate`. Source: plugin contract §8.6."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from hermes_agent.contracts.image_video import (
    VideoGenProvider,
    normalize_reference_images,
    read_response,
    video_error_response,
    video_success_response,
)
from hermes_agent.core.calls import supported
from hermes_agent.tools import tool_schema

logger = logging.getLogger(__name__)

VIDEO = tool_schema(
    "video_generate",
    "Make a video; it can take minutes. Write MEDIA: and its path into your answer to send it.",
    {
        "prompt": {"type": "string"},
        "image_url": {"type": "string", "description": "The first picture of the video"},
        "reference_image_urls": {"type": "array", "items": {"type": "string"}},
        "duration": {"type": "integer", "description": "Seconds"},
        "aspect_ratio": {"type": "string", "description": "Such as 16:9"},
        "resolution": {"type": "string", "description": "Such as 720p"},
        "negative_prompt": {"type": "string", "description": "What the video must not show"},
        "audio": {"type": "boolean", "description": "Whether the video has sound"},
        "seed": {"type": "integer"},
        "model": {"type": "string"},
    },
    required=["prompt"],
)
OPTIONS = tuple(name for name in VIDEO["parameters"]["properties"] if name != "prompt")


def fit_schema(provider: VideoGenProvider) -> dict[str, Any]:
    """Return the `parameters` of the tool with what the provider supports, or all of them."""
    parameters: dict[str, Any] = VIDEO["parameters"]
    try:
        able = provider.capabilities()
    except Exception as exc:  # noqa: BLE001 - plugin code: the general schema works as well
        logger.warning("video provider '%s': capabilities() failed: %s: %s", provider.name, type(exc).__name__, exc)
        able = None
    if not isinstance(able, Mapping):
        return parameters
    properties = {name: dict(value) for name, value in parameters["properties"].items()}
    for name, key in (("aspect_ratio", "aspect_ratios"), ("resolution", "resolutions")):
        if names := [each for each in able.get(key) or () if isinstance(each, str)]:
            properties[name]["enum"] = names
    for limit, key in (("minimum", "min_duration"), ("maximum", "max_duration")):
        if isinstance(able.get(key), int | float):
            properties["duration"][limit] = able[key]
    absent = {
        "audio": able.get("supports_audio") is False,
        "negative_prompt": able.get("supports_negative_prompt") is False,
        "reference_image_urls": able.get("max_reference_images") == 0,
        "image_url": "image" not in (able.get("modalities") or ("image",)),
    }
    return {**parameters, "properties": {name: each for name, each in properties.items() if not absent.get(name)}}


def generate_video(provider: VideoGenProvider, prompt: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Call `generate` and return its answer as a dict; an exception becomes an error response.

    Args:
        options: values by name of `OPTIONS`; None and empty ones are left out.
    """
    given = {name: options[name] for name in OPTIONS if options.get(name) not in (None, "", [])}
    if "reference_image_urls" in given:
        given["reference_image_urls"] = normalize_reference_images(given["reference_image_urls"])
    about = {"provider": provider.name, "model": str(given.get("model") or ""), "prompt": prompt}
    taken = supported(provider.generate, given)
    if ignored := sorted(given.keys() - taken.keys()):
        logger.warning("video provider '%s' does not take %s", provider.name, ", ".join(ignored))
    try:
        answer = provider.generate(prompt, **taken)
    except Exception as exc:
        logger.warning("video provider '%s' failed", provider.name, exc_info=True)
        return video_error_response(error=f"{type(exc).__name__}: {exc}", **about)
    return read_response(answer, video_success_response, video_error_response, **about)
