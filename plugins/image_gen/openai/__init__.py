"""Pictures over OpenAI's wire (`OPENAI_API_KEY`; `OPENAI_IMAGE_URL` for another server, `OPENAI_IMAGE_MODEL`)."""

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

ADDRESS = "https://api.openai.com/v1"
MODEL = "gpt-image-1"
SIZES = {"landscape": "1536x1024", "square": "1024x1024", "portrait": "1024x1536"}
TIMEOUT_S = 180.0


class OpenAiImages(ImageGenProvider):
    """`/images/generations`, as OpenAI and many local servers have it."""

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
        import httpx  # 60 ms, and most processes draw nothing

        model = str(kwargs.get("model") or self.default_model())
        about: dict[str, Any] = {"model": model, "prompt": prompt, "aspect_ratio": aspect_ratio, "provider": self.name}
        if image_url or reference_image_urls:
            return image_error_response(
                error="this service draws from words alone", error_type="not_supported", **about
            )
        key = os.environ.get("OPENAI_API_KEY", "")
        address = os.environ.get("OPENAI_IMAGE_URL", ADDRESS).rstrip("/")
        body = {"model": model, "prompt": prompt, "n": 1, "size": SIZES.get(aspect_ratio, SIZES[DEFAULT_ASPECT_RATIO])}
        try:
            answer = httpx.post(
                f"{address}/images/generations",
                json=body,
                headers={"Authorization": f"Bearer {key}"} if key else {},
                timeout=TIMEOUT_S,
            )
            if answer.is_error:
                return image_error_response(
                    error=f"{address} answered {answer.status_code}: {answer.text[:500]}", **about
                )
            drawn = answer.json()["data"][0]
            encoded = drawn.get("b64_json")
            path = save_b64_image(encoded) if encoded else save_url_image(str(drawn["url"]))
        except (httpx.HTTPError, ValueError, KeyError, IndexError, TypeError, TimeoutError) as exc:
            return image_error_response(error=f"{address} gave no picture: {type(exc).__name__}: {exc}", **about)
        return image_success_response(image=str(path), **about)

    def get_setup_schema(self) -> dict[str, Any]:
        variable = {"key": "OPENAI_API_KEY", "prompt": "API key", "url": "https://platform.openai.com/api-keys"}
        return {"name": self.display_name, "badge": "key", "tag": "pictures from words", "env_vars": [variable]}


def register(ctx: Any) -> None:
    ctx.register_image_gen_provider(OpenAiImages())
