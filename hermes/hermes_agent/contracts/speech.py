"""Text to speech: a service that speaks. Source: plugin contract §8.7.

Selected by `tts.provider`; the agent's own names and command-line programs (`tts.providers`) come first.

Speech to text: a service that writes down what is said. Source: plugin contract §8.7.

Selected by `stt.provider`; the agent's own names and command-line programs (`stt.providers`) come first.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from functools import partial
from typing import Any

from hermes_agent.contracts.kind import Kind, ModelService, choose_by_name, first_id

__all__ = [
    "BUILTIN_STT",
    "BUILTIN_TTS",
    "DEFAULT_OUTPUT_FORMAT",
    "OUTPUT_FORMATS",
    "TRANSCRIPTION",
    "TTS",
    "TTSProvider",
    "TranscriptionProvider",
    "choose_transcription",
    "choose_tts",
]


TTS = Kind("tts", "register_tts_provider", "TTS provider", is_used=True)

BUILTIN_TTS = frozenset(
    (
        *("deepinfra", "edge", "elevenlabs", "gemini", "kittentts", "minimax", "mistral", "neutts", "openai", "piper"),
        "xai",
    )
)
"""Names that are the agent's own; a plugin cannot take one."""
OUTPUT_FORMATS = ("mp3", "wav", "ogg", "opus", "flac")
DEFAULT_OUTPUT_FORMAT = "mp3"


class TTSProvider(ModelService):
    """Speaks a text into a file."""

    @abc.abstractmethod
    def synthesize(
        self,
        text: str,
        output_path: str,
        *,
        voice: str | None = None,
        model: str | None = None,
        speed: float | None = None,
        format: str = DEFAULT_OUTPUT_FORMAT,
        **extra: Any,
    ) -> str:
        """Speak `text` into a file and return its path, which may differ from `output_path`; raises on failure.

        Args:
            format: one of `OUTPUT_FORMATS`.
            speed: 1.0 is normal; None leaves it to the service.
        """

    def stream(
        self,
        text: str,
        *,
        voice: str | None = None,
        model: str | None = None,
        format: str = "opus",
        **extra: Any,
    ) -> Iterator[bytes]:
        """Speak `text` piece by piece."""
        raise NotImplementedError(f"TTS provider '{self.name}' does not stream")

    def list_voices(self) -> list[dict[str, Any]]:
        """Return the voices, each with at least `id`."""
        return []

    def default_voice(self) -> str | None:
        """Return the voice that is used when none is named: the first of the list."""
        return first_id(self.list_voices())

    @property
    def voice_compatible(self) -> bool:
        """Whether its files may be sent as voice messages."""
        return False


choose_tts = partial(choose_by_name, section="tts", builtin=BUILTIN_TTS)
"""Returns, of (providers, values), the plugin's that speaks; none when the agent's own or a program does."""


TRANSCRIPTION = Kind("transcription", "register_transcription_provider", "transcription provider", is_used=True)

BUILTIN_STT = frozenset({"deepinfra", "elevenlabs", "groq", "local", "local_command", "mistral", "openai", "xai"})
"""Names that are the agent's own; a plugin cannot take one."""


class TranscriptionProvider(ModelService):
    """Writes down what is said in a sound file."""

    @abc.abstractmethod
    def transcribe(
        self, file_path: str, *, model: str | None = None, language: str | None = None, **extra: Any
    ) -> dict[str, Any]:
        """Write down what is said.

        Args:
            language: ISO 639 code; None lets the service find out.

        Returns:
            `{"success": bool, "transcript": str, "provider": str}`, with `error` when it failed.
        """


choose_transcription = partial(choose_by_name, section="stt", builtin=BUILTIN_STT)
"""Returns, of (providers, values), the plugin's that listens; none when the agent's own or a program does."""
