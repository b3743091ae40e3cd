"""`hermes` and `hermes -z`: a conversation in the terminal, or the answer to one question."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from hermes_agent.core.errors import EXIT_USAGE, ConfigError, UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.text import nearest_name

if TYPE_CHECKING:
    from hermes_agent.console.live_screen import LiveScreen
    from hermes_agent.host import Host


class ConversationRequest(LazyNamedTuple):
    """What the command line asks of a conversation."""

    question: str | None = None
    """A question to answer on stdout; `-` reads it from standard input."""
    first: str | None = None
    """A question to ask before the prompt; without a terminal the conversation ends after it."""
    continue_last: bool = False
    resume: str | None = None
    model: str | None = None
    toolsets: Sequence[str] = ()
    skills: Sequence[str] = ()
    images: Sequence[Path] = ()
    directory: Path | None = None
    max_turns: int | None = None
    form: Literal["text", "json", "jsonl"] = "text"
    approve: bool = False
    quiet: bool = False
    verbose: bool = False


def run(request: ConversationRequest) -> int:
    """Open the conversation that the command line asks for and return the exit status.

    Raises:
        UserError: an option names what does not exist, or no model is available.
    """
    question = request.question
    if question == "-" or (question is None and request.first is None and not sys.stdin.isatty()):
        question = sys.stdin.read()
    if question is not None and not question.strip():
        print("hermes: there is no question, and no terminal to open a conversation in", file=sys.stderr)
        return EXIT_USAGE
    if question is None and (given := _one_question_option(request)):
        raise UserError(f"{given} is for one question", hint="Add -q QUESTION.", exit_status=EXIT_USAGE)
    if request.directory is not None:
        _enter(request.directory)
    try:
        if question is None:
            return _chat(request)
        from hermes_agent.app.cli.command import activity  # only for one question

        with nullcontext() if request.quiet else activity("loading the agent and its plugins"):
            host, session_id = _load(request)
    except ConfigError as error:
        # 78 is for service managers; users and scripts expect 2
        raise UserError(error.message, hint=error.hint, exit_status=EXIT_USAGE) from error
    text = " ".join([*(f"/{name.lstrip('/')}" for name in request.skills), question.strip()])
    return asyncio.run(_ask_once(host, text, session_id, request))


def _load(request: ConversationRequest) -> tuple[Host, str | None]:
    """Return the host and the session to resume."""
    from hermes_agent.app.start import start_host

    host = start_host()
    _check_toolsets(host, request.toolsets)
    if request.max_turns is not None:
        host.agent.settings = replace(host.agent.settings, max_turns=request.max_turns)
    return host, _find_session(host, continue_last=request.continue_last, resume=request.resume)


def _chat(request: ConversationRequest) -> int:
    """Run a chat; where the terminal can redraw, its prompt is shown before the agent is loaded."""
    from hermes_agent.app.first_prompt import ChatSources, OpenedScreen, make_screen, run_with_prompt

    opened: OpenedScreen | None = None

    async def chat(loaded: tuple[Host, str | None]) -> int:
        from hermes_agent.app.chat import run_chat

        return await run_chat(loaded[0], request.first, loaded[1], request.model, opened)

    if sys.stdin.isatty() and sys.stdout.isatty():
        from hermes_agent import config

        home = config.hermes_home()
        config.make_home(home)
        sources = ChatSources(Path.cwd())
        screen = make_screen(config.load(home), home, sources)
        if screen.is_live:
            opened = OpenedScreen(cast("LiveScreen", screen), sources)
            return run_with_prompt(opened, lambda: _load(request), chat)
    return asyncio.run(chat(_load(request)))


def _one_question_option(request: ConversationRequest) -> str:
    """Return the name of a given option that a chat does not have, or ""."""
    options = {
        "--json": request.form == "json",
        "--jsonl": request.form == "jsonl",
        "--image": bool(request.images),
        "--approve": request.approve,
        "--quiet": request.quiet,
        "--toolsets": bool(request.toolsets),
        "--skills": bool(request.skills),
        "--verbose": request.verbose,
    }
    return next((name for name, is_given in options.items() if is_given), "")


def _enter(directory: Path) -> None:
    """Work in a directory, whatever the config says."""
    try:
        os.chdir(directory)
    except OSError as exc:
        raise UserError(f"{directory}: {exc.strerror or exc}", exit_status=EXIT_USAGE) from exc
    os.environ["TERMINAL_CWD"] = str(Path.cwd())


def _check_toolsets(host: Host, names: Sequence[str]) -> None:
    """Raise UserError for a toolset that does not exist."""
    for name in names:
        if not host.toolsets.exists(name):
            near = nearest_name(name, host.toolsets.names())
            hint = f"Did you mean {near}?" if near else f"There are: {', '.join(sorted(host.toolsets.names()))}."
            raise UserError(f"there is no toolset {name!r}", hint=hint, exit_status=EXIT_USAGE)


async def _ask_once(host: Host, question: str, session_id: str | None, request: ConversationRequest) -> int:
    """Answer one question on stdout; everything else goes to stderr."""
    from hermes_agent.app.start import start_warnings
    from hermes_agent.console.output import OneShotOptions, answer_once
    from hermes_agent.mcp.servers import McpServers

    warnings = () if request.quiet else start_warnings(host)
    for warning in warnings:
        print(f"hermes: {warning}", file=sys.stderr)
    host.service(McpServers).start()
    for line in () if request.quiet else host.plugins.missed():
        print(f"hermes: {line}", file=sys.stderr)
    options = OneShotOptions(
        session_id,
        request.model,
        list(request.toolsets) or None,
        request.images,
        request.form,
        request.quiet,
        request.verbose,
        request.approve,
    )
    try:
        return await answer_once(host.agent, host.slash, question, options)
    finally:
        await host.aclose()


def _find_session(host: Host, *, continue_last: bool, resume: str | None) -> str | None:
    if not continue_last and resume is None:
        return None
    from hermes_agent.sessions import LOCAL

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
