"""Image and video generation, and saving the results below the home.

`image_gen.provider` and `video_gen.provider` select the providers; by default the only available provider is used.
`compat` serves these functions under upstream's names. Source: plugin contract §8.5, §8.6, §11.2, §13 row 21.
"""

from __future__ import annotations

import abc
import base64
import binascii
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hermes_agent.config import hermes_home
from hermes_agent.contracts.kind import Kind, ModelService, SelectedProvider, select_available, select_by_name
from hermes_agent.system.files import PRIVATE, write_atomic

if TYPE_CHECKING:
    import httpx

__all__ = [
    "DEFAULT_ASPECT_RATIO",
    "IMAGE_GEN",
    "ImageGenProvider",
    "VALID_ASPECT_RATIOS",
    "VIDEO_GEN",
    "VideoGenProvider",
    "choose_image_gen",
    "choose_video_gen",
    "error_result",
    "fetch_file",
    "image_error_response",
    "image_success_response",
    "normalize_reference_images",
    "read_response",
    "resolve_aspect_ratio",
    "save_b64_image",
    "save_b64_video",
    "save_base64",
    "save_bytes",
    "save_bytes_video",
    "save_url",
    "save_url_image",
    "save_url_video",
    "video_error_response",
    "video_success_response",
]


_EXTENSIONS = {
    "images": {"image/png": "png", "image/jpeg": "jpg", "image/webp": "webp", "image/gif": "gif"},
    "videos": {"video/mp4": "mp4", "video/webm": "webm", "video/quicktime": "mov"},
}
"""By folder and content type; the first is the default if neither the type nor the address is known."""
_UNFIT = re.compile(r"[^A-Za-z0-9-]+")


def error_result(
    what: str,
    *,
    error: str,
    error_type: str = "provider_error",
    provider: str = "",
    model: str = "",
    prompt: str = "",
    aspect_ratio: str = "",
) -> dict[str, Any]:
    """Return the answer of a provider that failed. `what`: the key of its result."""
    return {
        "success": False,
        what: None,
        "error": error,
        "error_type": error_type,
        "model": model,
        "prompt": prompt,
        "aspect_ratio": aspect_ratio,
        "provider": provider,
    }


def save_bytes(folder: str, raw: bytes, *, prefix: str, extension: str) -> Path:
    """Write `raw` to a new file in `HOME/cache/<folder>`, readable by its owner only; return its path.

    Raises:
        ValueError: `raw` is empty.
    """
    if not raw:
        raise ValueError("cannot save an empty file")
    place = hermes_home() / "cache" / folder
    place.mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%d_%H%M%S")
    name = f"{_safe_name_part(prefix) or 'file'}_{stamp}_{os.urandom(4).hex()}.{_safe_name_part(extension) or 'bin'}"
    write_atomic(place / name, raw, mode=PRIVATE)
    return place / name


def save_base64(folder: str, b64_data: str, *, prefix: str, extension: str) -> Path:
    """Decode base64 data, with or without `data:…;base64,` before it, and save it.

    Raises:
        ValueError: the data is empty or not base64.
    """
    body = b64_data.partition(",")[2] if b64_data.startswith("data:") else b64_data
    try:
        data = base64.b64decode("".join(body.split()), validate=True)
    except binascii.Error as exc:
        raise ValueError(f"this is not base64: {exc}") from exc
    return save_bytes(folder, data, prefix=prefix, extension=extension)


def save_url(folder: str, url: str, *, prefix: str, timeout: float, max_bytes: int) -> Path:
    """Fetch `url` and save it; see `fetch_file`."""
    return fetch_file(folder, url, prefix=prefix, timeout=timeout, max_bytes=max_bytes)


def fetch_file(
    folder: str,
    url: str,
    *,
    prefix: str,
    timeout: float,
    max_bytes: int,
    headers: Mapping[str, str] | None = None,
    require_video_content_type: bool = False,
    trusted_origin: str | None = None,
) -> Path:
    """Fetch `url` and save it.

    Args:
        timeout: limit of the whole transfer, in seconds.
        headers: additional headers, which only the first address gets, and no address of a redirect.
        trusted_origin: scheme and host (`https://HOST`) that may get the headers; None: those of `url`.

    Raises:
        ValueError: it is no HTTP address, the file has more than `max_bytes`, or its type is no video.
        TimeoutError: the transfer took longer.
        httpx.HTTPError: the request failed.
    """
    import httpx  # 60 ms, and most processes fetch no file

    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"cannot fetch {url[:120]!r}: expected http:// or https://")
    end = time.monotonic() + timeout
    own = urlsplit(url)
    is_trusted = trusted_origin is None or f"{own.scheme}://{own.netloc}" == trusted_origin.rstrip("/")
    target = url
    if headers and is_trusted:
        with httpx.stream("GET", url, timeout=timeout, headers=dict(headers)) as first:
            if first.next_request is None:
                return _save_response(folder, url, prefix, end, max_bytes, require_video_content_type, first)
            target = str(first.next_request.url)
    with httpx.stream("GET", target, timeout=timeout, follow_redirects=True) as response:
        return _save_response(folder, url, prefix, end, max_bytes, require_video_content_type, response)


def _save_response(
    folder: str, url: str, prefix: str, end: float, max_bytes: int, is_video: bool, response: httpx.Response
) -> Path:
    response.raise_for_status()
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if is_video and not kind.startswith("video/"):
        raise ValueError(f"{url[:120]} is of type {kind or 'unknown'}: expected a video")
    data = _read(response.iter_bytes(), url, end, max_bytes)
    extensions = _EXTENSIONS[folder]
    suffix = urlsplit(url).path.rpartition("/")[2].rpartition(".")[2].lower()
    known = suffix if suffix in extensions.values() else next(iter(extensions.values()))
    return save_bytes(folder, data, prefix=prefix, extension=extensions.get(kind, known))


