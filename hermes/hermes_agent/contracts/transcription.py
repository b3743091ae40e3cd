"""Speech to text: a service that writes down what is said. Source: plugin contract §8.7.

Selected by `stt.provider`; the agent's own names and command-line programs (`stt.providers`) come first.
"""

from __future__ import annotations

import abc
from functools import partial
from typing import Any

from hermes_agent.contracts.kind import Kind
from hermes_agent.contracts.provider import ModelService, choose_by_name

__all__ = ["BUILTIN_STT", "TRANSCRIPTION", "TranscriptionProvider", "choose_transcription"]

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
