"""Text to speech and transcription by OpenAI's SDK (extra `openai`), for servers that have its HTTP API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.contracts.kind import import_sdk
from hermes_agent.contracts.speech import DEFAULT_OUTPUT_FORMAT, TranscriptionProvider, TTSProvider
from hermes_agent.core.errors import UserError

if TYPE_CHECKING:
    from openai import OpenAI, OpenAIError

OPENAI_URL = "https://api.openai.com/v1"
TIMEOUT_S = 120.0
NO_KEY = "none"
"""The SDK makes no client without a key; a server of the user's own may need none."""
MAX_BYTES = 25_000_000
"""Largest file that the service accepts."""


class _OpenAiService:
    name = "openai"

    def __init__(self, settings: Mapping[str, Any], secret: Callable[[str], str]) -> None:
        self._settings = settings
        self._key = str(settings.get("api_key") or secret("OPENAI_API_KEY") or "")
        self._base_url = str(settings.get("base_url") or OPENAI_URL).rstrip("/")

    def is_available(self) -> bool:
        """Return whether there is a key, or a server of the user's own."""
        return bool(self._key) or self._base_url != OPENAI_URL

    def _client(self) -> OpenAI:
        """Return a client for one call; the SDK is imported here, in a worker: it takes a second.

        Raises:
            UserError: the SDK is not installed.
        """
        openai = import_sdk("openai", "openai")
        # the config says where requests go and what they carry, not the variables of the SDK
        left_out = {"OpenAI-Organization": openai.Omit(), "OpenAI-Project": openai.Omit()}
        client: OpenAI = openai.OpenAI(
            api_key=self._key or NO_KEY,
            base_url=self._base_url,
            timeout=TIMEOUT_S,
            max_retries=0,
            default_headers=left_out,
        )
        return client

    def _extra_headers(self) -> dict[str, Any]:
        """Return what keeps `NO_KEY` from being sent."""
        from openai import Omit

        return {} if self._key else {"Authorization": Omit()}

    def _error(self, error: OpenAIError) -> UserError:
        """Return the error for the user, with the status and the words of the server."""
        from openai import APIStatusError

        if isinstance(error, APIStatusError):
            return UserError(f"{self._base_url} answered {error.status_code}: {error.response.text[:500]}")
        reason = error.__cause__ or error  # the SDK's own words are `Connection error.`
        return UserError(f"{self._base_url} did not answer: {str(reason) or type(reason).__name__}")


class OpenAiSpeech(_OpenAiService, TTSProvider):
    """`tts.provider: openai`; `tts.openai` has `model`, `voice`, `base_url`, `api_key`."""

    voice_compatible = True

    def synthesize(self, text: str, output_path: str, **wanted: Any) -> str:
        """Write the speech to `output_path` and return it. Raise UserError if the service fails."""
        client = self._client()
        from openai import OpenAIError

        options: dict[str, Any] = {"speed": wanted["speed"]} if wanted.get("speed") is not None else {}
        sound_format: Any = wanted.get("format") or DEFAULT_OUTPUT_FORMAT
        try:
            with client:
                data = client.audio.speech.create(
                    model=wanted.get("model") or self._settings.get("model") or "gpt-4o-mini-tts",
                    voice=wanted.get("voice") or self._settings.get("voice") or "alloy",
                    input=text,
                    response_format=sound_format,
                    extra_headers=self._extra_headers(),
                    **options,
                ).read()
        except OpenAIError as exc:
            raise self._error(exc) from exc
        if not data:
            raise UserError(f"{self._base_url} answered without sound")
        Path(output_path).write_bytes(data)
        return output_path


class OpenAiTranscription(_OpenAiService, TranscriptionProvider):
    """`stt.provider: openai`; `stt.openai` has `model`, `language`, `base_url`, `api_key`."""

    def transcribe(
        self, file_path: str, *, model: str | None = None, language: str | None = None, **extra: Any
    ) -> dict[str, Any]:
        """Return the text of a recording. Raise UserError for the service, OSError for the file."""
        path = Path(file_path)
        if path.stat().st_size > MAX_BYTES:
            raise UserError(f"{path} has {path.stat().st_size:,} bytes: at most {MAX_BYTES:,} can be sent")
        client = self._client()
        from openai import OpenAIError

        spoken = language or self._settings.get("language")
        options: dict[str, Any] = {"language": str(spoken)} if spoken else {}
        try:
            with client, path.open("rb") as file:
                answer = client.audio.transcriptions.with_raw_response.create(
                    file=(path.name, file),
                    model=model or self._settings.get("model") or "gpt-4o-mini-transcribe",
                    extra_headers=self._extra_headers(),
                    **options,
                )
                body = answer.http_response.text
        except OpenAIError as exc:
            raise self._error(exc) from exc
        try:
            text = answer.parse().text
        except (OpenAIError, ValueError, AttributeError, TypeError) as exc:
            raise UserError(f"{self._base_url} answered without a text: {body[:200]}") from exc
        return {"success": True, "transcript": str(text).strip(), "provider": self.name}


PROVIDERS = {"tts": OpenAiSpeech, "stt": OpenAiTranscription}
