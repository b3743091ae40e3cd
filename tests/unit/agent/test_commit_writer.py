"""Steps of many conversations on their way to the store."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from hermes_agent.agent.services import CommitWriter
from hermes_agent.core.errors import AccessDenied, UserError
from hermes_agent.core.messages import Message
from hermes_agent.runtime.bridge import SerialExecutor
from hermes_agent.sessions import NewSession, SessionCommit, Transcript


def step(text: str, owner: str = "local") -> SessionCommit:
    row = NewSession("cli", "m", "", "/", owner, "", frozenset({owner}))
    return SessionCommit(owner, row, [Message("user", text)])


class Slow(Transcript):
    """Counts its commits, and holds the first until it may go on."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.commits: list[list[str]] = []
        self.begun, self.may = threading.Event(), threading.Event()

    def write(self, steps: Sequence[tuple[str, SessionCommit]]) -> list[Exception | None]:
        self.commits.append([session_id for session_id, _ in steps])
        self.begun.set()
        self.may.wait(10)
        return super().write(steps)


async def run(tmp_path: Path, *later: tuple[str, SessionCommit]) -> tuple[Slow, list[BaseException | None]]:
    """Write a first step, the others while that is being written; return what became of the others."""
    transcript = Slow(tmp_path / "state.db")

    async def work() -> list[BaseException | None]:
        lane = SerialExecutor("store")
        writer = CommitWriter(lane, lambda: transcript)
        first = asyncio.ensure_future(writer.write("first", step("one")))
        await asyncio.to_thread(transcript.begun.wait, 10)
        others = [asyncio.ensure_future(writer.write(*each)) for each in later]
        await asyncio.sleep(0)
        transcript.may.set()
        await first
        found = await asyncio.gather(*others, return_exceptions=True)
        lane.close()
        return found

    return transcript, await work()


def said(transcript: Transcript, session_id: str) -> list[str]:
    return [message.text for message in transcript.messages(session_id)]


async def test_what_waits_for_the_store_shares_a_commit_in_its_order(tmp_path: Path) -> None:
    transcript, ends = await run(tmp_path, ("a", step("1")), ("b", step("2")), ("a", step("3")))
    assert transcript.commits == [["first"], ["a", "b", "a"]] and ends == [None] * 3
    assert (said(transcript, "a"), said(transcript, "b")) == (["1", "3"], ["2"])


async def test_one_that_is_refused_takes_no_other_along(tmp_path: Path) -> None:
    transcript, ends = await run(tmp_path, ("a", step("1")), ("first", step("2", "somebody")), ("a", step("3")))
    assert [type(end) for end in ends] == [type(None), AccessDenied, type(None)]
    assert (said(transcript, "a"), said(transcript, "first")) == (["1", "3"], ["one"])


async def test_a_store_that_fails_tells_everybody_and_the_next_step_tries_again(tmp_path: Path) -> None:
    transcript = Transcript(tmp_path / "state.db")
    errors: list[Exception] = [sqlite3.OperationalError("disk I/O error"), UserError("cannot open")]

    def opened() -> Transcript:
        if errors:
            raise errors.pop(0)
        return transcript

    async def work() -> None:
        writer = CommitWriter(SerialExecutor("store"), opened)
        with pytest.raises(sqlite3.OperationalError):
            await writer.write("a", step("1"))
        with pytest.raises(UserError):
            await writer.write("a", step("2"))
        await writer.write("a", step("3"))

    await work()
    assert said(transcript, "a") == ["3"]


async def test_a_step_is_stored_even_if_nobody_waits_for_it_any_more(tmp_path: Path) -> None:
    transcript = Slow(tmp_path / "state.db")

    async def work() -> None:
        lane = SerialExecutor("store")
        waiting = asyncio.ensure_future(CommitWriter(lane, lambda: transcript).write("a", step("1")))
        await asyncio.to_thread(transcript.begun.wait, 10)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        transcript.may.set()
        await lane.run(lambda: None)

    await work()
    assert said(transcript, "a") == ["1"]
