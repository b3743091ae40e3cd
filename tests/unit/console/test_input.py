"""What is typed, completed and waited for at the terminal."""

from __future__ import annotations

import asyncio
import os
import pty

from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from hermes_agent.commands import HelpRow
from hermes_agent.console.input import MAX_QUEUED, InputQueue, QueuedInput, TypedLines
from hermes_agent.console.line_editor import SlashCompleter, hint_for

ENTRIES = [
    HelpRow("scan", "<pattern>", "Find files"),
    HelpRow("scandal", "", "Tell"),
    HelpRow("help", "", "Help"),
]


def completions(text: str) -> list[tuple[str, str]]:
    found = SlashCompleter(lambda: ENTRIES).get_completions(Document(text), CompleteEvent())
    return [(c.text, c.display_text) for c in found]


def test_names_are_completed_with_what_may_follow() -> None:
    assert completions("/sca") == [("/scan", "/scan <pattern>"), ("/scandal", "/scandal")]
    assert completions("/SCAN") == completions("/scan")
    assert completions("scan") == []


def test_beside_a_whole_name_stands_what_may_follow() -> None:
    hints = [hint_for(text, lambda: ENTRIES) for text in ("/scan ", "/SCAN x", "/scandal ", "/scan", "/no ", "scan ")]
    assert hints == ["<pattern>  Find files", "<pattern>  Find files", "Tell", "", "", ""]
    assert completions("/scan ") == []


def test_plugins_come_before_what_was_typed_and_too_much_is_refused() -> None:
    called: list[int] = []
    waiting = InputQueue(lambda: called.append(1))
    assert waiting.add_typed("typed") and waiting.add_injected("first") and waiting.add_injected("second")
    assert [waiting.take() for _ in range(4)] == [
        QueuedInput("first", False),
        QueuedInput("second", False),
        QueuedInput("typed"),
        None,
    ]
    assert len(called) == 2

    assert all(waiting.add_typed("x") for _ in range(MAX_QUEUED))
    assert not waiting.add_typed("x")
    assert not waiting.add_injected("x")
    assert len(called) == 2


def test_whole_lines_are_read_while_the_block_lasts_and_none_in_a_pause() -> None:
    async def work() -> list[str | None]:
        keyboard, terminal = pty.openpty()
        lines: asyncio.Queue[str | None] = asyncio.Queue()
        beside = TypedLines(terminal, lines.put_nowait)
        seen = []
        with beside.reading():
            os.write(keyboard, b"one\ntw")
            seen.append(await asyncio.wait_for(lines.get(), 5))
            with beside.paused():
                os.write(keyboard, b"o\n")
                for _ in range(5):
                    await asyncio.sleep(0)
                assert lines.empty()
            seen.append(await asyncio.wait_for(lines.get(), 5))
            os.write(keyboard, b"\x04")
            seen.append(await asyncio.wait_for(lines.get(), 5))
        os.close(keyboard)
        os.close(terminal)
        return seen

    assert asyncio.run(work()) == ["one", "two", None]
