"""A turn that a crash cut off: where it stood, and what is known of its calls. The rule: docs/architecture.md.

A call that was about to run and has no result may have taken effect. It is run again only when its tool says that this
does no harm (`tools.parallel.may_repeat`); otherwise the model is told that its end is unknown, and so is the person.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hermes_agent.agent.repair import LOST_RESULT
from hermes_agent.core.messages import Content, Message, ToolCall, assistant_text
from hermes_agent.sessions import CallRecord, UnfinishedTurn, UsageTotals
from hermes_agent.tools import tool_error
from hermes_agent.tools.parallel import may_repeat

if TYPE_CHECKING:
    from hermes_agent.agent.agent import Agent

__all__ = ["InterruptedTurn", "load_interrupted_turn"]

NEVER_RUN = tool_error("not run: the agent was restarted before this call")


@dataclass(slots=True)
class InterruptedTurn:
    """Where a turn was cut off."""

    unfinished: UnfinishedTurn
    content: Content = ""
    """What the person said."""
    text: str = ""
    """What the model said so far."""
    is_answered: bool = False
    """The last answer called no tool: only the end of the turn is missing."""
    calls: tuple[ToolCall, ...] = ()
    """Calls of the last answer that have no result in the transcript."""
    first_place: int = 0
    """Of the first of them in the turn."""
    known_results: dict[int, str] = field(default_factory=dict)
    """By place: results of calls that are not run again."""
    lost_tools: list[str] = field(default_factory=list)
    """Tools of calls whose end is unknown."""
    requests: int = 0
    answers: int = 0
    """Requests that the model answered."""
    usage: UsageTotals = field(default_factory=UsageTotals)

    def notices(self) -> list[str]:
        """Return what the person is told."""
        return [
            f"The agent was restarted while {name} ran. Whether it took effect is unknown; it is not run again."
            for name in self.lost_tools
        ]

    def closing_messages(self) -> list[Message]:
        """Return the messages that end the turn where it was cut off: the person said something else."""
        out = [
            Message(
                "tool",
                self.known_results.get(self.first_place + i, NEVER_RUN),
                tool_call_id=call.id,
                tool_name=call.name,
            )
            for i, call in enumerate(self.calls)
        ]
        return [*out, Message("assistant", "[cut off: the agent was restarted]")] if out else []


async def load_interrupted_turn(agent: Agent, left: UnfinishedTurn) -> InterruptedTurn:
    """Find out where an unfinished turn stood."""
    messages: Sequence[Message] = await agent.call_transcript("messages", left.session_id, after=left.before)
    requests, notes = await agent.call_transcript("journal", left.turn_id)
    spent: UsageTotals = await agent.call_transcript("spent", turn_id=left.turn_id)
    cut = InterruptedTurn(left, requests=len(requests), usage=spent)
    answers = [i for i, m in enumerate(messages) if m.role == "assistant"]
    said = [m for m in messages[: answers[0] if answers else None] if m.role == "user"]
    if said:
        cut.content = said[-1].content
    cut.text, cut.answers = assistant_text(messages), len(answers)
    if not answers:
        return cut
    last, since = messages[answers[-1]], messages[answers[-1] + 1 :]
    done = sum(m.role == "tool" for m in since)
    cut.calls = last.tool_calls[done:]
    cut.is_answered = not last.tool_calls and not since
    cut.first_place = sum(len(messages[i].tool_calls) for i in answers[:-1]) + done
    by_place: dict[int, CallRecord] = {note.place: note for note in notes}
    for place in range(cut.first_place, cut.first_place + len(cut.calls)):
        note = by_place.get(place)
        if note is None:  # it never began
            continue
        if note.status:
            cut.known_results[place] = note.result
        elif not may_repeat(agent.tools, note.name):
            cut.known_results[place] = LOST_RESULT
            cut.lost_tools.append(note.name)
    return cut
