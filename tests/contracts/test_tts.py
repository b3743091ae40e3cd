"""Text to speech (docs/plugins/kinds/tts.md): the suite, and who is selected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.contracts.speech import BUILTIN_TTS, DEFAULT_OUTPUT_FORMAT, OUTPUT_FORMATS, TTSProvider, choose_tts
from hermes_agent.host import Host


class InMemory(TTSProvider):
    """Writes the text itself."""

    name = "memory"

    def synthesize(self, text: str, output_path: str, **kwargs: Any) -> str:
        if not text.strip():
            raise ValueError("nothing to say")
        Path(output_path).write_text(text)
        return output_path

    def stream(self, text: str, **kwargs: Any) -> Iterator[bytes]:
        yield from (word.encode() for word in text.split())

    def list_models(self) -> list[dict[str, Any]]:
        return [{"id": "plain"}, {"id": "fancy"}]


@pytest.fixture(params=["in memory", "example plugin"])
def provider(request: pytest.FixtureRequest, example: Callable[[str], Any]) -> TTSProvider:
    """Every implementation."""
    made = InMemory() if request.param == "in memory" else example("tts")
    assert isinstance(made, TTSProvider)
    return made


def test_it_says_who_it_is(provider: TTSProvider) -> None:
    assert provider.name and provider.name not in BUILTIN_TTS
    assert provider.display_name
    assert provider.is_available() in (True, False)
    assert provider.voice_compatible in (True, False)
    assert {"name", "badge", "tag", "env_vars"} <= set(provider.get_setup_schema())


def test_speaking_leaves_a_file_with_something_in_it(provider: TTSProvider, tmp_path: Path) -> None:
    path = provider.synthesize("hello", str(tmp_path / "out.mp3"), voice=None, model=None, speed=1.0, format="mp3")

    assert Path(path).stat().st_size > 0


def test_a_failure_raises(provider: TTSProvider, tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        provider.synthesize(" ", str(tmp_path / "out.mp3"))


def test_defaults_are_the_first_of_the_lists(provider: TTSProvider) -> None:
    assert provider.default_model() == next((m["id"] for m in provider.list_models()), None)
    assert provider.default_voice() == next((v["id"] for v in provider.list_voices()), None)


def test_streaming_gives_bytes_or_says_that_it_does_not(provider: TTSProvider) -> None:
    if type(provider).stream is TTSProvider.stream:
        with pytest.raises(NotImplementedError, match=f"'{provider.name}' does not stream"):
            provider.stream("hello there")
    else:
        assert all(isinstance(piece, bytes) for piece in provider.stream("hello there"))


def test_own_names_and_programs_come_before_plugins() -> None:
    providers = {"memory": InMemory()}

    def choose(**tts: Any) -> tuple[Any, str]:
        return choose_tts(providers, {"tts": tts})

    assert choose(provider="memory") == (providers["memory"], "tts.provider names it")
    assert choose(provider="edge") == (None, "tts.provider names `edge`, which is built in")
    assert choose(provider="memory", providers={"memory": {"type": "command", "command": "say"}}) == (
        None,
        "tts.provider names `memory`, a program under tts.providers",
    )
    assert choose(provider="gone")[1].startswith("tts.provider='gone' is set but no plugin registered that name.")
    assert choose() == (None, "tts.provider is not set")


def test_a_plugin_cannot_take_one_of_the_agent_s_names(start: Callable[..., Host], home: Path) -> None:
    place = home / "plugins" / "example-"
    place.mkdir()
    (place / "plugin.yaml").write_text("name: thief\n")
    (place / "__init__.py").write_text(
        "from agent.tts_provider import TTSProvider\n"
        "class P(TTSProvider):\n    name = 'edge'\n    def synthesize(self, text, output_path, **kw): return ''\n"
        "def register(ctx): ctx.register_tts_provider(P())\n"
    )
    (home / "config.yaml").write_text("plugins:\n  enabled: [thief]\n")
    host = Host.build(home)
    host.plugins.discover_and_load()
    host.bridge.close()

    (record,) = host.plugins.records
    assert [p.text for p in record.problems] == ["TTS provider `edge` belongs to the agent"]
    assert host.providers["tts"].names() == []


def test_the_upstream_names_are_these(served: None) -> None:
    from agent import tts_provider

    assert tts_provider.TTSProvider is TTSProvider
    assert tts_provider.DEFAULT_OUTPUT_FORMAT == DEFAULT_OUTPUT_FORMAT == OUTPUT_FORMATS[0]
