"""Video generation: a service that films. Source: plugin contract §8.6, §11.2.

Selected by `video_gen.provider`, else the only one that is available.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hermes_agent.contracts.kind import Kind
from hermes_agent.contracts.provider import Choice, ModelService, named, only_available
from hermes_agent.contracts.saved_media import save_base64, save_bytes, save_url

__all__ = [
    "VIDEO_GEN",
    "VideoGenProvider",
    "choose_video_gen",
    "error_response",
    "save_b64_video",
    "save_bytes_video",
    "save_url_video",
    "success_response",
]

VIDEO_GEN = Kind("video_gen", "register_video_gen_provider", "video generation provider")
_EXTENSIONS = {"video/mp4": "mp4", "video/webm": "webm", "video/quicktime": "mov"}


class VideoGenProvider(ModelService):
    """Films what a prompt says."""

    @abc.abstractmethod
    def generate(
        self,
        prompt: str,
        *,
        model: str | None = None,
        image_url: str | None = None,
        reference_image_urls: list[str] | None = None,
        duration: int | None = None,
        aspect_ratio: str = "16:9",
        resolution: str = "720p",
        negative_prompt: str | None = None,
        audio: bool | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Film.

        Args:
            image_url: the first picture.
            duration: seconds; None leaves it to the service.

        Returns:
            What `success_response` or `error_response` makes.
        """

    def capabilities(self) -> dict[str, Any]:
        """Return what it can do; durations in seconds."""
        return {
            "modalities": ["text"],
            "aspect_ratios": ["16:9"],
            "resolutions": ["720p"],
            "max_duration": 10,
            "min_duration": 1,
            "supports_audio": False,
            "supports_negative_prompt": False,
            "max_reference_images": 0,
        }


def choose_video_gen(providers: Mapping[str, VideoGenProvider], values: Mapping[str, Any]) -> Choice[VideoGenProvider]:
    """Return who films; one that the config names also when it is not available."""
    path = "video_gen.provider"
    return named(providers, values, path, "video gen") or only_available(providers, path)


def save_b64_video(b64_data: str, *, prefix: str = "video", extension: str = "mp4") -> Path:
    """Write a film into `HOME/cache/videos` and return its path.

    Raises:
        ValueError: it is not base64, or empty.
    """
    return save_base64("videos", b64_data, prefix=prefix, extension=extension)


def save_bytes_video(raw: bytes, *, prefix: str = "video", extension: str = "mp4") -> Path:
    """Write a film into `HOME/cache/videos` and return its path.

    Raises:
        ValueError: it is empty.
    """
    return save_bytes("videos", raw, prefix=prefix, extension=extension)


def save_url_video(
    url: str, *, prefix: str = "video", timeout: float = 180.0, max_bytes: int = 200 * 1024 * 1024
) -> Path:
    """Fetch a film into `HOME/cache/videos` and return its path.

    Args:
        timeout: seconds for the whole of it.

    Raises:
        ValueError: it is no HTTP address, or larger than `max_bytes`.
        TimeoutError: it took longer.
        httpx.HTTPError: it cannot be fetched.
    """
    return save_url("videos", url, prefix=prefix, timeout=timeout, max_bytes=max_bytes, extensions=_EXTENSIONS)


def success_response(
    *,
    video: str,
    model: str,
    prompt: str,
    modality: str = "text",
    aspect_ratio: str = "",
    duration: int = 0,
    provider: str,
    extra: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the answer of a provider that filmed.

    Args:
        video: path or address.
        duration: seconds.
        extra: further keys; they do not replace those above.
    """
    return {
        **(extra or {}),
        "success": True,
        "video": video,
        "model": model,
        "prompt": prompt,
        "modality": modality,
        "aspect_ratio": aspect_ratio,
        "duration": duration,
        "provider": provider,
    }


def error_response(
    *,
    error: str,
    error_type: str = "provider_error",
    provider: str = "",
    model: str = "",
    prompt: str = "",
    aspect_ratio: str = "",
) -> dict[str, Any]:
    """Return the answer of a provider that did not."""
    return {
        "success": False,
        "video": None,
        "error": error,
        "error_type": error_type,
        "model": model,
        "prompt": prompt,
        "aspect_ratio": aspect_ratio,
        "provider": provider,
    }
