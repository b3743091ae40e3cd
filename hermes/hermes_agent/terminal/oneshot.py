"""One question: the answer on stdout, everything else on stderr."""

from __future__ import annotations

import asyncio
import signal
import sys

from hermes_agent.agent import Agent
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK
from hermes_agent.core.events import TextDelta, TurnFinished
from hermes_agent.policy import Approver, NobodyThere
from hermes_agent.terminal.approver import TerminalApprover
from hermes_agent.terminal.render import Renderer

__all__ = ["answer_once"]


async def answer_once(agent: Agent, question: str, *, session_id: str | None = None, model: str | None = None) -> int:
    """Ask, print the answer, and return the exit status: 0, or 1 when it was interrupted.

    Raises:
        UserError: no model can be had, or it failed.
    """
    renderer = Renderer(sys.stdout, sys.stderr)
    talk = await agent.open(session_id, platform="cli", approver=_approver(), model=model)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, talk.interrupt)
    status = EXIT_FAILED
    streamed = sys.stdout.isatty()
    try:
        async for event in talk.turn(question):
            if isinstance(event, TurnFinished):
                status = EXIT_FAILED if event.reason == "interrupted" else EXIT_OK
                if not streamed:
                    print(event.text)
                    continue
            if streamed or not isinstance(event, TextDelta):
                renderer.show(event)
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        await talk.close("cli_close")
    return status


def _approver() -> Approver:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return NobodyThere("without a terminal")

    def show(text: str) -> None:
        print(text, file=sys.stderr)

    async def ask(prompt: str) -> str:
        from prompt_toolkit import PromptSession  # 100 ms to import, needed only for a question
        from prompt_toolkit.output.defaults import create_output

        return await PromptSession[str](output=create_output(stdout=sys.stderr)).prompt_async(prompt)

    return TerminalApprover(ask, show)
