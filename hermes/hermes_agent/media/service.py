"""Images, videos and speech by the providers of the config; results are mappings with `success`."""

from __future__ import annotations

import base64
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from hermes_agent.config.settings import Settings, plain
from hermes_agent.contracts.image_video import (
    ImageGenProvider,
    VideoGenProvider,
    choose_image_gen,
    choose_video_gen,
    image_error_response,
    image_success_response,
    normalize_reference_images,
    read_response,
    resolve_aspect_ratio,
    video_error_response,
)
from hermes_agent.contracts.kind import SelectedProvider, is_provider_available, read_setting
from hermes_agent.contracts.speech import (
    DEFAULT_OUTPUT_FORMAT,
    TranscriptionProvider,
    TTSProvider,
    choose_transcription,
    choose_tts,
)
from hermes_agent.core.calls import supported
from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.messages import new_id
from hermes_agent.hooks import HookResult
from hermes_agent.media.speech_guard import HOOK as SPEECH_HOOK
from hermes_agent.media.speech_guard import SpeechVerdict, judge_speech
from hermes_agent.media.video import generate_video
from hermes_agent.system.files import PRIVATE, hold_directory, replace_at, write_atomic
from hermes_agent.system.installation import BUNDLED_PLUGINS, bundled_plugin

if TYPE_CHECKING:
    from hermes_agent.media.speech import SpeechStream

logger = logging.getLogger(__name__)

_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
)


def image_type(raw: bytes) -> str | None:
    """Return the media type of an image by its first bytes, or None for an unknown one."""
    for magic, kind in _IMAGES:
        if raw.startswith(magic):
            return kind
    if raw[:4] == b"RIFF" and raw[8:12] == b"WEBP":
        return "image/webp"
    if raw[4:8] == b"ftyp" and raw[8:12] in (b"heic", b"heix", b"mif1", b"avif"):
        return "image/avif" if raw[8:12] == b"avif" else "image/heic"
    return None


LARGEST_PICTURE = 20 * 1024 * 1024
LOCAL_TRANSCRIPTION = "HERMES_LOCAL_STT_COMMAND"
"""Variable with the command of `stt.provider: local_command`."""


def bundled_speech_names() -> list[str]:
    """Return the names of the bundled speech providers, which are read when the config names one."""
    return sorted(path.parent.name for path in (BUNDLED_PLUGINS / "speech").glob("*/plugin.yaml"))


def no_answers(hook: str, /, **keywords: Any) -> tuple[HookResult, ...]:
    """Return no answers, as if no hook had a listener."""
    return ()


