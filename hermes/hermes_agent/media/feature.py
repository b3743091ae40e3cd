"""Register the tools of this package: `vision_analyze`, `image_generate`, `text_to_speech`. Source: contract §4.12."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes_agent.contracts.image_video import VALID_ASPECT_RATIOS
from hermes_agent.contracts.kind import is_provider_available
from hermes_agent.contracts.tool import Effect
from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.registry import BUILTIN, Owner
from hermes_agent.core.untrusted import mark_untrusted
from hermes_agent.media.service import MediaService
from hermes_agent.tools import ToolRegistry, current_scope, tool_error, tool_result, tool_schema

MAX_SPEECH_CHARS = 10_000

VISION = tool_schema(
    "vision_analyze",
    "Look at a picture and answer a question about it.",
    {"image_url": {"type": "string", "description": "Address, or path of a file"}, "question": {"type": "string"}},
    required=["image_url", "question"],
)
IMAGE = tool_schema(
    "image_generate",
    "Draw a picture. Write MEDIA: and its path into your answer to send it.",
    {
        "prompt": {"type": "string"},
        "aspect_ratio": {"type": "string", "enum": list(VALID_ASPECT_RATIOS)},
        "image_url": {"type": "string", "description": "A picture to change"},
        "reference_image_urls": {"type": "array", "items": {"type": "string"}},
    },
    required=["prompt"],
)
SPEECH = tool_schema(
    "text_to_speech",
    "Speak a text into a sound file. Put `media_tag` into your answer to send it.",
    {
        "text": {"type": "string"},
        "output_path": {"type": "string", "description": "Below the working directory; by default in the cache"},
    },
    required=["text"],
)


@dataclass(frozen=True, slots=True)
class _MediaTools:
    media: MediaService

    def describe_image(self, args: dict[str, Any], **kwargs: Any) -> str:
        """Return `success` and `analysis`, which is data."""
        image, question = _text(args, "image_url"), _text(args, "question")
        found = self.media.describe_image(image, question)
        if found["success"]:
            found["analysis"] = mark_untrusted(found["analysis"], image if len(image) < 200 else "a picture")
        return tool_result(found)

    def generate_image(self, args: dict[str, Any], **kwargs: Any) -> str:
        """Return what the provider answered, with `media_tag` for a file."""
        names = ("image_url", "reference_image_urls")
        pictures = {name: args[name] for name in names if args.get(name)}
        if "image_url" in pictures:
            pictures["image_url"] = self._image_argument(pictures["image_url"])
        if "reference_image_urls" in pictures:
            pictures["reference_image_urls"] = [self._image_argument(one) for one in pictures["reference_image_urls"]]
        found = self.media.generate_image(_text(args, "prompt"), args.get("aspect_ratio"), **pictures)
        image = str(found.get("image") or "")
        return tool_result({**found, "media_tag": f"MEDIA:{image}"} if image.startswith("/") else found)

    def synthesize(self, args: dict[str, Any], **kwargs: Any) -> str:
        """Return `success`, `file_path`, `provider`, and `media_tag`."""
        text = _text(args, "text")
        if len(text) > MAX_SPEECH_CHARS:
            return tool_error(f"`text` has {len(text):,} characters: at most {MAX_SPEECH_CHARS:,} are spoken at once")
        found = self.media.synthesize(text, self._place(args.get("output_path")))
        if found["success"]:
            tag = f"MEDIA:{found['file_path']}"
            found["media_tag"] = f"[[audio_as_voice]]\n{tag}" if found.pop("voice_compatible") else tag
        return tool_result(found)

    def _image_argument(self, picture: Any) -> Any:
        """Return what the provider is given for a picture: it opens files by itself, so it gets a copy.

        Raises:
            ToolFailed: a file is not for tools, with the reason.
        """
        local = isinstance(picture, str) and not picture.startswith(("http://", "https://", "data:"))
        return self.media.copy_picture(picture.removeprefix("file://")) if local else picture

    def _place(self, wanted: Any) -> str | None:
        if not wanted:
            return None
        scope = current_scope.get()
        here = Path().resolve() if scope is None else scope.cwd
        place = (here / str(wanted)).expanduser().resolve()
        if not (place.is_relative_to(here) or place.is_relative_to(self.media.home / "cache")):
            raise ToolFailed(f"`output_path` is {wanted!r}: it must be below {here}")
        if why := self.media.secret_reason(str(place)):
            raise ToolFailed(f"`output_path` is {wanted!r}: {why}")
        if where := self.media.controlled_place(str(place)):
            raise ToolFailed(f"`output_path` is {wanted!r}: it lies {where}")
        return str(place)


def _text(args: dict[str, Any], name: str) -> str:
    value = args.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ToolFailed(f"`{name}` is {value!r}: expected a text")
    return value.strip()


def register(registry: ToolRegistry, media: MediaService, can_look: Callable[[], bool]) -> None:
    """Register the three. `can_look`: says whether a model that sees can be asked."""
    tools, owner = _MediaTools(media), Owner(BUILTIN)

    def can_speak() -> bool:
        provider = media.select_speech().provider
        return provider is not None and is_provider_available(provider)

    pictures = ("image_url", "reference_image_urls")
    for toolset, schema, handler, check, emoji, effect in (
        ("vision", VISION, tools.describe_image, can_look, "👁️", Effect("opens", pictures)),
        ("image_gen", IMAGE, tools.generate_image, media.can_generate_images, "🎨", Effect("opens", pictures)),
        ("tts", SPEECH, tools.synthesize, can_speak, "🔊", None),
    ):
        registry.register(
            schema["name"], toolset, schema, handler, check_fn=check, emoji=emoji, effect=effect, owner=owner
        )
