"""Draws every prompt as one grey pixel."""

from agent.image_gen_provider import (
    ImageGenProvider,
    error_response,
    resolve_aspect_ratio,
    save_b64_image,
    success_response,
)

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=="


class Pixel(ImageGenProvider):
    """Draws the same picture for everybody."""

    name = "example-pixel"

    def list_models(self):
        return [{"id": "grey", "display": "Grey", "speed": "fast", "strengths": "small", "price": "free"}]

    def generate(self, prompt, aspect_ratio="landscape", *, image_url=None, reference_image_urls=None, **kwargs):
        model = kwargs.get("model") or self.default_model()
        about = {
            "provider": self.name,
            "model": model,
            "prompt": prompt,
            "aspect_ratio": resolve_aspect_ratio(aspect_ratio),
        }
        if not prompt.strip():
            return error_response(error="the prompt is empty", error_type="invalid_prompt", **about)
        return success_response(image=str(save_b64_image(PIXEL, prefix="pixel")), **about)


def register(ctx):
    ctx.register_image_gen_provider(Pixel())
