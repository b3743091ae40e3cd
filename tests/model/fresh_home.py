"""The real agent in a home as a new user has it: shipped tools, calculator plugin, embedded model, no approver."""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hermes_agent.agent.conversation import Conversation
from hermes_agent.core.messages import TextDelta, ToolFinished, TurnFinished
from hermes_agent.host import Host
from hermes_agent.policy import NoApprover

__all__ = ["CALCULATOR", "FreshHome", "TurnRecord", "fresh_home", "numbers_in"]

PLUGINS = Path(__file__).parent / "plugins"
CALCULATOR = Path(__file__).parents[2] / "examples" / "plugins" / "calculator"
"""The calculator that `make run` enables."""

_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,\u202f]*(?:\.\d+)?(?:[eE][+-]?\d+)?")


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """One turn as the evaluation judges it."""

    question: str
    calls: tuple[tuple[str, str, str], ...]
    """Tool, status and result of each call."""
    text: str
    streamed: str

    @property
    def succeeded(self) -> bool:
        """Whether a call ended well."""
        return any(status == "ok" for _, status, _ in self.calls)

    @property
    def failed(self) -> bool:
        """Whether a call failed."""
        return any(status != "ok" for _, status, _ in self.calls)

    def invented_numbers(self) -> list[str]:
        """Return the numbers of the answer that neither the question nor a result has, also rounded."""
        known = numbers_in(self.question + " " + " ".join(result for _, _, result in self.calls))
        return [
            text
            for text, value, tolerance in _numbers(self.text)
            if not any(abs(value - each) <= tolerance for each in known)
        ]


@dataclass(frozen=True, slots=True)
class FreshHome:
    """A host over a new home; each question is a session of its own."""

    host: Host

    async def tools(self) -> list[dict[str, Any]]:
        """Return the tools that a conversation is shown, in the form of chat completions."""
        conversation = await self._open()
        try:
            return list(await conversation.tools())
        finally:
            await conversation.close("cli_close")

    async def ask(self, question: str, directory: Path, *, station: bool = False) -> TurnRecord:
        """Ask as `hermes -z` does in `directory`.

        Args:
            station: show the tools of the plugin `station`, too.
        """
        [record] = await self.ask_in_turn([question], directory, station=station)
        return record

    async def ask_in_turn(
        self, questions: Sequence[str], directory: Path, *, station: bool = False
    ) -> list[TurnRecord]:
        """Ask one question after another in one session."""
        conversation = await self._open(station=station, cwd=directory)
        try:
            return [await _turn(conversation, question) for question in questions]
        finally:
            await conversation.close("cli_close")

    async def _open(self, *, station: bool = False, cwd: Path | None = None) -> Conversation:
        tools = self.host.tools
        toolsets = {tools.get_toolset_for_tool(name) or "" for name in tools.names()} - {"" if station else "station"}
        approver = NoApprover("without a terminal")
        return await self.host.agent.open(None, platform="cli", approver=approver, cwd=cwd, toolsets=toolsets)


async def _turn(conversation: Conversation, question: str) -> TurnRecord:
    calls: list[tuple[str, str, str]] = []
    text = streamed = ""
    async for event in conversation.turn(question):
        if isinstance(event, ToolFinished):
            calls.append((event.name, event.status, event.result))
        elif isinstance(event, TextDelta):
            streamed += event.text
        elif isinstance(event, TurnFinished):
            text = event.text
    return TurnRecord(question, tuple(calls), text, streamed)


@asynccontextmanager
async def fresh_home(
    path: Path, *, calculator: Path = CALCULATOR, plugins: tuple[str, ...] = (), threads: int = 0
) -> AsyncIterator[FreshHome]:
    """Make a home in `path` and a host over it.

    Args:
        calculator: the folder of the calculator plugin.
        plugins: further plugins, by their folder in `plugins/`.
        threads: threads of the model; 0 is its default.
    """
    home = path / "home"
    folders = {"calculator": calculator, **{name: PLUGINS / name for name in plugins}}
    for name, source in folders.items():
        shutil.copytree(source, home / "plugins" / name, ignore=shutil.ignore_patterns("__pycache__"))
    model = {"provider": "local", "local": {"threads": threads}}
    config = {"model": model, "plugins": {"enabled": list(folders)}, "terminal": {"timeout": 3}}
    (home / "config.yaml").write_text(yaml.safe_dump(config))
    host = Host.build(home)
    try:
        host.load_plugins()
        yield FreshHome(host)
    finally:
        await host.aclose()


def numbers_in(text: str) -> list[float]:
    """Return the numbers of a text; `1,536` is one."""
    return [value for _, value, _ in _numbers(text)]


def _numbers(text: str) -> list[tuple[str, float, float]]:
    """Return each number as written, its value, and how far the exact one may be away when this one is rounded."""
    found = []
    for match in _NUMBER.finditer(text):
        written = re.sub("[,\u202f]", "", match[0])
        if "e" in written.lower():
            tolerance = abs(float(written)) * 1e-2
        else:
            tolerance = 0.5 * 10.0 ** -len(written.partition(".")[2]) + 1e-9 if "." in written else 1e-9
        found.append((match[0], float(written), tolerance))
    return found
