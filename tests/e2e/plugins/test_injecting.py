"""`ctx.inject_message`: plugin contract §2.4."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_agent.host import Host

Write = Callable[..., Path]
Start = Callable[..., Host]
KEEP = "def register(ctx):\n    global kept\n    kept = ctx\n"


class Front:
    """A person's terminal."""

    session_id = "shown"

    def __init__(self) -> None:
        self.said: list[str] = []

    def push(self, text: str) -> bool:
        self.said.append(text)
        return len(self.said) < 3


@pytest.fixture
def host(write_plugin: Write, start: Start) -> Host:
    write_plugin("speaker", KEEP)
    return start(enable=("speaker",))


def context(host: Host):
    return host.plugins.contexts["speaker"]


def test_without_a_conversation_the_answer_is_no_with_the_contract_s_warning(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    assert context(host).inject_message("hello") is False
    assert caplog.messages == ["inject_message: no CLI reference (not available in gateway mode)"]
    assert context(host).inject_message("hello", session_id="unknown") is False


def test_a_person_s_terminal_gets_it_from_any_thread_and_other_roles_are_flattened(host: Host) -> None:
    front = host.injected.front_end = Front()
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(context(host).inject_message("hello")))
    thread.start()
    thread.join(5)

    assert answers == [True]
    assert context(host).inject_message("be brief", role="system") is True
    assert front.said == ["hello", "[system] be brief"]


def test_too_much_and_nothing_are_refused_with_a_warning(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    front = host.injected.front_end = Front()
    assert [context(host).inject_message(text) for text in ("a", "b", "c", " ")] == [True, True, False, False]
    assert front.said == ["a", "b", "c"]
    assert caplog.messages == [
        "inject_message: too many messages wait already, one of plugin 'speaker' is dropped",
        "inject_message: plugin 'speaker' gave no text",
    ]


def test_a_session_of_this_process_can_be_named(host: Host) -> None:
    host.injected.front_end = Front()
    host.injected.open("other")

    assert context(host).inject_message("hello", session_id="other") is True
    assert host.injected.take("other") == ["hello"]
    assert host.injected.front_end.said == []
