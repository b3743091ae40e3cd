"""A stored conversation as a provider accepts it, whatever interrupted it; worked out as its messages come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hermes_agent.agent.recording import RequestDigest
from hermes_agent.core.messages import Content, Message
from hermes_agent.tools import tool_error

__all__ = ["MessageCache", "LOST_RESULT", "HistoryRepair", "SentTexts", "repaired"]

LOST_RESULT = tool_error(
    "The end of this call is unknown: the agent stopped before its result was recorded. "
    "It may or may not have taken effect; check before you do it again."
)


def repaired(messages: Sequence[Message]) -> list[Message]:
    """Return the conversation with one result for each tool call and no two user messages in a row.

    A call without a result gets `LOST_RESULT`; a result without a call is left out; user messages that follow
    each other become one.
    """
    return HistoryRepair().repair(messages)


class HistoryRepair:
    """`sound` for a conversation that grows: only what is new is looked at."""

    def __init__(self) -> None:
        self._seen: list[Message] = []
        self._out: list[Message] = []
        self._open_calls: dict[str, str] = {}

    def repair(self, messages: Sequence[Message]) -> list[Message]:
        """Return what `sound` does; messages that are as they were the last time stay the same objects."""
        if self._seen != messages[: len(self._seen)]:  # the same objects: quick for any number
            self._seen, self._out, self._open_calls = [], [], {}
        for message in messages[len(self._seen) :]:
            self._take(message)
            self._seen.append(message)
        return [*self._out, *_lost_results(self._open_calls)]

    def _take(self, message: Message) -> None:
        out = self._out
        if message.role == "tool":
            if self._open_calls.pop(message.tool_call_id, None) is not None:
                out.append(message)
            return
        out += _lost_results(self._open_calls)
        self._open_calls = {call.id: call.name for call in message.tool_calls}
        if message.role == "user" and out and out[-1].role == "user":
            out[-1] = replace(out[-1], content=_join_messages(out[-1].content, message.content))
        else:
            out.append(message)


def _lost_results(open_calls: Mapping[str, str]) -> list[Message]:
    return [Message("tool", LOST_RESULT, tool_call_id=id_, tool_name=name) for id_, name in open_calls.items()]


def _join_messages(one: Content, other: Content) -> Content:
    if isinstance(one, str) and isinstance(other, str):
        return f"{one}\n\n{other}"
    return [*_parts(one), *_parts(other)]


def _parts(content: Content) -> list[dict[str, object]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


class SentTexts(dict[int, str]):
    """By place in the history: what is sent in place of the content of that message, with what plugins added to it."""

    def __init__(self) -> None:
        super().__init__()
        self._by: dict[int, tuple[str, ...]] = {}
        self.plugins: dict[str, None] = {}
        """All of them."""

    def add(self, place: int, text: str, by: Iterable[str]) -> None:
        """Note a text. `by`: the plugins that added to it."""
        self[place], self._by[place] = text, tuple(by)
        self.plugins |= dict.fromkeys(self._by[place])

    def move(self, origin: Mapping[int, int]) -> SentTexts:
        """Return the texts of those messages that stayed. `origin`: new place to old."""
        out = SentTexts()
        for new, old in origin.items():
            if old in self:
                out.add(new, self[old], self._by[old])
        return out


@dataclass(slots=True)
class MessageCache:
    """Of one session. What does not fit the messages any more is worked out anew by itself."""

    history: HistoryRepair = field(default_factory=HistoryRepair)
    """Of the messages as they are stored."""
    digest: RequestDigest = field(default_factory=RequestDigest)
    sent_digest: RequestDigest = field(default_factory=RequestDigest)
    """Of requests that plugins changed."""
    _sent: HistoryRepair = field(default_factory=HistoryRepair)
    """Of the messages with what plugins added to them."""
    _injected: dict[int, tuple[Message, Message]] = field(default_factory=dict)
    """By place: a message and what is sent in its place."""

    def messages_to_send(self, history: Sequence[Message], texts: Mapping[int, str]) -> list[Message]:
        """Return a history as a provider accepts it. `texts`: by place: what is sent as the content of that message."""
        shown, count, injected = list(history), len(history), self._injected
        if len(injected) > len(texts):  # the history was made shorter
            self._injected = injected = {place: known for place, known in injected.items() if place in texts}
        for place, text in texts.items():
            if place >= count:
                continue
            known = injected.get(place)
            if known is None or known[0] is not shown[place] or known[1].content != text:
                known = injected[place] = (shown[place], replace(shown[place], content=text))
            shown[place] = known[1]
        return self._sent.repair(shown)
