"""What looks, draws, speaks and listens, as the config selects it. Every answer is a mapping with `success`."""

from __future__ import annotations

import base64
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hermes_agent.contracts.image_video import choose_image_gen, generate_image, image_error_response
from hermes_agent.contracts.kind import SelectedProvider, is_provider_available, read_setting
from hermes_agent.contracts.speech import (
    DEFAULT_OUTPUT_FORMAT,
    TranscriptionProvider,
    TTSProvider,
    choose_transcription,
    choose_tts,
)
from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.messages import new_id
from hermes_agent.system.files import PRIVATE, hold_directory, replace_at, write_atomic
from hermes_agent.system.installation import BUNDLED_PLUGINS, bundled_plugin
from hermes_agent.system.processes import tool_environment

logger = logging.getLogger(__name__)

_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
)


def image_type(raw: bytes) -> str | None:
    """Return the content type of a picture by its first bytes, None when it is none that is known."""
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


@dataclass(frozen=True, slots=True)
class MediaService:
    """Sync, and slow: call it in a worker.

    Attributes:
        values: returns the effective config.
        providers: returns the providers of a kind that plugins registered, by name.
        secret: returns a key by name, empty when there is none.
        look_at: asks the model that sees: a question, and the picture as a part of a message.
        fetch: fetches a public address: its bytes.
        opened: opens a plain file that tools may have.
        secret_reason: returns why a file is not for tools, None when it is.
        steers: says where a file lies that other programs of the user run or obey; empty for no such file.
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

    # -- speaking ------------------------------------------------------------------------------------------------

    def select_speech(self) -> SelectedProvider[TTSProvider]:
        """Return who speaks."""
        from hermes_agent.media.speech import SpeechProgram  # here and below: few speak or listen, and none at once

        return self._builtin_speech("tts", SpeechProgram) or choose_tts(self.providers("tts"), self.values())

    def _builtin_speech(self, kind: str, program: type[Any], *, command: str = "") -> SelectedProvider[Any] | None:
        """Return the bundled provider or the program that the config names; None for another plugin's provider.

        Args:
            command: of `local` and `local_command`.
        """
        values = self.values()
        name, block = read_setting(values, f"{kind}.provider"), values.get(kind) or {}
        if name in bundled_speech_names():
            made = bundled_plugin("speech", name).PROVIDERS[kind](block.get(name) or {}, self.secret)
            return SelectedProvider(made, f"{kind}.provider names it")
        settings = (block.get("providers") or {}).get(name)
        if command and name in ("local", "local_command"):
            settings = {"command": command}
        if isinstance(settings, Mapping) and settings.get("command"):
            made = program(name, settings, tool_environment(os.environ))
            return SelectedProvider(made, f"{kind}.providers.{name} is a program")
        return None

    def synthesize(self, text: str, output_path: str | None = None) -> dict[str, Any]:
        """Speak into a file: `file_path`, `provider`, `voice_compatible`; or `error`.

        Args:
            output_path: resolved; a command may write there, so the provider works elsewhere and the file is moved.
        """
        chosen = self.select_speech()
        if chosen.provider is None:
            return {"success": False, "error": f"nothing speaks: {chosen.reason}"}
        provider = chosen.provider
        kind = getattr(provider, "output_format", DEFAULT_OUTPUT_FORMAT)
        wanted = Path(output_path) if output_path else None
        suffix = wanted.suffix if wanted and wanted.suffix else f".{kind}"
        place = self.home / "cache" / "audio" / f"{new_id('speech')}{suffix}"
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            written = provider.synthesize(text, str(place), format=kind)
        except Exception as exc:  # a plugin's provider: the caller is told, as upstream does
            logger.warning("speech provider %s failed", provider.name, exc_info=True)
            return {"success": False, "error": _error_text(exc), "provider": provider.name}
        made = Path(written or place)
        if wanted is not None:
            try:
                made = _move_file(made, wanted)
            except OSError as exc:
                why = f"{wanted} cannot be written: {exc.strerror or exc}"
                return {"success": False, "error": why, "provider": provider.name}
        voice = bool(getattr(provider, "voice_compatible", False))
        return {
            "success": True,
            "file_path": str(made),
            "provider": provider.name,
            "voice_compatible": voice,
        }

    def copy_picture(self, picture: str) -> str:
        """Return a copy of a local picture, which a command cannot exchange before a provider opens it.

        Raises:
            ToolFailed: it is not for tools.
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
        """Return a sound file that says a text; empty when nobody speaks, or it failed (the log says why)."""
        provider = self.select_speech().provider
        if provider is None or not is_provider_available(provider):
            return ""
        said = self.synthesize(text)
        if not said["success"]:
            logger.warning("an answer is not spoken: %s", said["error"])
        return str(said.get("file_path") or "")

    # -- listening -----------------------------------------------------------------------------------------------

    def select_transcription(self) -> SelectedProvider[TranscriptionProvider]:
        """Return who listens."""
        from hermes_agent.media.speech import TranscriptionProgram

        own = self._builtin_speech("stt", TranscriptionProgram, command=os.environ.get(LOCAL_TRANSCRIPTION, ""))
        return own or choose_transcription(self.providers("transcription"), self.values())

    def transcribe(self, file_path: str, model: str | None = None) -> dict[str, Any]:
        """Write down what a sound file says: `transcript`, `provider`; or `error`."""
        chosen = self.select_transcription()
        if chosen.provider is None:
            return {"success": False, "transcript": "", "error": f"nothing transcribes speech: {chosen.reason}"}
        try:
            found = chosen.provider.transcribe(file_path, model=model)
        except Exception as exc:  # as above
            logger.warning("transcription provider %s failed", chosen.provider.name, exc_info=True)
            return {"success": False, "transcript": "", "error": _error_text(exc), "provider": chosen.provider.name}
        return found if isinstance(found, dict) else {"success": True, "transcript": str(found)}

    def transcript_text(self, file_path: str) -> str:
        """Return what a sound file says; empty when nobody listens, or it failed (the log says why)."""
        provider = self.select_transcription().provider
        if provider is None or not is_provider_available(provider):
            return ""
        found = self.transcribe(file_path)
        if not found.get("success"):
            logger.warning("%s is not written down: %s", file_path, found.get("error"))
        return str(found.get("transcript") or "").strip()

    # -- drawing and looking -------------------------------------------------------------------------------------

    def generate_image(self, prompt: str, aspect_ratio: str | None = None, **pictures: Any) -> dict[str, Any]:
        """Draw: what `contracts.image_gen.success_response` or `image_error_response` makes.

        Args:
            pictures: `image_url`, `reference_image_urls`.
        """
        values = self.values()
        chosen = choose_image_gen(self.providers("image_gen"), values)
        if chosen.provider is None:
            kind = "provider_not_registered" if read_setting(values, "image_gen.provider") else "no_provider"
            return image_error_response(error=chosen.reason, error_type=kind, prompt=prompt)
        model = read_setting(values, "image_gen.model") or None
        return generate_image(chosen.provider, prompt, aspect_ratio, model=model, **pictures)

    def can_generate_images(self) -> bool:
        """Say whether somebody draws."""
        provider = choose_image_gen(self.providers("image_gen"), self.values()).provider
        return provider is not None and is_provider_available(provider)

    def describe_image(self, image: str, question: str) -> dict[str, Any]:
        """Look at a picture: `analysis`, or `error`. `image`: an address, or the path of a file."""
        try:
            return {"success": True, "analysis": self.ask_vision_model(question, self.image_part(image))}
        except Exception as exc:  # noqa: BLE001 - the model's, the network's or the disk's: the caller is told
            return {"success": False, "error": _error_text(exc)}

    def image_part(self, image: str) -> dict[str, Any]:
        """Return a picture as a part of a message.

        Raises:
            ValueError: it is none, too large, or its address is not opened.
            ToolFailed: the file cannot be read, or is not for tools.
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


def _move_file(made: Path, wanted: Path) -> Path:
    """Move a file to where it was wanted, with its own ending; a link that came meanwhile leads nowhere else."""
    target = wanted.with_suffix(made.suffix)
    with hold_directory(str(target.parent)) as directory:
        replace_at(directory, target.name, made.read_bytes())
    made.unlink()
    return target


def _error_text(exc: Exception) -> str:
    return f"{type(exc).__name__}: {exc}"
