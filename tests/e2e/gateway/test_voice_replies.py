"""Answers that are spoken: to whom, by whom, and what happens where nobody speaks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hermes_agent.adapters.events import MessageType, SendResult
from hermes_agent.testing.chat import MemoryAdapter, chat_host, memory_platform

ECHO = {"provider": "echo", "providers": {"echo": {"command": "cp {input_path} {output_path}", "output_format": "ogg"}}}


class Talkative(MemoryAdapter):
    """Keeps what voice messages say."""

    async def send_voice(self, chat_id: str, audio_path: str, *args: Any, **kwargs: Any) -> SendResult:
        said = Path(audio_path).read_text()
        return await self.send(chat_id, f"voice: {said}")


@pytest.mark.parametrize(
    ("which", "kind", "spoken"),
    [
        ("voice", MessageType.VOICE, True),
        ("voice", MessageType.TEXT, False),
        ("all", MessageType.TEXT, True),
        ("off", MessageType.VOICE, False),
    ],
)
def test_an_answer_is_spoken_where_it_is_to_be(which: str, kind: MessageType, spoken: bool) -> None:
    config = {"tts": ECHO, "gateway": {"voice_replies": which}}
    platform = memory_platform(Talkative)

    with chat_host(model=["It is **four**.", "Bye."], config=config, platform=platform) as chat:
        chat.write("two and two?", message_type=kind)
        first = ["It is **four**.", *(["voice: It is four."] if spoken else [])]
        assert chat.answers(len(first)) == first
        chat.write("bye", message_type=kind)
        assert chat.answers(2 * len(first))[len(first)] == "Bye."


@pytest.mark.parametrize("command", ["false", ""])
def test_the_text_goes_out_where_nobody_can_speak(command: str) -> None:
    tts = {"provider": "broken", "providers": {"broken": {"command": command}}} if command else {}

    with chat_host(model=["Hello."], config={"tts": tts}, platform=memory_platform(Talkative)) as chat:
        chat.write("hi", message_type=MessageType.VOICE)
        assert chat.answers(1) == ["Hello."]


def test_a_command_is_not_answered_aloud_and_nothing_is_where_recordings_cannot_be_sent() -> None:
    config = {"tts": ECHO, "gateway": {"voice_replies": "all"}}

    with chat_host(config=config, platform=memory_platform(Talkative)) as chat:
        chat.ask("/whoami")
        chat.ask("/whoami")
        assert len(chat.texts) == 2
    with chat_host(model=["one", "two"], config=config) as chat:
        assert (chat.ask("a"), chat.ask("b"), chat.texts) == ("one", "two", ["one", "two"])
