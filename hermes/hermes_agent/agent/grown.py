"""What is worked out of a session's messages as they come, for each conversation that takes the session up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hermes_agent.agent.digest import RequestDigest
from hermes_agent.agent.repair import Repair
from hermes_agent.core.messages import Message

__all__ = ["Grown"]


@dataclass(slots=True)
class Grown:
    """Of one session. What does not fit the messages any more is worked out anew by itself."""

    said: Repair = field(default_factory=Repair)
    """Of the messages as they are stored."""
    digest: RequestDigest = field(default_factory=RequestDigest)
    _sent: Repair = field(default_factory=Repair)
    """Of the messages with what plugins added to them."""
    _injected: dict[int, tuple[Message, Message]] = field(default_factory=dict)
    """By place: a message and what is sent in its place."""

    def sent_as(self, history: Sequence[Message], texts: Mapping[int, str]) -> list[Message]:
        """Return a history as a provider accepts it.

        Args:
            texts: by place: what is sent as the content of that message.
        """
        shown, count, injected = list(history), len(history), self._injected
        for place, text in texts.items():
            if place >= count:
                continue
            known = injected.get(place)
            if known is None or known[0] is not shown[place] or known[1].content != text:
                known = injected[place] = (shown[place], replace(shown[place], content=text))
            shown[place] = known[1]
        return self._sent.of(shown)
