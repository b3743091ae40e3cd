"""Text to speech and transcription over OpenAI's HTTP API, which many services and local servers offer, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hermes_agent.contracts.speech import DEFAULT_OUTPUT_FORMAT, TranscriptionProvider, TTSProvider
from hermes_agent.core.errors import UserError

OPENAI_URL = "https://api.openai.com/v1"
TIMEOUT_S = 120.0
MAX_BYTES = 25_000_000
"""The service takes no larger file."""


class _OpenAiService:
    name = "openai"

    def __init__(self, settings: Mapping[str, Any], secret: Callable[[str], str]) -> None:
        self._settings = settings
        self._key = str(settings.get("api_key") or secret("OPENAI_API_KEY") or "")
        self._address = str(settings.get("base_url") or OPENAI_URL).rstrip("/")

    def is_available(self) -> bool:
        """Say whether there is a key, or a server of one's own."""
        return bool(self._key) or self._address != OPENAI_URL

    def _post(self, path: str, **request: Any) -> Any:
        import httpx  # 60 ms, and most processes neither speak nor listen

        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        try:
            answer = httpx.post(f"{self._address}{path}", headers=headers, timeout=TIMEOUT_S, **request)
        except httpx.HTTPError as exc:
            raise UserError(f"{self._address} did not answer: {str(exc) or type(exc).__name__}") from exc
        if answer.is_error:
            raise UserError(f"{self._address} answered {answer.status_code}: {answer.text[:500]}")
        return answer


class OpenAiSpeech(_OpenAiService, TTSProvider):
    """`tts.provider: openai`; `tts.openai` has `model`, `voice`, `base_url`, `api_key`."""

    voice_compatible = True

    def synthesize(self, text: str, output_path: str, **wanted: Any) -> str:
        """Speak; raises UserError when the service fails."""
        body = {
            "model": wanted.get("model") or self._settings.get("model") or "gpt-4o-mini-tts",
            "voice": wanted.get("voice") or self._settings.get("voice") or "alloy",
            "input": text,
            "response_format": wanted.get("format") or DEFAULT_OUTPUT_FORMAT,
            **({"speed": wanted["speed"]} if wanted.get("speed") is not None else {}),
        }
        data = self._post("/audio/speech", json=body).content
        if not data:
            raise UserError(f"{self._address} answered without sound")
        Path(output_path).write_bytes(data)
        return output_path


class OpenAiTranscription(_OpenAiService, TranscriptionProvider):
    """`stt.provider: openai`; `stt.openai` has `model`, `language`, `base_url`, `api_key`."""

    def transcribe(
        self, file_path: str, *, model: str | None = None, language: str | None = None, **extra: Any
    ) -> dict[str, Any]:
        """Listen; raises UserError when the service fails, OSError when the file cannot be read."""
        path = Path(file_path)
        if path.stat().st_size > MAX_BYTES:
            raise UserError(f"{path} has {path.stat().st_size:,} bytes: at most {MAX_BYTES:,} can be sent")
        spoken = language or self._settings.get("language")
        form = {"model": model or self._settings.get("model") or "gpt-4o-mini-transcribe"}
        with path.open("rb") as file:
            answer = self._post(
                "/audio/transcriptions",
                data={**form, **({"language": str(spoken)} if spoken else {})},
                files={"file": (path.name, file)},
            )
        try:
            text = answer.json()["text"]
        except (ValueError, KeyError, TypeError) as exc:
            raise UserError(f"{self._address} answered without a text: {answer.text[:200]}") from exc
        return {"success": True, "transcript": str(text).strip(), "provider": self.name}


PROVIDERS = {"tts": OpenAiSpeech, "stt": OpenAiTranscription}