@lazy_dataclass(slots=True, eq=False, repr=False)
class MediaService:
    """Images, videos, text to speech and speech to text. Used in workers.

    Attributes:
        values: returns the effective config.
        providers: returns the registered providers of a kind by name.
        secret: returns a secret by name, or "".
        ask_vision_model: asks a model that accepts images: a question, and the image as a part of a message.
        fetch: returns the bytes at a public address.
        open_file: opens a plain file that tools may read.
        secret_reason: returns why tools may not read a file, or None.
        controlled_place: returns the place of a file that other programs of the user run or obey, or "".
    """

    home: Path
    values: Callable[[], Mapping[str, Any]]
    providers: Callable[[str], Mapping[str, Any]]
    secret: Callable[[str], str]
    ask_vision_model: Callable[[str, dict[str, Any]], str]
    fetch: Callable[[str], bytes]
    open_file: Callable[[str], IO[bytes]]
    secret_reason: Callable[[str], str | None]
    controlled_place: Callable[[str], str] = lambda path: ""
    fire: Callable[..., Sequence[HookResult]] = no_answers
    """Calls the listeners of a hook (`HookBus.fire`)."""
    listeners: Callable[[str], Collection[str]] = lambda hook: ()
    """Returns the keys of the plugins that listen to a hook."""
    _warmed: TTSProvider | None = None

    # -- text to speech---------------------------------------------------------------------------------------------

    def select_speech(self) -> SelectedProvider[TTSProvider]:
        """Return the provider for text to speech."""
        return self._builtin_speech("tts", _speech_program) or choose_tts(self.providers("tts"), self.values())

    def _builtin_speech(
        self, kind: str, program: Callable[..., Any], *, command: str = ""
    ) -> SelectedProvider[Any] | None:
        """Return the bundled provider or the program of the config, or None for a provider of a plugin.

        Args:
            command: command of `local` and `local_command`.
        """
        values = self.values()
        name, block = read_setting(values, f"{kind}.provider"), values.get(kind) or {}
        if name in bundled_speech_names():
            provider = bundled_plugin("speech", name).PROVIDERS[kind](block.get(name) or {}, self.secret)
            return SelectedProvider(provider, f"{kind}.provider names it")
        settings = (block.get("providers") or {}).get(name)
        if command and name in ("local", "local_command"):
            settings = {"command": command}
        if isinstance(settings, Mapping) and settings.get("command"):
            from hermes_agent.system.processes import tool_environment  # an idle daemon runs no program

            provider = program(name, settings, tool_environment(os.environ))
            return SelectedProvider(provider, f"{kind}.providers.{name} is a program")
        return None

    def synthesize(self, text: str, output_path: str | None = None) -> dict[str, Any]:
        """Write a text as speech into a file; return `file_path`, `provider`, `voice_compatible`, or `error`.

        Args:
            output_path: resolved path. The provider writes to the cache and the file is moved, because a command may
                write to that path, too.
        """
        chosen = self.select_speech()
        if chosen.provider is None:
            return {"success": False, "error": f"nothing speaks: {chosen.reason}"}
        provider = chosen.provider
        text, refusal = self._judge(text, provider.name)
        if refusal:
            return {"success": False, "error": refusal, "provider": provider.name}
        kind = getattr(provider, "output_format", DEFAULT_OUTPUT_FORMAT)
        target = Path(output_path) if output_path else None
        suffix = target.suffix if target and target.suffix else f".{kind}"
        place = self.home / "cache" / "audio" / f"{new_id('speech')}{suffix}"
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._prepare(provider)
            written = provider.synthesize(text, str(place), format=kind)
        except Exception as exc:  # of a plugin; the result reports it, as upstream does
            logger.warning("speech provider %s: failed", provider.name, exc_info=True)
            return {"success": False, "error": _error_text(exc), "provider": provider.name}
        file = Path(written or place)
        if target is not None:
            try:
                file = _move_file(file, target)
            except OSError as exc:
                why = f"{target} cannot be written: {exc.strerror or exc}"
                return {"success": False, "error": why, "provider": provider.name}
        voice = bool(getattr(provider, "voice_compatible", False))
        return {
            "success": True,
            "file_path": str(file),
            "provider": provider.name,
            "voice_compatible": voice,
        }

    def _prepare(self, provider: TTSProvider) -> None:
        """Let a provider prepare for its first text, and release the previous one."""
        if provider is self._warmed:
            return
        self.release_speech()
        self._warmed = provider
        _call_quietly(provider, "warm")

    @property
    def is_warm(self) -> bool:
        """Whether a provider prepared for speech."""
        return self._warmed is not None

    def release_speech(self) -> None:
        """Let the provider that speaks release what it prepared."""
        previous, self._warmed = self._warmed, None
        if previous is not None:
            _call_quietly(previous, "release")

    def _judge(self, text: str, provider: str) -> SpeechVerdict:
        """Return what the plugins let be spoken."""
        required = Settings(self.values()).tts.pre_synthesis.required_plugins
        return judge_speech(self.fire, text, provider, required=required, listening=self.listeners(SPEECH_HOOK))

    def stream_speech(self, text: str) -> SpeechStream | None:
        """Return the speech of a text while it is made, sentence by sentence; None for a provider of files."""
        from hermes_agent.media.speech import stream_speech  # as above

        provider = self.select_speech().provider
        if provider is not None and not is_provider_available(provider):
            provider = None
        if provider is not None and getattr(provider, "streams_pcm", False):
            self._prepare(provider)
        return stream_speech(text, plain(Settings(self.values()).tts), provider, self._judge)

    def copy_picture(self, picture: str) -> str:
        """Return the path of a copy of a local image, so that no command replaces it before it is read.

        Raises:
            ToolFailed: tools may not read the file, or it is too large.
        """
        with self.open_file(picture) as file:
            data = file.read(LARGEST_PICTURE + 1)
        if len(data) > LARGEST_PICTURE:
            raise ToolFailed(f"{picture} has over {LARGEST_PICTURE:,} bytes")
        place = self.home / "cache" / "images" / f"{new_id('given')}{Path(picture).suffix}"
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(place, data, mode=PRIVATE)
        return str(place)

    def speech_file(self, text: str) -> str:
        """Return the path of a recording of a text; "" without a provider or after a logged failure."""
        provider = self.select_speech().provider
        if provider is None or not is_provider_available(provider):
            return ""
        result = self.synthesize(text)
        if not result["success"]:
            logger.warning("text to speech: failed: %s", result["error"])
        return str(result.get("file_path") or "")

    # -- transcription -------------------------------------------------------------------------------------------

    def select_transcription(self) -> SelectedProvider[TranscriptionProvider]:
        """Return the provider for transcription."""
        own = self._builtin_speech("stt", _transcription_program, command=os.environ.get(LOCAL_TRANSCRIPTION, ""))
        return own or choose_transcription(self.providers("transcription"), self.values())

    def transcribe(self, file_path: str, model: str | None = None, source: str = "") -> dict[str, Any]:
        """Transcribe a recording; return `transcript` and `provider`, or `error`.

        Args:
            source: where the recording comes from, for hooks.
        """
        chosen = self.select_transcription()
        if chosen.provider is None:
            return {"success": False, "transcript": "", "error": f"nothing transcribes speech: {chosen.reason}"}
        try:
            asked = self._transcription_options(file_path, chosen.provider, model, source)
            found = chosen.provider.transcribe(file_path, **supported(chosen.provider.transcribe, asked))
        except Exception as exc:  # as above
            logger.warning("transcription provider %s: failed", chosen.provider.name, exc_info=True)
            return {"success": False, "transcript": "", "error": _error_text(exc), "provider": chosen.provider.name}
        return found if isinstance(found, dict) else {"success": True, "transcript": str(found)}

    def _transcription_options(
        self, file_path: str, provider: TranscriptionProvider, model: str | None, source: str
    ) -> dict[str, Any]:
        """Return `model`, `language` and `prompt` after `pre_transcription`; the last plugin wins per field."""
        options: dict[str, Any] = {"model": model, "language": None, "prompt": None}
        for answer in self.fire(
            "pre_transcription", file_path=file_path, provider=provider.name, source=source or None, **options
        ):
            value = answer.value if isinstance(answer.value, dict) else {}
            if "file_path" in value:
                logger.warning("pre_transcription of plugin %s: file_path cannot be changed", answer.plugin)
            options |= {name: value[name] for name in options if isinstance(value.get(name), str)}
        return {name: value for name, value in options.items() if name == "model" or value}

    def transcript_text(self, file_path: str) -> str:
        """Return the text of a recording; "" without a provider or after a logged failure."""
        provider = self.select_transcription().provider
        if provider is None or not is_provider_available(provider):
            return ""
        found = self.transcribe(file_path)
        if not found.get("success"):
            logger.warning("transcription of %s: failed: %s", file_path, found.get("error"))
        return str(found.get("transcript") or "").strip()

    # -- images ---------------------------------------------------------------------------------------------------

    def generate_image(self, prompt: str, aspect_ratio: str | None = None, **pictures: Any) -> dict[str, Any]:
        """Generate an image; return the result of the provider, or an `image_error_response`.

        Args:
            pictures: `image_url`, `reference_image_urls`.
        """
        values = self.values()
        chosen = choose_image_gen(self.providers("image_gen"), values)
        if chosen.provider is None:
            kind = "provider_not_registered" if Settings(values).image_gen.provider.strip() else "no_provider"
            return image_error_response(error=chosen.reason, error_type=kind, prompt=prompt)
        model = str(plain(Settings(values).image_gen).get("model") or "").strip() or None
        return generate_image(chosen.provider, prompt, aspect_ratio, model=model, **pictures)

    def can_generate_images(self) -> bool:
        """Return whether a provider generates images."""
        provider = choose_image_gen(self.providers("image_gen"), self.values()).provider
        return provider is not None and is_provider_available(provider)

    def select_video(self) -> SelectedProvider[VideoGenProvider]:
        """Return the provider that generates videos."""
        return choose_video_gen(self.providers("video_gen"), self.values())

    def generate_video(self, prompt: str, **options: Any) -> dict[str, Any]:
        """Generate a video; return the result of the provider, or a `video_error_response`.

        Args:
            options: as `media.video.OPTIONS`.
        """
        values, chosen = self.values(), self.select_video()
        if chosen.provider is None:
            kind = "provider_not_registered" if Settings(values).video_gen.provider.strip() else "no_provider"
            return video_error_response(error=chosen.reason, error_type=kind, prompt=prompt)
        model = str(plain(Settings(values).video_gen).get("model") or "").strip()
        return generate_video(chosen.provider, prompt, ({"model": model} if model else {}) | options)

    def can_generate_videos(self) -> bool:
        """Return whether a provider generates videos."""
        provider = self.select_video().provider
        return provider is not None and is_provider_available(provider)

    def describe_image(self, image: str, question: str) -> dict[str, Any]:
        """Describe an image; return `analysis`, or `error`. `image`: an address, or the path of a file."""
        try:
            return {"success": True, "analysis": self.ask_vision_model(question, self.image_part(image))}
        except Exception as exc:  # noqa: BLE001 - of the model, the network or the disk; the result reports it
            return {"success": False, "error": _error_text(exc)}

    def image_part(self, image: str) -> dict[str, Any]:
        """Return an image as a part of a message.

        Raises:
            ValueError: it is no image, is too large, or its address may not be opened.
            ToolFailed: the file cannot be read, or tools may not read it.
        """
        if image.startswith(("http://", "https://")):
            data = self.fetch(image)
        else:
            with self.open_file(image.removeprefix("file://")) as file:
                data = file.read(LARGEST_PICTURE + 1)
            if len(data) > LARGEST_PICTURE:
                raise ValueError(f"{image} has over {LARGEST_PICTURE:,} bytes")
        kind = image_type(data)
        if kind is None:
            raise ValueError(f"{image} is no picture")
        return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{base64.b64encode(data).decode()}"}}


