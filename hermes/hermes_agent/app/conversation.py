"""`hermes` and `hermes -z`: a conversation in the terminal, or one question."""

from __future__ import annotations

import asyncio
import sys

from hermes_agent.app.start import start_host, start_warnings
from hermes_agent.console import answer_once
from hermes_agent.core.errors import EXIT_USAGE, ConfigError, UserError
from hermes_agent.host import Host
from hermes_agent.mcp.servers import McpServers
from hermes_agent.sessions import LOCAL


def run(*, oneshot: str | None, first: str | None, continue_last: bool, resume: str | None, model: str | None) -> int:
    """Open the conversation that the command line asks for and return the exit status.

    Args:
        oneshot: a question to answer on stdout; `-` reads it from standard input.
        first: a question to ask before the prompt; without a terminal the conversation ends after it.
    """
    question = oneshot
    if oneshot == "-" or (oneshot is None and first is None and not sys.stdin.isatty()):
        question = sys.stdin.read()
    if question is not None and not question.strip():
        print("hermes: there is no question, and no terminal to open a conversation in", file=sys.stderr)
        return EXIT_USAGE
    try:
        host = start_host()
    except ConfigError as error:
        # 78 is the daemon's; a user or a script at a terminal knows 2
        raise UserError(error.message, hint=error.hint, exit_status=EXIT_USAGE) from error
    session_id = _find_session(host, continue_last=continue_last, resume=resume)
    if question is not None:
        return asyncio.run(_ask_once(host, question.strip(), session_id, model))
    from hermes_agent.app.chat import run_chat  # one question needs none of it

    return asyncio.run(run_chat(host, first, session_id, model))


async def _ask_once(host: Host, question: str, session_id: str | None, model: str | None) -> int:
    """Answer one question on stdout; everything else goes to stderr."""
    for warning in start_warnings(host):
        print(f"hermes: {warning}", file=sys.stderr)
    host.service(McpServers).start()
    for line in host.plugins.missed():
        print(f"hermes: {line}", file=sys.stderr)
    try:
        return await answer_once(host.agent, host.slash, question, session_id=session_id, model=model)
    finally:
        await host.aclose()


def _find_session(host: Host, *, continue_last: bool, resume: str | None) -> str | None:
    if not continue_last and resume is None:
        return None
    transcript = host.open_transcript()
    try:
        if resume is not None:
            return transcript.find(resume, of=host.agent.principals.visible_to(LOCAL)).id
        last = transcript.recent(1, source="cli", of=[LOCAL])
        if not last:
            raise UserError("there is no session to continue", hint="Start one with `hermes`.")
        return last[0].id
    finally:
        transcript.close()
