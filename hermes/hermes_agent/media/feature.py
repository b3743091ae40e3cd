"""The tools for images, videos and speech. Source: plugin contract §4.12."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

from hermes_agent.config.settings import Settings
from hermes_agent.contracts.image_video import VALID_ASPECT_RATIOS
from hermes_agent.contracts.kind import ProviderLookup, is_provider_available
from hermes_agent.contracts.tool import Effect, Registrar
from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.core.untrusted import mark_untrusted
from hermes_agent.credentials import Credentials
from hermes_agent.hooks import HookBus
from hermes_agent.media.service import MediaService
from hermes_agent.media.video import OPTIONS, VIDEO, fit_schema
from hermes_agent.models.selection import ModelSelection
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.tools import current_scope, tool_error, tool_result, tool_schema

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


RELEASE_S = 5.0
"""Time limit of a speech provider for the release of what it prepared, when the host closes."""
_PICTURES = ("image_url", "reference_image_urls")


@lazy_dataclass(slots=True, eq=False, repr=False)
class _MediaTools:
    """The handlers of the tools."""

    media: MediaService

    def describe_image(self, args: dict[str, Any], **kwargs: Any) -> str:
        """Return `success` and `analysis`, which is untrusted text."""
        image, question = _text(args, "image_url"), _text(args, "question")
        found = self.media.describe_image(image, question)
        if found["success"]:
            found["analysis"] = mark_untrusted(found["analysis"], image if len(image) < 200 else "a picture")
        return tool_result(found)

    def generate_image(self, args: dict[str, Any], **kwargs: Any) -> str:
        """Return the result of the provider, with `media_tag` for a file."""
        found = self.media.generate_image(_text(args, "prompt"), args.get("aspect_ratio"), **self._pictures(args))
        image = str(found.get("image") or "")
        return tool_result({**found, "media_tag": f"MEDIA:{image}"} if image.startswith("/") else found)

    def generate_video(self, args: dict[str, Any], **kwargs: Any) -> str:
        """Return the result of the provider, with `media_tag` for a file."""
        options = {name: args[name] for name in OPTIONS if name in args} | self._pictures(args)
        found = self.media.generate_video(_text(args, "prompt"), **options)
        video = str(found.get("video") or "")
        return tool_result({**found, "media_tag": f"MEDIA:{video}"} if video.startswith("/") else found)

    def _pictures(self, args: dict[str, Any]) -> dict[str, Any]:
        """Return the image arguments for a provider.

        Raises:
            ToolFailed: tools may not read a file.
        """
        pictures = {name: args[name] for name in _PICTURES if args.get(name)}
        if "image_url" in pictures:
            pictures["image_url"] = self._image_argument(pictures["image_url"])
        if "reference_image_urls" in pictures:
            pictures["reference_image_urls"] = [self._image_argument(url) for url in pictures["reference_image_urls"]]
        return pictures

    def synthesize(self, args: dict[str, Any], **kwargs: Any) -> str:
        """Return `success`, `file_path`, `provider`, and `media_tag`."""
        text = _text(args, "text")
        if len(text) > MAX_SPEECH_CHARS:
            return tool_error(f"`text` has {len(text):,} characters: at most {MAX_SPEECH_CHARS:,} are spoken at once")
        found = self.media.synthesize(text, self._output_path(args.get("output_path")))
        if found["success"]:
            tag = f"MEDIA:{found['file_path']}"
            found["media_tag"] = f"[[audio_as_voice]]\n{tag}" if found.pop("voice_compatible") else tag
        return tool_result(found)

    def _image_argument(self, picture: Any) -> Any:
        """Return the image argument for a provider: a copy of a file, because the provider opens it itself.

        Raises:
            ToolFailed: tools may not read the file.
        """
        local = isinstance(picture, str) and not picture.startswith(("http://", "https://", "data:"))
        return self.media.copy_picture(picture.removeprefix("file://")) if local else picture

    def _output_path(self, given: Any) -> str | None:
        if not given:
            return None
        scope = current_scope.get()
        cwd = Path().resolve() if scope is None else scope.cwd
        path = (cwd / str(given)).expanduser().resolve()
        if not (path.is_relative_to(cwd) or path.is_relative_to(self.media.home / "cache")):
            raise ToolFailed(f"`output_path` is {given!r}: it must be below {cwd}")
        if why := self.media.secret_reason(str(path)):
            raise ToolFailed(f"`output_path` is {given!r}: {why}")
        if where := self.media.controlled_place(str(path)):
            raise ToolFailed(f"`output_path` is {given!r}: it lies {where}")
        return str(path)


def _text(args: dict[str, Any], name: str) -> str:
    value = args.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ToolFailed(f"`{name}` is {value!r}: expected a text")
    return value.strip()


class MediaDeps(LazyNamedTuple):
    """Services of images, videos and speech."""

    bridge: Bridge
    controlled_place: Callable[[str], str]
    credentials: Credentials
    settings: Callable[[], Settings]
    home: Path
    hooks: HookBus
    open_file: Callable[[str], IO[bytes]]
    providers: ProviderLookup
    secret_reason: Callable[[str], str | None]
    select_model: Callable[..., ModelSelection]
    side_answer: Callable[[str, str | list[dict[str, Any]], int | None], str]
    supports_images: Callable[[str], bool]
    values: Callable[[], dict[str, Any]]


class MediaServices(LazyNamedTuple):
    """Services that this feature provides."""

    media: MediaService
    synthesize: Callable[[str], str]
    """Speaks a text and returns the path of the recording, or ""."""
    stream_speech: Callable[[str], Any]
    """Returns the speech of a text while it is made (`SpeechStream`), or None."""
    transcribe: Callable[[str], str]
    """Returns the text of a recording, or ""."""


def register(ctx: Registrar, deps: MediaDeps) -> MediaServices:
    """Register the tools for images, videos and speech, each for the time that it has a provider."""

    def ask_vision_model(question: str, picture: dict[str, Any]) -> str:
        return deps.side_answer("vision", [{"type": "text", "text": question}, picture], None)

    def fetch(url: str) -> bytes:
        from hermes_agent.adapters.media import cache_image_from_url  # 20 ms that a start does not need

        return Path(deps.bridge.wait_core(cache_image_from_url(url))).read_bytes()

    media = MediaService(
        deps.home,
        deps.values,
        lambda kind: dict(deps.providers[kind].items()),
        lambda name: deps.credentials.get(name) or "",
        ask_vision_model=ask_vision_model,
        fetch=fetch,
        open_file=deps.open_file,
        secret_reason=deps.secret_reason,
        controlled_place=deps.controlled_place,
        fire=deps.hooks.fire,
        listeners=lambda hook: [plugin for plugin, _ in deps.hooks.listeners(hook)],
    )
    register_tools(ctx, media, partial(can_describe_images, deps))

    async def release() -> None:
        if media.is_warm:
            await deps.bridge.run(media.release_speech, deadline_s=RELEASE_S)

    ctx.on_close(release)
    return MediaServices(media, media.speech_file, media.stream_speech, media.transcript_text)


def can_describe_images(deps: MediaDeps) -> bool:
    """Say whether a model that accepts images is configured."""
    vision = deps.settings().auxiliary.vision
    named = vision.model or vision.base_url or vision.provider not in ("", "auto", "main")
    return bool(named) or deps.supports_images(deps.select_model().provider)


def register_tools(ctx: Registrar, media: MediaService, can_describe: Callable[[], bool]) -> None:
    """Register the tools. `can_describe`: says whether a model that accepts images is configured."""
    tools = _MediaTools(media)

    def can_speak() -> bool:
        provider = media.select_speech().provider
        return provider is not None and is_provider_available(provider)

    def video_parameters() -> dict[str, Any]:
        provider = media.select_video().provider
        return {} if provider is None else {"parameters": fit_schema(provider)}

    for toolset, schema, handler, check, emoji, effect in (
        ("vision", VISION, tools.describe_image, can_describe, "👁️", Effect("opens", _PICTURES)),
        ("image_gen", IMAGE, tools.generate_image, media.can_generate_images, "🎨", Effect("opens", _PICTURES)),
        ("tts", SPEECH, tools.synthesize, can_speak, "🔊", None),
    ):
        ctx.register_tool(schema["name"], toolset, schema, handler, check, emoji=emoji, effect=effect)
    ctx.register_tool(
        VIDEO["name"],
        "video_gen",
        VIDEO,
        tools.generate_video,
        media.can_generate_videos,
        emoji="🎬",
        effect=Effect("opens", _PICTURES),
        dynamic_schema_overrides=video_parameters,
    )
