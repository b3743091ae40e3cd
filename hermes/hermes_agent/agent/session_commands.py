"""Handlers of `/resume` and `/title`, and the commands of a session."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import date
from functools import partial
from typing import TYPE_CHECKING

from hermes_agent.agent import personalities
from hermes_agent.agent.agent import Agent
from hermes_agent.agent.personalities import Personalities
from hermes_agent.agent.session_lifecycle import BOUNDARY
from hermes_agent.contracts.command import Confirmation, SlashCommand
from hermes_agent.contracts.tool import Registrar
from hermes_agent.core.errors import CommandFailed, UserError
from hermes_agent.policy import NoApprover
from hermes_agent.sessions import LOCAL, SessionInfo, UsageLedger, UsageTotals
from hermes_agent.tools import current_scope

if TYPE_CHECKING:
    from hermes_agent.agent.conversation import Conversation


LISTED_SESSIONS = 10
"""Sessions that `/resume` lists."""
SEARCHED_SESSIONS = 200
"""Sessions that `/resume TITLE` searches."""
TITLE_CHARS = 100


async def find_session(agent: Agent, wanted: str, principal: str) -> SessionInfo | str:
    """Return the session with a title or a beginning of its id, or the answer for the user.

    Args:
        wanted: "" asks for the list.
        principal: only sessions that it may see are found.
    """
    wanted, of = wanted.strip(), agent.principals.visible_to(principal)
    found: list[SessionInfo] = await agent.call_transcript(
        "recent", SEARCHED_SESSIONS if wanted else LISTED_SESSIONS, of=of
    )
    if not wanted:
        rows = [f"{session.id}  {session.title or '(no title)'}" for session in found]
        return "\n".join(["Your sessions (/resume ID or title):", *rows]) if rows else "There are no sessions yet."
    titled = next((session for session in found if session.title.lower() == wanted.lower()), None)
    if titled is not None:
        return titled
    try:
        chosen: SessionInfo = await agent.call_transcript("find", wanted, of=of)
    except UserError as error:
        return f"{error.message[:1].upper()}{error.message[1:]}. /resume lists them."
    return chosen


async def set_title(agent: Agent, session_id: str, text: str) -> str:
    """Set the title of a session unless the text is empty, and return the answer for the user."""
    if await agent.call_transcript("title", session_id) is None:
        return "There is no session yet."
    if text.strip():
        await agent.call_transcript("set_title", session_id, text.strip()[:TITLE_CHARS])
    return f"Title: {await agent.call_transcript('title', session_id) or '(none)'}"


NOT_IN_SUBAGENT = "There is no conversation here."


def register(
    ctx: Registrar, agent: Agent, ledger: UsageLedger, put_back: Callable[[str], str], known: Personalities
) -> None:
    """Register the commands. `put_back`: restores what a turn changed, and returns what that was, or ""."""
    for command in (
        SlashCommand(
            "compress",
            partial(_run, agent, _compress),
            "Make the conversation shorter now; what matters most may follow",
            "[TOPIC]",
            during_turn=False,
            aliases=("compact",),
        ),
        SlashCommand("context", partial(_run, agent, _context), "Show how full the model's context is"),
        SlashCommand(
            "undo",
            partial(_undo, agent, put_back),
            "Forget the last question, and put back what it changed",
            during_turn=False,
            confirm=Confirmation("Forget the last question?", "Its answer, too; what it changed in files is put back."),
        ),
        SlashCommand(
            "personality",
            partial(personalities.answer, agent, known),
            "Show the personalities, or choose one for this session",
            "[NAME|none]",
            during_turn=False,
            argument_mode="options",
            values="personalities",
            starts_session=True,
        ),
        SlashCommand("usage", partial(_usage, ledger), "Show tokens, cost and time of this session"),
    ):
        ctx.register_slash_command(command)


def _run(agent: Agent, work: Callable[[Conversation, str], Awaitable[str]], raw_args: str) -> str:
    """Run a command in the session where it was typed, in a worker."""

    async def run_in_session() -> str:
        async with _conversation(agent, session_id, platform) as conversation:
            return await work(conversation, raw_args.strip())

    scope = current_scope.get()
    if scope is None:
        return NOT_IN_SUBAGENT
    session_id, platform = scope.session_id, scope.platform
    try:
        return agent.bridge.wait_core(run_in_session())
    except UserError as error:
        raise CommandFailed(str(error)) from error


@contextlib.asynccontextmanager
async def _conversation(agent: Agent, session_id: str, platform: str) -> AsyncIterator[Conversation]:
    """Yield the conversation of the session; one that is not open is opened for this."""
    found = agent.find_open(session_id)
    if found is not None:
        yield found
        return
    owner = await agent.call_transcript("principal", session_id) or LOCAL  # a user who typed a command has access
    conversation = await agent.open(session_id, platform=platform, approver=NoApprover("in a command"), principal=owner)
    try:
        yield conversation
    finally:
        await conversation.close(BOUNDARY)


async def _compress(conversation: Conversation, focus: str) -> str:
    return await conversation.compact(focus)


async def _context(conversation: Conversation, arguments: str) -> str:
    return await conversation.describe_context()


def _undo(agent: Agent, put_back: Callable[[str], str], raw_args: str) -> str:
    scope = current_scope.get()
    return NOT_IN_SUBAGENT if scope is None else agent.bridge.wait_core(_undo_turn(agent, scope.session_id, put_back))


async def _undo_turn(agent: Agent, session_id: str, put_back: Callable[[str], str]) -> str:
    conversation = agent.find_open(session_id)
    async with contextlib.nullcontext() if conversation is None else conversation.between_turns():
        turn = await agent.call_transcript("last_turn", session_id)
        agent.forget_sent(session_id)
        question = await agent.call_transcript("drop_last_turn", session_id)
        if not question:
            return "There is nothing to forget."
        if conversation is not None:
            await conversation.reload_history()
        try:
            files = await agent.bridge.run(put_back, turn)
        except (UserError, OSError) as error:  # of a full disk, for example: the turn is removed all the same
            files = f"The files stay as they are: {error}"
    return f"Forgotten: {question[:100]}" + (f"\n{files}" if files else "")


def _usage(ledger: UsageLedger, raw_args: str) -> str:
    scope = current_scope.get()
    session_id = "" if scope is None else scope.session_id
    lines = []
    if session_id:
        lines.append(f"This session: {_describe_usage(ledger.totals(session_id=session_id))}")
        causes = ledger.totals_by("cause", session_id=session_id)
        if len(causes) > 1:
            lines += [f"  {cause}: {_describe_usage(spent)}" for cause, spent in causes.items()]
    # the usage of other principals is for the operator only
    if scope is None or (scope.platform, scope.principal) == ("cli", LOCAL):
        lines.append(f"Today, all sessions: {_describe_usage(ledger.totals(day=date.today().isoformat()))}")
    return "\n".join(lines)


def _describe_usage(spent: UsageTotals) -> str:
    """Return a sum as text: `12,300 in (8,000 cached), 1,200 out, 7 calls, 42 s, $0.12`."""
    cached = f" ({spent.cached_tokens:,} cached)" if spent.cached_tokens else ""
    cost = f", ${spent.cost_usd:.4f}" if spent.requests > spent.unpriced else ""
    unpriced = f", {spent.unpriced} of unknown price" if spent.unpriced else ""
    return (
        f"{spent.input_tokens:,} in{cached}, {spent.output_tokens:,} out, {spent.requests} call(s),"
        f" {spent.seconds:.0f} s{cost}{unpriced}"
    )
