"""Writes down how long a WAV file is."""

import wave

from agent.transcription_provider import TranscriptionProvider


class Clock(TranscriptionProvider):
    """Hears nothing but time."""

    name = "example-clock"

    def list_models(self):
        return [{"id": "second-hand"}]

    def transcribe(self, file_path, *, model=None, language=None, **extra):
        try:
            with wave.open(file_path) as file:
                seconds = file.getnframes() / file.getframerate()
        except (OSError, EOFError, wave.Error) as exc:
            return {"success": False, "transcript": "", "provider": self.name, "error": str(exc)}
        return {"success": True, "transcript": f"{seconds:.1f} seconds", "provider": self.name}


def register(ctx):
    ctx.register_transcription_provider(Clock())
