"""Says every text as one second of silence."""

import wave

from agent.tts_provider import TTSProvider


class Silence(TTSProvider):
    """Writes WAV, whatever format is asked for."""

    name = "example-silence"

    @property
    def voice_compatible(self):
        return True

    def list_voices(self):
        return [{"id": "quiet", "display": "Quiet"}]

    def synthesize(self, text, output_path, *, voice=None, model=None, speed=None, format="mp3", **extra):
        if not text.strip():
            raise ValueError("there is nothing to say")
        path = output_path if output_path.endswith(".wav") else f"{output_path}.wav"
        with wave.open(path, "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(8000)
            file.writeframes(bytes(16000))
        return path


def register(ctx):
    ctx.register_tts_provider(Silence())
