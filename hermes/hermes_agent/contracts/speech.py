"""Text to speech and transcription.

Selected by `tts.provider` and `stt.provider`. Built-in names and command-line programs (`tts.providers`,
`stt.providers`) take precedence over plugins. Source: plugin contract §8.7.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, TypeVar

from hermes_agent.contracts.kind import Kind, ModelService, choose_by_name, first_id
from hermes_agent.core.lazy_types import lazy_dataclass

__all__ = [
    "BUILTIN_STT",
    "BUILTIN_TTS",
    "DEFAULT_OUTPUT_FORMAT",
    "OUTPUT_FORMATS",
    "STREAMING_PROVIDERS",
    "TRANSCRIPTION",
    "TTS",
    "AudioFormat",
    "StreamingTTSHandle",
    "StreamingTTSProvider",
    "TTSProvider",
    "TranscriptionProvider",
    "TranscriptionStreamSession",
    "choose_transcription",
    "choose_tts",
    "register_streaming",
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


@lazy_dataclass(frozen=True, slots=True)
class AudioFormat:
    """Form of raw sound: signed samples, little-endian."""

    sample_rate: int = 24000
    channels: int = 1
    sample_width: int = 2
    """Bytes of one sample."""


@lazy_dataclass(slots=True)
class StreamingTTSHandle:
    """Speech that an adapter plays while it is made."""

    chat_id: str
    audio_format: AudioFormat
    audible: bool = False
    """Whether users hear it already."""
    aborted: bool = False
    """Whether it ended early; no more sound is passed then."""


class TTSProvider(ModelService):
    """A provider that synthesizes speech into a file.

    A provider with both `streams_pcm` and `stream_sample_rate` also speaks sentence by sentence, by `stream`.
    """

    streams_pcm: bool = False
    """Whether `stream` returns raw sound: signed samples of 16 bits, one channel."""
    stream_sample_rate: int | None = None
    """Samples per second of that sound."""

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

    def warm(self) -> None:
        """Prepare for the first text: load a model, open a connection. Called once, before `synthesize`."""
        return

    def release(self) -> None:
        """Release what `warm` made: another provider is selected, or the process ends."""
        return

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


class StreamingTTSProvider(abc.ABC):
    """A speaker of raw sound, which a plugin registers with `register_streaming`.

    It is used for `tts.provider: name` while `tts.<name>.streaming` is true.

    Args:
        tts_config: the block `tts` of the config.
        section: its part `tts.<name>`.
    """

    sample_rate: ClassVar[int] = 24000
    channels: ClassVar[int] = 1
    sample_width: ClassVar[int] = 2

    def __init__(self, tts_config: Mapping[str, Any], section: Mapping[str, Any]) -> None:
        self.tts_config, self.section = tts_config, section

    @staticmethod
    def available() -> bool:
        """Return whether it can speak now."""
        return True

    @abc.abstractmethod
    def stream(self, text: str) -> Iterator[bytes]:
        """Return the speech of a sentence in pieces, as they are made."""


STREAMING_PROVIDERS: dict[str, type[StreamingTTSProvider]] = {}
"""What `register_streaming` has registered, by name."""

_Streaming = TypeVar("_Streaming", bound=type[StreamingTTSProvider])


def register_streaming(name: str) -> Callable[[_Streaming], _Streaming]:
    """Register a class as the speaker `name`, as a decorator; a later class of that name replaces it."""

    def register(provider: _Streaming) -> _Streaming:
        STREAMING_PROVIDERS[name] = provider
        return provider

    return register


choose_tts = partial(choose_by_name, section="tts", builtin=BUILTIN_TTS)
"""Return the selected plugin provider, of (providers, values); none for a built-in provider or a program."""


TRANSCRIPTION = Kind("transcription", "register_transcription_provider", "transcription provider", is_used=True)

BUILTIN_STT = frozenset({"deepinfra", "elevenlabs", "groq", "local", "local_command", "mistral", "openai", "xai"})
"""Reserved names, which plugins cannot use."""


class TranscriptionStreamSession(abc.ABC):
    """A transcription of speech while it is spoken."""

    @abc.abstractmethod
    def push_audio(self, pcm: bytes) -> None:
        """Add sound: signed samples of 16 bits, 16,000 per second, one channel."""

    @abc.abstractmethod
    def finalize(self) -> dict[str, Any]:
        """End the speech and return what `transcribe` returns."""

    def partial_transcript(self) -> str:
        """Return what is understood so far."""
        return ""


class TranscriptionProvider(ModelService):
    """A provider that transcribes audio files."""

    @property
    def streaming_capable(self) -> bool:
        """Whether `open_stream_session` works. The agent transcribes files alone: it records no microphone."""
        return False

    def open_stream_session(
        self, *, language: str | None = None, prompt: str | None = None
    ) -> TranscriptionStreamSession:
        """Begin to transcribe speech while it is spoken.

        Raises:
            NotImplementedError: the provider transcribes files alone.
        """
        raise NotImplementedError(f"transcription provider '{self.name}' does not stream")

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
