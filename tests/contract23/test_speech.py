"""Acceptance list of the plugin contract of 0.23, D16 and D17: speech while it is made."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compat.guides import plugin
from hermes_agent.adapters.events import MessageType
from hermes_agent.contracts.speech import AudioFormat, StreamingTTSHandle, TTSProvider
from hermes_agent.testing.chat import MemoryAdapter, chat_host, memory_platform

pytestmark = pytest.mark.usefixtures("served_names")


class Player(MemoryAdapter):
    """A platform that plays sound while it is made."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.played: list[Any] = []

    def supports_streaming_tts(self, chat_id: str, audio_format: AudioFormat) -> bool:
        return audio_format.sample_rate <= 24000

    async def begin_streaming_tts(self, chat_id: str, audio_format: AudioFormat, metadata: Any = None) -> Any:
        self.note(("begin", chat_id, audio_format))
        return StreamingTTSHandle(chat_id, audio_format)

    async def write_streaming_tts(self, handle: StreamingTTSHandle, chunk: bytes) -> None:
        self.note(chunk)

    async def finish_streaming_tts(self, handle: StreamingTTSHandle, *, interrupted: bool = False) -> None:
        self.note("end")

    async def abort_streaming_tts(self, handle: StreamingTTSHandle, error: BaseException | None = None) -> None:
        handle.aborted = True
        self.note(f"abort {type(error).__name__}")

    def note(self, what: Any) -> None:
        with self.changed:
            self.played.append(what)
            self.changed.notify_all()


class Pcm(TTSProvider):
    """A provider of raw sound: a sentence in capitals is its sound."""

    name = "pcm"
    streams_pcm = True
    stream_sample_rate = 16000

    def is_available(self) -> bool:
        return True

    def synthesize(self, text: str, output_path: str, **extra: Any) -> str:
        Path(output_path).write_bytes(text.encode())
        return output_path

    def stream(self, text: str, **extra: Any) -> Iterator[bytes]:
        if "fail" in text:
            raise RuntimeError("no sound")
        for word in text.split():
            yield word.upper().encode()


def heard(
    *plugins: Any, answer: str, config: dict[str, Any], adapter: Callable[[Any], Any] = Player, end: str = "end"
) -> list[Any]:
    """Return what a platform plays of an answer to a voice message."""
    platform = memory_platform(adapter)
    with chat_host(*plugins, model=[answer], config=config, platform=platform) as chat:
        chat.write("say it", message_type=MessageType.VOICE)
        assert chat.answers(1) == [answer]
        chat.wait(lambda: any(str(one).startswith(end) for one in chat.adapter.played), end)
        assert chat.adapter.files == []
        played: list[Any] = chat.adapter.played
    return played


def test_d16_a_provider_of_raw_sound_is_used_sentence_by_sentence() -> None:
    judged: list[str] = []

    def register(ctx: Any) -> None:
        ctx.register_tts_provider(Pcm())
        ctx.register_hook("pre_tts_synthesis", lambda text, **kw: judged.append(text))

    played = heard(register, answer="Tea is hot. `code` Drink **it**!", config={"tts": {"provider": "pcm"}})
    assert played == [("begin", "room", AudioFormat(16000)), b"TEA", b"IS", b"HOT.", b"DRINK", b"IT!", "end"]
    assert judged == ["Tea is hot.", "Drink it!"]


def test_d16_a_provider_that_fails_ends_the_speech_and_the_text_has_arrived() -> None:
    played = heard(
        lambda ctx: ctx.register_tts_provider(Pcm()),
        answer="One two. This will fail.",
        config={"tts": {"provider": "pcm"}},
        end="abort",
    )
    assert played[1:] == [b"ONE", b"TWO.", "abort RuntimeError"]


def test_d16_a_platform_without_streaming_gets_a_file() -> None:
    config = {"tts": {"provider": "pcm"}}
    with chat_host(lambda ctx: ctx.register_tts_provider(Pcm()), model=["Tea."], config=config,
                   platform=memory_platform(WithFiles)) as chat:  # fmt: skip
        chat.write("say it", message_type=MessageType.VOICE)
        chat.wait(lambda: chat.adapter.files, "a file")
        assert Path(chat.adapter.files[0][1]).read_bytes() == b"Tea."


class WithFiles(MemoryAdapter):
    """A platform that plays files."""

    sends_any_file = True


STREAMING = """
from tools.tts_streaming import StreamingTTSProvider, register as speaker
@speaker("acme")
class Acme(StreamingTTSProvider):
    sample_rate = 8000
    def stream(self, text):
        yield (self.section["voice"] + ":" + text).encode()
def register(ctx):
    pass
"""


@pytest.mark.parametrize("streaming", [True, False])
def test_d17_a_registered_speaker_is_used_while_its_switch_is_on(tmp_path: Path, streaming: bool) -> None:
    config = {"tts": {"provider": "acme", "acme": {"streaming": streaming, "voice": "low"}}}
    folder = plugin(tmp_path / "acme-voice", STREAMING)
    with chat_host(folder, model=["Tea. Now."], config=config, platform=memory_platform(Player)) as chat:
        chat.write("say it", message_type=MessageType.VOICE)
        chat.answers(1)
        if streaming:
            chat.wait(lambda: "end" in chat.adapter.played, "the end")
            assert chat.adapter.played == [("begin", "room", AudioFormat(8000)), b"low:Tea.", b"low:Now.", "end"]
        else:
            chat.wait(lambda: chat.adapter.outcomes, "the answer")
            assert chat.adapter.played == []
        names: Any = importlib.import_module("tools.tts_streaming")
        found = names.resolve_streaming_provider()
        assert (found is not None) is streaming
        assert importlib.import_module("gateway.platforms.base").AudioFormat is AudioFormat
