"""Image generation: a service that draws. Source: plugin contract §8.5, §11.2, §13 row 21.

Selected by `image_gen.provider`, else the only one that is available.
"""

from __future__ import annotations

import abc
import logging
import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from hermes_agent.contracts.kind import Kind
from hermes_agent.contracts.provider import ModelService, SelectedProvider, select_available, select_by_name
from hermes_agent.contracts.saved_media import error_result, save_base64, save_url

__all__ = [
    "DEFAULT_ASPECT_RATIO",
    "IMAGE_GEN",
    "ImageGenProvider",
    "VALID_ASPECT_RATIOS",
    "choose_image_gen",
    "image_error_response",
    "generate_image",
    "normalize_reference_images",
    "resolve_aspect_ratio",
    "save_b64_image",
    "save_url_image",
    "image_success_response",
]

logger = logging.getLogger(__name__)

IMAGE_GEN = Kind("image_gen", "register_image_gen_provider", "image generation provider", is_used=True)

VALID_ASPECT_RATIOS = ("landscape", "square", "portrait")
DEFAULT_ASPECT_RATIO = "landscape"


class ImageGenProvider(ModelService):
    """Draws what a prompt says."""

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
        """Draw.

        Args:
            aspect_ratio: one of `VALID_ASPECT_RATIOS`.
            image_url: the picture to change.
            reference_image_urls: pictures to look at.
            kwargs: `model` when one is configured.

        Returns:
            What `image_success_response` or `image_error_response` makes; the path of the picture is taken too.
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
    """Return who draws; one that the config names also when it is not available."""
    path = "image_gen.provider"
    return select_by_name(providers, values, path, "image gen") or select_available(providers, path, otherwise="fal")


def generate_image(
    provider: ImageGenProvider,
    prompt: str,
    aspect_ratio: str | None = None,
    *,
    model: str | None = None,
    image_url: str | None = None,
    reference_image_urls: Any = None,
) -> dict[str, Any]:
    """Call `generate`, and return its answer in the one shape; a provider that raises makes an error of it.

    A provider whose `generate` does not take the pictures is called once more without them.
    """
    ratio = resolve_aspect_ratio(aspect_ratio)
    about: dict[str, Any] = {"provider": provider.name, "model": model or "", "prompt": prompt, "aspect_ratio": ratio}
    given: dict[str, Any] = {
        "image_url": image_url,
        "reference_image_urls": normalize_reference_images(reference_image_urls),
    }
    pictures = {key: value for key, value in given.items() if value}
    extra: dict[str, Any] = {"model": model} if model else {}
    try:
        try:
            answer = provider.generate(prompt, aspect_ratio=ratio, **extra, **pictures)
        except TypeError as exc:
            if not any(f"unexpected keyword argument '{key}'" in str(exc) for key in pictures):
                raise
            logger.warning("image provider '%s' takes no pictures; it draws without them", provider.name)
            answer = provider.generate(prompt, aspect_ratio=ratio, **extra)
    except Exception as exc:
        logger.warning("image provider '%s' failed", provider.name, exc_info=True)
        return image_error_response(error=f"{type(exc).__name__}: {exc}", **about)
    return _normalize_answer(answer, about)


def resolve_aspect_ratio(value: str | None) -> str:
    """Return `value` if it is one of `VALID_ASPECT_RATIOS`, whatever its case, else the default."""
    ratio = value.strip().lower() if isinstance(value, str) else ""
    return ratio if ratio in VALID_ASPECT_RATIOS else DEFAULT_ASPECT_RATIO


def normalize_reference_images(value: Any) -> list[str] | None:
    """Return the addresses in `value` (a text or a list) without blanks; None when there is none."""
    given = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []
    return [item.strip() for item in given if isinstance(item, str) and item.strip()] or None


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
    """Return the answer of a provider that drew.

    Args:
        image: path or address.
        extra: further keys; they do not replace those above.
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


def _normalize_answer(answer: Any, about: dict[str, Any]) -> dict[str, Any]:
    if isinstance(answer, dict):
        return answer
    if isinstance(answer, str | os.PathLike) and os.fspath(answer):
        return image_success_response(image=str(os.fspath(answer)), **about)
    return image_error_response(error=f"generate() returned {answer!r}: expected a dict", **about)
