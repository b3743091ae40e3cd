"""`hermes` and `hermes -z`: a conversation in the terminal, or one question."""

from __future__ import annotations

import asyncio
import sys

from hermes_agent.app.start import start_host
from hermes_agent.core.errors import EXIT_USAGE, UserError
from hermes_agent.host import Host
from hermes_agent.plugins import banner_lines, register_commands
from hermes_agent.terminal import Chat, answer_once

__all__ = ["ask", "chat", "run"]


def run(question: str | None, *, continue_last: bool, resume: str | None, model: str | None) -> int:
    """Open the conversation that the command line asks for and return the exit status."""
    piped = question is None and not sys.stdin.isatty()
    if question == "-" or piped:
        question = sys.stdin.read().strip()
        if not question:
            print("hermes: no question on standard input, and no terminal to open a conversation in", file=sys.stderr)
            return EXIT_USAGE
    host = start_host()
    session_id = _session(host, continue_last=continue_last, resume=resume)
    if question is not None:
        return asyncio.run(ask(host, question, session_id=session_id, model=model))
    return asyncio.run(chat(host, session_id=session_id, model=model))


async def ask(host: Host, question: str, *, session_id: str | None = None, model: str | None = None) -> int:
    """Answer one question on stdout; everything else goes to stderr."""
    try:
        return await answer_once(host.agent, question, session_id=session_id, model=model)
    finally:
        await host.aclose()


async def chat(
    host: Host,
    *,
    session_id: str | None = None,
    model: str | None = None,
    first_question: str | None = None,
    prompt: bool = True,
) -> int:
    """Open the conversation; `first_question` is asked before the prompt, `prompt=False` ends after it."""
    try:
        register_commands(host)
        screen = Chat(
            host.agent,
            host.commands,
            home=host.home,
            banner=banner_lines(host),
            session_id=session_id,
            model=model,
        )
        return await screen.run(first_question=first_question, prompt=prompt)
    finally:
        await host.aclose()


def _session(host: Host, *, continue_last: bool, resume: str | None) -> str | None:
    if not continue_last and resume is None:
        return None
    transcript = host.open_transcript()
    try:
        if resume is not None:
            return transcript.find(resume).id
        last = transcript.recent(1, source="cli")
        if not last:
            raise UserError("there is no session to continue", hint="Start one with `hermes`.")
        return last[0].id
    finally:
        transcript.close()
