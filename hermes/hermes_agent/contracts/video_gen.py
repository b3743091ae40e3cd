"""Video generation: a service that films. Source: plugin contract §8.6, §11.2.

Selected by `video_gen.provider`, else the only one that is available.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from functools import partial
from typing import Any

from hermes_agent.contracts.kind import Kind
from hermes_agent.contracts.provider import ModelService, SelectedProvider, select_available, select_by_name
from hermes_agent.contracts.saved_media import error_result, save_base64, save_bytes, save_url

__all__ = [
    "VIDEO_GEN",
    "VideoGenProvider",
    "choose_video_gen",
    "video_error_response",
    "save_b64_video",
    "save_bytes_video",
    "save_url_video",
    "video_success_response",
]

VIDEO_GEN = Kind("video_gen", "register_video_gen_provider", "video generation provider")


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
            What `video_success_response` or `video_error_response` makes.
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


def choose_video_gen(
    providers: Mapping[str, VideoGenProvider], values: Mapping[str, Any]
) -> SelectedProvider[VideoGenProvider]:
    """Return who films; one that the config names also when it is not available."""
    path = "video_gen.provider"
    return select_by_name(providers, values, path, "video gen") or select_available(providers, path)


save_b64_video = partial(save_base64, "videos", prefix="video", extension="mp4")
save_bytes_video = partial(save_bytes, "videos", prefix="video", extension="mp4")
save_url_video = partial(save_url, "videos", prefix="video", timeout=180.0, max_bytes=200 * 1024 * 1024)
video_error_response = partial(error_result, "video")


def video_success_response(
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
