"""Films every prompt as an empty film."""

from agent.video_gen_provider import VideoGenProvider, error_response, save_b64_video, success_response

EMPTY = "AAAAFGZ0eXBpc29tAAAAAGlzb20AAAAIbWRhdA=="


class Blank(VideoGenProvider):
    """Films the same nothing for everybody."""

    name = "example-blank"

    def generate(self, prompt, *, model=None, aspect_ratio="16:9", duration=None, **kwargs):
        about = {"provider": self.name, "model": model or "blank", "prompt": prompt, "aspect_ratio": aspect_ratio}
        if not prompt.strip():
            return error_response(error="the prompt is empty", error_type="invalid_prompt", **about)
        return success_response(video=str(save_b64_video(EMPTY, prefix="blank")), duration=duration or 0, **about)


def register(ctx):
    ctx.register_video_gen_provider(Blank())
