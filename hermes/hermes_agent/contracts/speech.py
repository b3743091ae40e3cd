"""Text to speech and transcription.

Selected by `tts.provider` and `stt.provider`. Built-in names and command-line programs (`tts.providers`,
`stt.providers`) take precedence over plugins. Source: plugin contract §8.7.
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
"""Reserved names, which plugins cannot use."""
OUTPUT_FORMATS = ("mp3", "wav", "ogg", "opus", "flac")
DEFAULT_OUTPUT_FORMAT = "mp3"


class TTSProvider(ModelService):
    """A provider that synthesizes speech into a file."""

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
        """Write `text` as speech to a file and return its path, which may differ from `output_path`.

        Args:
            format: one of `OUTPUT_FORMATS`.
            speed: 1.0 is normal; None is the default of the service.

                Raises:
                    Exception: any failure; the message is shown to the user.
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
        """Return the speech in pieces, as they are synthesized."""
        raise NotImplementedError(f"TTS provider '{self.name}' does not stream")

    def list_voices(self) -> list[dict[str, Any]]:
        """Return the voices, each with at least `id`."""
        return []

    def default_voice(self) -> str | None:
        """Return the id of the voice that is used by default: the first of the list."""
        return first_id(self.list_voices())

    @property
    def voice_compatible(self) -> bool:
        """Whether its files can be sent as voice messages."""
        return False


choose_tts = partial(choose_by_name, section="tts", builtin=BUILTIN_TTS)
"""Return the selected plugin provider, of (providers, values); none for a built-in provider or a program."""


TRANSCRIPTION = Kind("transcription", "register_transcription_provider", "transcription provider", is_used=True)

BUILTIN_STT = frozenset({"deepinfra", "elevenlabs", "groq", "local", "local_command", "mistral", "openai", "xai"})
"""Reserved names, which plugins cannot use."""


class TranscriptionProvider(ModelService):
    """A provider that transcribes audio files."""

    @abc.abstractmethod
    def transcribe(
        self, file_path: str, *, model: str | None = None, language: str | None = None, **extra: Any
    ) -> dict[str, Any]:
        """Transcribe a file.

        Args:
            language: ISO 639 code; None: the service detects it.

        Returns:
            `{"success": bool, "transcript": str, "provider": str}`, with `error` when it failed.
        """


choose_transcription = partial(choose_by_name, section="stt", builtin=BUILTIN_STT)
"""Return the selected plugin provider, of (providers, values); none for a built-in provider or a program."""
