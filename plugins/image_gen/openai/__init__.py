"""Image generation by OpenAI's SDK (extra `openai`), for OpenAI and the servers that have its HTTP API.

Variables: `OPENAI_API_KEY`, `OPENAI_IMAGE_URL` for another server, `OPENAI_IMAGE_MODEL`.
"""

from __future__ import annotations

import os
from typing import Any

from hermes_agent.contracts.image_video import (
    DEFAULT_ASPECT_RATIO,
    ImageGenProvider,
    image_error_response,
    image_success_response,
    save_b64_image,
    save_url_image,
)
from hermes_agent.contracts.kind import import_sdk
from hermes_agent.core.errors import UserError

OPENAI_URL = "https://api.openai.com/v1"
MODEL = "gpt-image-1"
SIZES = {"landscape": "1536x1024", "square": "1024x1024", "portrait": "1024x1536"}
TIMEOUT_S = 180.0


class OpenAiImages(ImageGenProvider):
    """Images from `/images/generations`."""

    name = "openai"
    display_name = "OpenAI"

    def is_available(self) -> bool:
        return bool(os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_IMAGE_URL"))

    def default_model(self) -> str:
        return os.environ.get("OPENAI_IMAGE_MODEL") or MODEL

    def list_models(self) -> list[dict[str, Any]]:
        return [
            {"id": self.default_model(), "display": self.default_model(), "speed": "", "strengths": "", "price": ""}
        ]

    def generate(
        self,
        prompt: str,
        aspect_ratio: str = DEFAULT_ASPECT_RATIO,
        *,
        image_url: str | None = None,
        reference_image_urls: list[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        model = str(kwargs.get("model") or self.default_model())
        about: dict[str, Any] = {"model": model, "prompt": prompt, "aspect_ratio": aspect_ratio, "provider": self.name}
        if image_url or reference_image_urls:
            return image_error_response(
                error="this service draws from words alone", error_type="not_supported", **about
            )
        try:
            openai = import_sdk("openai", "openai")  # a second of work, in the worker of the tool call
        except UserError as exc:
            return image_error_response(error=str(exc), error_type="missing_dependency", **about)
        base_url = os.environ.get("OPENAI_IMAGE_URL", OPENAI_URL).rstrip("/")
        try:
            encoded, url = _draw(base_url, model, prompt, SIZES.get(aspect_ratio, SIZES[DEFAULT_ASPECT_RATIO]))
            path = save_b64_image(encoded) if encoded else save_url_image(str(url))
        except openai.APIStatusError as exc:
            error = f"{base_url} answered {exc.status_code}: {exc.response.text[:500]}"
            return image_error_response(error=error, **about)
        except Exception as exc:  # noqa: BLE001 - every failure is a tool result
            reason = exc.__cause__ if isinstance(exc, openai.OpenAIError) and exc.__cause__ else exc
            error = f"{base_url} gave no picture: {type(reason).__name__}: {reason}"
            return image_error_response(error=error, **about)
        return image_success_response(image=str(path), **about)

    def get_setup_schema(self) -> dict[str, Any]:
        variable = {"key": "OPENAI_API_KEY", "prompt": "API key", "url": "https://platform.openai.com/api-keys"}
        return {"name": self.display_name, "badge": "key", "tag": "pictures from words", "env_vars": [variable]}


def _draw(base_url: str, model: str, prompt: str, size: Any) -> tuple[str | None, str | None]:
    """Return a new image as base64, or its URL."""
    import openai

    key = os.environ.get("OPENAI_API_KEY", "")
    # the variables above say where requests go and what they carry, not those of the SDK
    left_out: Any = {"OpenAI-Organization": openai.Omit(), "OpenAI-Project": openai.Omit()}
    # the SDK makes no client without a key; a server of the user's own may need none
    keyless: Any = {} if key else {"Authorization": openai.Omit()}
    with openai.OpenAI(
        api_key=key or "none", base_url=base_url, timeout=TIMEOUT_S, max_retries=0, default_headers=left_out
    ) as client:
        answer = client.images.generate(prompt=prompt, model=model, n=1, size=size, extra_headers=keyless)
    if not answer.data:
        raise ValueError("the answer has no image")
    return answer.data[0].b64_json, answer.data[0].url


def register(ctx: Any) -> None:
    ctx.register_image_gen_provider(OpenAiImages())
