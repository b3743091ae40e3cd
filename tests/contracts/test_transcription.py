"""Speech to text (docs/plugins/kinds/transcription.md): the suite, and who is selected."""

from __future__ import annotations

import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.contracts.speech import BUILTIN_STT, TranscriptionProvider, choose_transcription


class InMemory(TranscriptionProvider):
    """Hears one word in every file that is there."""

    name = "memory"

    def transcribe(self, file_path: str, **kwargs: Any) -> dict[str, Any]:
        if not Path(file_path).is_file():
            return {"success": False, "transcript": "", "provider": self.name, "error": "no such file"}
        return {"success": True, "transcript": "hello", "provider": self.name}


@pytest.fixture(params=["in memory", "example plugin"])
def provider(request: pytest.FixtureRequest, example: Callable[[str], Any]) -> TranscriptionProvider:
    """Every implementation."""
    made = InMemory() if request.param == "in memory" else example("transcription")
    assert isinstance(made, TranscriptionProvider)
    return made


def test_it_says_who_it_is(provider: TranscriptionProvider) -> None:
    assert provider.name and provider.name not in BUILTIN_STT
    assert provider.display_name
    assert provider.is_available() in (True, False)
    assert {"name", "badge", "tag", "env_vars"} <= set(provider.get_setup_schema())
    assert provider.default_model() == next((m["id"] for m in provider.list_models()), None)


def test_a_sound_file_is_written_down(provider: TranscriptionProvider, tmp_path: Path) -> None:
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(bytes(8000))

    answer = provider.transcribe(str(tmp_path / "a.wav"), model=None, language="en")

    assert (answer["success"], answer["provider"]) == (True, provider.name)
    assert answer["transcript"]


def test_a_failure_is_an_answer_with_its_reason(provider: TranscriptionProvider, tmp_path: Path) -> None:
    answer = provider.transcribe(str(tmp_path / "none.wav"))

    assert (answer["success"], answer["transcript"]) == (False, "")
    assert answer["error"]


def test_own_names_and_programs_come_before_plugins() -> None:
    providers = {"memory": InMemory()}

    def choose(**stt: Any) -> tuple[Any, str]:
        return choose_transcription(providers, {"stt": stt})

    assert choose(provider="memory") == (providers["memory"], "stt.provider names it")
    assert choose(provider="local")[0] is None
    assert choose(provider="memory", providers={"memory": {"command": "hear"}})[0] is None
    assert choose(provider="gone")[1].startswith("stt.provider='gone' is set but no plugin registered that name.")


def test_the_upstream_name_is_this(served: None) -> None:
    from agent.transcription_provider import TranscriptionProvider as upstream

    assert upstream is TranscriptionProvider