def _read(pieces: Iterable[bytes], url: str, end: float, max_bytes: int) -> bytes:
    data = bytearray()
    for piece in pieces:
        data += piece
        if len(data) > max_bytes:
            raise ValueError(f"{url[:120]} exceeds the limit of {max_bytes} bytes")
        if time.monotonic() > end:
            raise TimeoutError(f"{url[:120]} was not fetched in time: {len(data)} bytes so far")
    return bytes(data)


def _safe_name_part(text: str) -> str:
    """Return `text` without characters that could lead out of a folder."""
    return _UNFIT.sub("_", text).strip("_")[:80]


IMAGE_GEN = Kind("image_gen", "register_image_gen_provider", "image generation provider", is_used=True)

VALID_ASPECT_RATIOS = ("landscape", "square", "portrait")
DEFAULT_ASPECT_RATIO = "landscape"


class ImageGenProvider(ModelService):
    """A provider that generates images."""

    @abc.abstractmethod
    def generate(
        self,
        prompt: str,
        aspect_ratio: str = DEFAULT_ASPECT_RATIO,
        *,
        image_url: str | None = None,
        reference_image_urls: list[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Generate an image.

        Args:
            aspect_ratio: one of `VALID_ASPECT_RATIOS`.
            image_url: an image to change.
            reference_image_urls: images to use as references.
            kwargs: `model` if one is configured.

        Returns:
            The value of `image_success_response` or `image_error_response`; the path of the image is accepted, too.
        """

    def list_models(self) -> list[dict[str, Any]]:
        """Return the models: `id`, `display`, `speed`, `strengths`, `price`."""
        return []

    def capabilities(self) -> dict[str, Any]:
        """Return `modalities` (`text`, `image`) and `max_reference_images`."""
        return {"modalities": ["text"], "max_reference_images": 0}


def choose_image_gen(
    providers: Mapping[str, ImageGenProvider], values: Mapping[str, Any]
) -> SelectedProvider[ImageGenProvider]:
    """Return the provider that the config names, available or not, or else the default."""
    path = "image_gen.provider"
    return select_by_name(providers, values, path, "image gen") or select_available(providers, path, otherwise="fal")


def resolve_aspect_ratio(value: str | None) -> str:
    """Return `value` in lower case if it is one of `VALID_ASPECT_RATIOS`, else the default."""
    ratio = value.strip().lower() if isinstance(value, str) else ""
    return ratio if ratio in VALID_ASPECT_RATIOS else DEFAULT_ASPECT_RATIO


def normalize_reference_images(value: Any) -> list[str] | None:
    """Return the stripped addresses in `value` (a text or a list); None if there is none."""
    given = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []
    return [item.strip() for item in given if isinstance(item, str) and item.strip()] or None


def read_response(
    answer: Any, success: Callable[..., dict[str, Any]], error: Callable[..., dict[str, Any]], **about: Any
) -> dict[str, Any]:
    """Return the answer of `generate` as a response: a dict stays, a path is a success.

    Args:
        success: makes the response of a success, `image_success_response` or `video_success_response`.
        error: makes the response of a failure.
        about: further fields of both.
    """
    if isinstance(answer, dict):
        return answer
    if isinstance(answer, str | os.PathLike) and (path := os.fspath(answer)):
        field = "image" if success is image_success_response else "video"
        return success(**{field: str(path)}, **about)
    return error(error=f"generate() returned {answer!r}: expected a dict", **about)


save_b64_image = partial(save_base64, "images", prefix="image", extension="png")
save_url_image = partial(save_url, "images", prefix="image", timeout=60.0, max_bytes=25 * 1024 * 1024)
image_error_response = partial(error_result, "image", aspect_ratio=DEFAULT_ASPECT_RATIO)


def image_success_response(
    *,
    image: str,
    model: str,
    prompt: str,
    aspect_ratio: str,
    provider: str,
    modality: str = "text",
    extra: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the answer of a provider that succeeded.

    Args:
        image: path or URL.
        extra: additional keys, which do not replace those above.
    """
    return {
        **(extra or {}),
        "success": True,
        "image": image,
        "model": model,
        "prompt": prompt,
        "aspect_ratio": aspect_ratio,
        "modality": modality,
        "provider": provider,
    }


VIDEO_GEN = Kind("video_gen", "register_video_gen_provider", "video generation provider", is_used=True)


class VideoGenProvider(ModelService):
    """A provider that generates videos."""

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
        """Generate a video.

        Args:
            image_url: the first frame.
            duration: seconds; None: the default of the service.

        Returns:
            The value of `video_success_response` or `video_error_response`.
        """

    def capabilities(self) -> dict[str, Any]:
        """Return what it supports; durations in seconds."""
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
    """Return the provider that the config names, available or not, or else the default."""
    path = "video_gen.provider"
    return select_by_name(providers, values, path, "video gen") or select_available(providers, path)


save_b64_video = partial(save_base64, "videos", prefix="video", extension="mp4")
save_bytes_video = partial(save_bytes, "videos", prefix="video", extension="mp4")
save_url_video = partial(fetch_file, "videos", prefix="video", timeout=180.0, max_bytes=200 * 1024 * 1024)
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
    """Return the answer of a provider that succeeded.

    Args:
        video: path or URL.
        duration: seconds.
        extra: additional keys, which do not replace those above.
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
