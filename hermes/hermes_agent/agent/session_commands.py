"""Going back to what was said: what `/resume` and `/title` answer, at the terminal and in chats.

`/compress`, `/context`, `/undo` and `/usage`: what a person can do with a conversation, and see of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import date
from functools import partial
from typing import TYPE_CHECKING

from hermes_agent.agent.agent import Agent
from hermes_agent.agent.session_lifecycle import BOUNDARY
from hermes_agent.commands import CommandTable
from hermes_agent.core.errors import UserError
from hermes_agent.policy import NoApprover
from hermes_agent.sessions import LOCAL, SessionInfo, UsageLedger, UsageTotals
from hermes_agent.tools import current_scope

if TYPE_CHECKING:
    from hermes_agent.agent.conversation import Conversation


LISTED_SESSIONS = 10
"""Sessions that `/resume` lists."""
SEARCHED_SESSIONS = 200
"""Sessions among which a title is looked for."""
TITLE_CHARS = 100


async def find_session(agent: Agent, wish: str, who: str) -> SessionInfo | str:
    """Return the session that a person means by the beginning of its id or by its title, or what to answer.

    Args:
        wish: empty asks for the list.
        who: the person (`sessions.people`); nobody else's sessions are found.
    """
    wish, of = wish.strip(), agent.principals.visible_to(who)
    found: list[SessionInfo] = await agent.call_transcript(
        "recent", SEARCHED_SESSIONS if wish else LISTED_SESSIONS, of=of
    )
    if not wish:
        rows = [f"{one.id}  {one.title or '(no title)'}" for one in found]
        return "\n".join(["Your sessions (/resume ID or title):", *rows]) if rows else "There are no sessions yet."
    titled = next((one for one in found if one.title.lower() == wish.lower()), None)
    if titled is not None:
        return titled
    try:
        chosen: SessionInfo = await agent.call_transcript("find", wish, of=of)
    except UserError as error:
        return f"{error.message[:1].upper()}{error.message[1:]}. /resume lists them."
    return chosen


async def set_title(agent: Agent, session_id: str, text: str) -> str:
    """Set the title of a session, unless the text is empty, and return what to answer."""
    if await agent.call_transcript("title", session_id) is None:
        return "There is no session yet."
    if text.strip():
        await agent.call_transcript("set_title", session_id, text.strip()[:TITLE_CHARS])
    return f"Title: {await agent.call_transcript('title', session_id) or '(none)'}"


NOT_IN_SUBAGENT = "There is no conversation here."


def register(registry: CommandTable, agent: Agent, ledger: UsageLedger, put_back: Callable[[str], str]) -> None:
    """Register them. `put_back`: puts back what a turn changed, and says what that was; empty for nothing."""
    registry.register(
        "compress",
        partial(_run, agent, _compress),
        description="Make the conversation shorter now (also /compact); what matters most may follow",
        args_hint="[TOPIC]",
        beside=False,
        aliases=("compact",),
    )
    registry.register("context", partial(_run, agent, _context), description="How full the model's context is")
    registry.register(
        "undo",
        partial(_undo, agent, put_back),
        description="Forget the last question, and put back what it changed",
        beside=False,
    )
    registry.register("usage", partial(_usage, ledger), description="Tokens, cost and time of this session")


def _run(agent: Agent, work: Callable[[Conversation, str], Awaitable[str]], raw_args: str) -> str:
    """Do it in the session that the command was typed in; in a worker."""

    async def here() -> str:
        async with _conversation(agent, session_id, platform) as talk:
            return await work(talk, raw_args.strip())

    scope = current_scope.get()
    if scope is None:
        return NOT_IN_SUBAGENT
    session_id, platform = scope.session_id, scope.platform
    try:
        return agent.bridge.wait_core(here())
    except UserError as error:
        return str(error)


@contextlib.asynccontextmanager
async def _conversation(agent: Agent, session_id: str, platform: str) -> AsyncIterator[Conversation]:
    """Yield the session's conversation, opened for this when nobody is in it."""
    for talk in agent.open_conversations:
        if talk.session_id == session_id:
            yield talk
            return
    owner = await agent.call_transcript("principal", session_id) or LOCAL  # whoever typed it is let into the session
    talk = await agent.open(session_id, platform=platform, approver=NoApprover("in a command"), principal=owner)
    try:
        yield talk
    finally:
        await talk.close(BOUNDARY)


async def _compress(talk: Conversation, focus: str) -> str:
    context = await talk.agent.context_engines.for_session(talk)
    async with talk.between_turns():
        return await context.compress_now(talk, focus)


async def _context(talk: Conversation, arguments: str) -> str:
    context = await talk.agent.context_engines.for_session(talk)
    return await context.describe(talk)


def _undo(agent: Agent, put_back: Callable[[str], str], raw_args: str) -> str:
    scope = current_scope.get()
    return NOT_IN_SUBAGENT if scope is None else agent.bridge.wait_core(_undo_turn(agent, scope.session_id, put_back))


async def _undo_turn(agent: Agent, session_id: str, put_back: Callable[[str], str]) -> str:
    talk = next((talk for talk in agent.open_conversations if talk.session_id == session_id), None)
    async with contextlib.nullcontext() if talk is None else talk.between_turns():
        turn = await agent.call_transcript("last_turn", session_id)
        agent.forget_sent(session_id)
        said = await agent.call_transcript("drop_last_turn", session_id)
        if not said:
            return "There is nothing to forget."
        if talk is not None:
            await talk.reload_history()
        try:
            files = await agent.bridge.run(put_back, turn)
        except (UserError, OSError) as error:  # of a full disk, say: what is forgotten is forgotten
            files = f"The files stay as they are: {error}"
    return f"Forgotten: {said[:100]}" + (f"\n{files}" if files else "")


def _usage(ledger: UsageLedger, raw_args: str) -> str:
    scope = current_scope.get()
    session_id = "" if scope is None else scope.session_id
    lines = []
    if session_id:
        lines.append(f"This session: {_describe_usage(ledger.totals(session_id=session_id))}")
        causes = ledger.totals_by("cause", session_id=session_id)
        if len(causes) > 1:
            lines += [f"  {cause}: {_describe_usage(spent)}" for cause, spent in causes.items()]
    if scope is None or (scope.platform, scope.principal) == (
        "cli",
        LOCAL,
    ):  # what others spent is the operator's to see
        lines.append(f"Today, all sessions: {_describe_usage(ledger.totals(day=date.today().isoformat()))}")
    return "\n".join(lines)


def _describe_usage(spent: UsageTotals) -> str:
    """Return a sum in words: `12,300 in (8,000 cached), 1,200 out, 7 calls, 42 s, $0.12`."""
    cached = f" ({spent.cached_tokens:,} cached)" if spent.cached_tokens else ""
    cost = f", ${spent.cost_usd:.4f}" if spent.requests > spent.unpriced else ""
    unpriced = f", {spent.unpriced} of unknown price" if spent.unpriced else ""
    return (
        f"{spent.input_tokens:,} in{cached}, {spent.output_tokens:,} out, {spent.requests} call(s),"
        f" {spent.seconds:.0f} s{cost}{unpriced}"
    )