def _speech_program(*args: Any) -> TTSProvider:
    from hermes_agent.media.speech import SpeechProgram  # few processes speak with a program

    return SpeechProgram(*args)


def _transcription_program(*args: Any) -> TranscriptionProvider:
    from hermes_agent.media.speech import TranscriptionProgram  # as above

    return TranscriptionProgram(*args)


def _move_file(file: Path, target: Path) -> Path:
    """Move a file to `target`, with its own suffix; a link that is put there now is not followed."""
    target = target.with_suffix(file.suffix)
    with hold_directory(str(target.parent)) as directory:
        replace_at(directory, target.name, file.read_bytes())
    file.unlink()
    return target


def _call_quietly(provider: TTSProvider, method: str) -> None:
    """Call an optional method of a provider; a failure is logged."""
    try:
        getattr(provider, method, lambda: None)()
    except Exception as exc:  # noqa: BLE001 - a plugin's provider, which may still speak
        logger.warning("speech provider %s: %s failed: %r", provider.name, method, exc)


def _error_text(exc: Exception) -> str:
    return f"{type(exc).__name__}: {exc}"


def generate_image(
    provider: ImageGenProvider,
    prompt: str,
    aspect_ratio: str | None = None,
    *,
    model: str | None = None,
    image_url: str | None = None,
    reference_image_urls: Any = None,
) -> dict[str, Any]:
    """Call `generate` and return its answer as a dict; an exception becomes an error response.

    A provider that does not accept images is called again without them.
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
    return read_response(answer, image_success_response, image_error_response, **about)
