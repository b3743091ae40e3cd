"""What one turn knows while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hermes_agent.agent.interrupt import Interrupt
from hermes_agent.agent.repetition import Repetition
from hermes_agent.core.events import TurnEnd
from hermes_agent.core.messages import Content, Usage, text_of
from hermes_agent.tools.budget import Budget

if TYPE_CHECKING:
    from hermes_agent.agent.conversation import Conversation

__all__ = ["Stopped", "TurnState"]


class Stopped(Exception):
    """The agent ends the turn by itself; the argument is the sentence that the person is told."""


@dataclass(slots=True)
class TurnState:
    """Nothing of it outlives the turn."""

    conversation: Conversation
    content: Content
    interrupt: Interrupt
    budget: Budget
    repetition: Repetition
    id: str
    text: str = ""
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    end: TurnEnd = "answered"
    calls: int = 0
    """Tool calls that ran."""
    places: int = 0
    """Tool calls that the model made."""
    known: Mapping[int, str] = field(default_factory=dict)
    """By place among them: results of calls that are not run."""
    changed: dict[str, None] = field(default_factory=dict)
    """Files that tools wrote, in the order of their first time."""
    nudges: int = 0
    """Times that `pre_verify` sent the model back to work."""
    requests: int = 0
    """Requests to the model."""
    request_id: str = ""
    """The last one."""

    @property
    def user_message(self) -> str:
        return text_of(self.content)

    def common(self) -> dict[str, Any]:
        """Return the keywords that every hook of a turn is given."""
        talk = self.conversation
        return {"session_id": talk.session_id, "model": talk.model, "platform": talk.platform}

    def ids(self) -> dict[str, str]:
        return {"task_id": self.conversation.session_id, "turn_id": self.id}

    def says(self, text: str) -> None:
        """Add to the reply."""
        self.text = "\n\n".join(t for t in (self.text, text) if t)
