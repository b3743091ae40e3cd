"""What a conversation stores: collected step by step, written in one commit each.

Of each request a digest is stored, so that a replay can say whether its bytes are the same.

A stored conversation as a provider accepts it, whatever interrupted it; worked out as its messages come.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hermes_agent.core.messages import Content, Message, Usage
from hermes_agent.models.request import ModelRequest
from hermes_agent.sessions import NewSession, RequestRecord, SentRecord, SessionCommit, TurnRecord, UsageRecord
from hermes_agent.tools import tool_error

if TYPE_CHECKING:
    from hermes_agent.agent.agent import Agent


_encode = json.JSONEncoder(ensure_ascii=False, default=str).encode  # `json.dumps` would make one for each message


class RequestDigest:
    """Of the requests of one conversation, one after another."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._chain: list[bytes] = []
        """The digest of each message with all before it."""

    def digest(self, head: Sequence[Any], messages: Sequence[Message]) -> str:
        """Return the digest of a request.

        Args:
            head: model, system prompt and the digest of the tools; what else plugins changed.
            messages: without the system prompt.
        """
        same = len(self._messages)
        if self._messages != messages[:same]:  # the same objects: quick for any number
            pairs = enumerate(zip(self._messages, messages, strict=False))
            same = next((at for at, (known, message) in pairs if known != message), min(same, len(messages)))
        del self._messages[same:], self._chain[same:]
        for message in messages[same:]:
            before = self._chain[-1] if self._chain else b""
            self._chain.append(hashlib.sha256(before + _json_bytes([message.to_dict(), message.extras])).digest())
            self._messages.append(message)
        last = self._chain[-1] if self._chain else b""
        return hashlib.sha256(_json_bytes(list(head)) + last).hexdigest()


def digest_tools(definitions: Sequence[dict[str, Any]]) -> tuple[str, str]:
    """Return the digest of what the model is shown, and its text; both empty without tools."""
    if not definitions:
        return "", ""
    text = json.dumps(definitions, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest(), text


def _json_bytes(value: Any) -> bytes:
    return _encode(value).encode("utf-8", "replace")


class TurnRecorder:
    """The records of one conversation.

    Args:
        digest: of requests as they are made of what is stored.
        sent_digest: of those that were sent otherwise.
        keep: whether what is said is stored; usage always is.
    """

    def __init__(
        self,
        agent: Agent,
        session_id: str,
        principal: str,
        digest: RequestDigest,
        sent_digest: RequestDigest,
        *,
        keep: bool,
    ) -> None:
        self._agent = agent
        self._session_id = session_id
        self._principal = principal
        self._keep = keep
        self._step = SessionCommit(principal)
        self._digest = digest
        self._sent_digest = sent_digest
        self._said: Sequence[Message] = ()
        self._tools: tuple[Sequence[dict[str, Any]], str] = ((), "")
        """The tools of the last request as the agent made it, with their digest."""
        self._asked = ""
        """Digest of the last request as the agent made it."""
        self._note: SentRecord | None = None
        """What became of it."""

    def add_session(self, row: NewSession) -> None:
        """The session begins."""
        self._step.session = row

    def add_message(self, message: Message, usage: Usage | None) -> None:
        """Something was said."""
        self._step.messages.append(message)
        self._step.tokens += usage or Usage()

    def turn_record(self, turn_id: str) -> TurnRecord:
        """Return what the next commit says of a turn, to add to it."""
        if self._step.turn is None:
            self._step.turn = TurnRecord(turn_id)
        return self._step.turn

    def add_usage(self, note: UsageRecord) -> None:
        """A model was asked."""
        self._step.usage.append(note)

    def add_request(
        self, turn_id: str, number: int, head: Sequence[str], tools: Sequence[dict[str, Any]], said: Sequence[Message]
    ) -> None:
        """The model is about to be asked.

        Args:
            head: model and system prompt.
            said: the messages, without what plugins added to them.
        """
        if self._keep:
            shown, definitions = self._agent.tools_digest(tools)
            digest = self._asked = self._digest.digest((*head, shown), said)
            self._said, self._tools, self._note = said, (tools, shown), None
            self.turn_record(turn_id).requests.append(RequestRecord(number, digest, shown, definitions))

    def add_sent(
        self, turn_id: str, number: int, request: ModelRequest, changes: Mapping[str, Any], plugins: Iterable[str]
    ) -> None:
        """The provider is sent a request.

        Args:
            changes: fields beside model, tools and messages that are not as the agent made them.
            plugins: who may have changed it.
        """
        if not self._keep:
            return
        prompt, said = request.messages[0].text, list(request.messages[1:])
        # not `Agent.tools_digest`, which takes what it has seen for stored
        tools, shown = self._tools
        digest = shown if request.tools == tools else digest_tools(request.tools)[0]
        head = [request.model, prompt, digest, *([changes] if changes else ())]
        chain = self._digest if said == self._said else self._sent_digest
        note = SentRecord(number, chain.digest(head, said), request.model, tuple(plugins))
        if note.digest == self._asked:
            note = note._replace(plugins=())
        self._note = self.turn_record(turn_id).sent[number] = note

    def add_answered(self, turn_id: str, number: int, plugins: Iterable[str]) -> None:
        """A request was answered. `plugins`: who did when nothing was sent."""
        if self._keep:
            known = self._note if self._note is not None and self._note.number == number else None
            note = known or SentRecord(number, plugins=tuple(plugins))
            self._note = self.turn_record(turn_id).sent[number] = note._replace(answered=True)

    async def commit(self) -> None:
        """Store what waits, in one commit.

        Raises:
            UserError: somebody else was first with the id of this new session.
        """
        step, self._step = self._step, SessionCommit(self._principal)
        if not self._keep:
            step = SessionCommit(usage=step.usage)
        if step.session or step.messages or step.turn or step.usage:
            await self._agent.write(self._session_id, step)


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
