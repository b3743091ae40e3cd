"""Asking the person at the terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.policy import Choice, Refusal
from hermes_agent.terminal.render import printable

__all__ = ["TerminalApprover"]

PromptReader = Callable[[str], Awaitable[str]]
"""Shows a prompt and returns the line that was typed; raises EOFError when the person left."""

ANSWERS: dict[str, Choice] = {
    "o": "once",
    "once": "once",
    "y": "once",
    "yes": "once",
    "s": "session",
    "session": "session",
    "a": "always",
    "always": "always",
    "d": "deny",
    "deny": "deny",
    "n": "deny",
    "no": "deny",
    "": "deny",
}
LABELS = {"once": "[o]nce", "session": "for this [s]ession", "always": "[a]lways", "deny": "[d]eny"}


class TerminalApprover:
    """Shows what a tool wants to do and waits for `once`, `session`, `always` (where it is offered) or `deny`."""

    def __init__(self, ask: PromptReader, show: Callable[[str], None]) -> None:
        self._ask = ask
        self._show = show

    async def ask(self, request: ApprovalRequest) -> Choice | Refusal:
        """Ask until the answer is one of those; end of input denies."""
        offered = request.answers
        words = ", ".join(LABELS[answer] for answer in offered)
        who = f"plugin `{request.plugin}`: {request.tool}" if request.plugin else request.tool
        self._show(f"\n{who} wants to {request.summary}:")
        for line in printable(request.detail).splitlines() or [""]:
            self._show(f"    {line}")
        while True:
            try:
                line = await self._ask(f"Allow? {words}: ")
            except (EOFError, KeyboardInterrupt, asyncio.CancelledError):
                return "deny"
            choice = ANSWERS.get(line.strip().lower())
            if choice in offered:
                return choice
            self._show(f"{line.strip()!r} is none of {', '.join(offered)}.")

    async def clarify(self, question: str, choices: Sequence[str] = ()) -> str | Refusal:
        """Show a question of the agent; the answer is a choice, by its number or its words, or something else."""
        self._show(f"\n{printable(question)}")
        for number, choice in enumerate(choices, 1):
            self._show(f"    {number}. {printable(choice)}")
        try:
            line = (await self._ask("Answer: ")).strip()
        except (EOFError, KeyboardInterrupt):
            line = ""
        if line.isdecimal() and 0 < int(line) <= len(choices):
            return choices[int(line) - 1]
        return line or Refusal("the person gave no answer")
