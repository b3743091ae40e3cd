"""What a conversation stores, in one commit for each step; and its history as a provider accepts it.

A digest of each request is stored, so that a replay can tell whether its bytes are the same.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from hermes_agent.agent.system_prompt import FolderInstructions
from hermes_agent.contracts.model_client import ModelRequest
from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.messages import Content, Message, Usage, begins_with
from hermes_agent.core.redaction import mask_message, redactor
from hermes_agent.sessions import NewSession, RequestRecord, SentRecord, SessionCommit, TurnRecord, UsageRecord
from hermes_agent.tools import tool_error

_encode = json.JSONEncoder(ensure_ascii=False, default=str).encode  # `json.dumps` would make one for each message


class RequestDigest:
    """Digests of the requests of one conversation, each based on the one before."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._chain: list[bytes] = []
        """The digest of each message with all before it."""
        self._head: list[Any] = []
        """The last head of texts alone."""
        self._begun = hashlib.sha256()
        """The digest of a request, begun with that head: its prompt is long, and mostly the same."""

    def digest(self, head: list[Any], messages: Sequence[Message]) -> str:
        """Return the digest of a request.

        Args:
            head: model, system prompt, the digest of the tools, and other fields that plugins changed.
            messages: without the system prompt.
        """
        same = len(self._messages)
        if not begins_with(messages, self._messages):
            pairs = enumerate(zip(self._messages, messages, strict=False))
            same = next((at for at, (known, message) in pairs if known != message), min(same, len(messages)))
        del self._messages[same:], self._chain[same:]
        for message in messages[same:]:
            before = self._chain[-1] if self._chain else b""
            self._chain.append(hashlib.sha256(before + _json_bytes([message.to_dict(), message.extras])).digest())
            self._messages.append(message)
        if head != self._head:
            self._head = list(head) if all(isinstance(part, str) for part in head) else []
            self._begun = hashlib.sha256(_json_bytes(head))
        whole = self._begun.copy()
        whole.update(self._chain[-1] if self._chain else b"")
        return whole.hexdigest()


def digest_tools(definitions: Sequence[dict[str, Any]]) -> tuple[str, str]:
    """Return the digest of tool definitions, and their text; both "" without tools."""
    if not definitions:
        return "", ""
    text = json.dumps(definitions, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest(), text


def _json_bytes(value: Any) -> bytes:
    return _encode(value).encode("utf-8", "replace")


class TurnRecorder:
    """Collects what one conversation stores with its next commit.

    Args:
        write: stores a commit.
        digest_tools: returns the digest of tools, and their text if it may not be stored yet.
        digest: of requests as they are made from the stored messages.
        sent_digest: of requests that were sent in another form.
        keep: whether messages are stored; usage always is.
    """

    def __init__(
        self,
        write: Callable[[SessionCommit], Awaitable[None]],
        digest_tools: Callable[[Sequence[dict[str, Any]]], tuple[str, str]],
        principal: str,
        digest: RequestDigest,
        sent_digest: RequestDigest,
        *,
        keep: bool,
    ) -> None:
        self._write = write
        self._digest_tools = digest_tools
        self._principal = principal
        self._keep = keep
        self._step = SessionCommit(principal)
        self.rule = ""
        """Rule of the session to store with the next commit, or ""."""
        self._digest = digest
        self._sent_digest = sent_digest
        self._messages: Sequence[Message] = ()
        self._unchanged: Sequence[Message] = ()
        """The messages of that request with the system prompt, as it is sent if no plugin changes it."""
        self._tools: tuple[Sequence[dict[str, Any]], str] = ((), "")
        """The tools of the last request as the agent made it, with their digest."""
        self._head: list[Any] = []
        """Model, system prompt and digest of the tools of that request."""
        self._request_digest = ""
        """Digest of that request."""
        self._note: SentRecord | None = None
        """How that request was sent."""

    def add_session(self, row: NewSession) -> None:
        """Record that the session starts."""
        self._step.session = row

    def add_message(self, message: Message, usage: Usage | None) -> None:
        """Record a message of the history."""
        self._step.messages.append(message)
        self._step.tokens += usage or Usage()

    def replace_answer(self, old: Message, new: Message) -> None:
        """Replace the last message of the assistant, also if it is stored already."""
        messages = self._step.messages
        for place, message in enumerate(messages):
            if message is old:
                messages[place] = new
                return
        self._step.answer = new

    def turn_record(self, turn_id: str) -> TurnRecord:
        """Return the record of a turn in the next commit; the caller adds to it."""
        if self._step.turn is None:
            self._step.turn = TurnRecord(turn_id)
        return self._step.turn

    def add_usage(self, note: UsageRecord) -> None:
        """Record the usage of a model request."""
        self._step.usage.append(note)

    def add_request(
        self,
        turn_id: str,
        number: int,
        head: Sequence[str],
        tools: Sequence[dict[str, Any]],
        messages: Sequence[Message],
        unchanged: Sequence[Message] = (),
    ) -> None:
        """Record a request that is about to be sent.

        Args:
            head: model and system prompt.
            messages: the history without the additions of plugins.
            unchanged: the messages of the `ModelRequest`, if it has no additions.
        """
        if self._keep:
            shown, definitions = self._digest_tools(tools)
            self._head = [*head, shown]
            digest = self._request_digest = self._digest.digest(self._head, messages)
            self._messages, self._unchanged, self._tools, self._note = messages, unchanged, (tools, shown), None
            self.turn_record(turn_id).requests.append(RequestRecord(number, digest, shown, definitions))

    def add_sent(
        self, turn_id: str, number: int, request: ModelRequest, changes: Mapping[str, Any], plugins: Iterable[str]
    ) -> None:
        """Record a request in the form in which the provider gets it.

        Args:
            changes: further fields, without model, tools and messages, that differ from the agent's own request.
            plugins: plugins that may have changed it.
        """
        if not self._keep:
            return
        messages, prompt = self._messages, request.messages[0].text
        if request.messages is not self._unchanged:  # a copy takes as long as a history is long
            messages = list(request.messages[1:])
        # not `self._digest_tools`: it assumes that tools which it has seen are stored
        tools, shown = self._tools
        digest = shown if request.tools == tools else digest_tools(request.tools)[0]
        head = [request.model, prompt, digest, *([changes] if changes else ())]
        if messages is not self._messages and messages != self._messages:
            found = self._sent_digest.digest(head, messages)
        else:
            found = self._request_digest if head == self._head else self._digest.digest(head, messages)
        note = SentRecord(number, found, request.model, () if found == self._request_digest else tuple(plugins))
        self._note = self.turn_record(turn_id).sent[number] = note

    def add_answered(self, turn_id: str, number: int, plugins: Iterable[str]) -> None:
        """Record that a request was answered. `plugins`: those that answered when nothing was sent."""
        if self._keep:
            known = self._note if self._note is not None and self._note.number == number else None
            note = known or SentRecord(number, plugins=tuple(plugins))
            self._unchanged = ()  # so that the next request can continue the list
            self._note = self.turn_record(turn_id).sent[number] = note._replace(answered=True)

    async def commit(self) -> None:
        """Store what was collected, in one commit.

        Raises:
            UserError: the id of this new session is taken by another principal.
        """
        step, self._step = self._step, SessionCommit(self._principal)
        step.rule, self.rule = self.rule, ""
        if not self._keep:
            step = SessionCommit(usage=step.usage)
        if step.session or step.messages or step.turn or step.usage or step.answer:
            await self._write(step)


LOST_RESULT = tool_error(
    "The end of this call is unknown: the agent stopped before its result was recorded. "
    "It may or may not have taken effect; check before you do it again."
)


def repaired(messages: Sequence[Message]) -> list[Message]:
    """Return the conversation with one result for each tool call and no two user messages in a row.

    A call without a result gets `LOST_RESULT`; a result without a call is left out; user messages that follow
    each other become one.
    """
    return list(HistoryRepair().repair(messages))


class HistoryRepair:
    """`repaired` for a history that grows: only new messages are read."""

    def __init__(self) -> None:
        self._seen: list[Message] = []
        self._out: list[Message] = []
        self._open_calls: dict[str, str] = {}
        self._prompted: list[Message] = []
        """What `add_prompt` returned for `_out`; empty before the first call."""

    def repair(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return what `repaired` returns, until the next call; unchanged messages stay the same objects."""
        if not begins_with(messages, self._seen):
            self._seen, self._out, self._open_calls, self._prompted = [], [], {}, []
        for message in messages[len(self._seen) :]:
            self._take(message)
            self._seen.append(message)
        return [*self._out, *_lost_results(self._open_calls)] if self._open_calls else self._out

    def add_prompt(self, system: Message, messages: Sequence[Message]) -> list[Message]:
        """Return the system prompt and the messages, which are mostly those of the last `repair`.

        The list of the last call is continued if nothing else has it: a copy takes as long as a history is long.
        """
        if messages is not self._out:
            return [system, *messages]
        known = len(self._prompted)
        if known > 1 and sys.getrefcount(self._prompted) == 2:  # this object and the argument
            self._prompted[0] = system
            self._prompted[known - 1 :] = self._out[known - 2 :]  # a message of the user can have joined the last one
        else:
            self._prompted = [system, *self._out]
        return self._prompted

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
    """Texts with additions of plugins, by index of the message that they are sent in place of."""

    def __init__(self) -> None:
        super().__init__()
        self._by: dict[int, tuple[str, ...]] = {}
        self.plugins: dict[str, None] = {}
        """All plugins of the texts."""

    def add(self, place: int, text: str, by: Iterable[str]) -> None:
        """Add a text. `by`: the plugins that added to it."""
        self[place], self._by[place] = text, tuple(by)
        self.plugins |= dict.fromkeys(self._by[place])

    def move(self, origin: Mapping[int, int]) -> SentTexts:
        """Return the texts of the messages that stayed. `origin`: new index to old."""
        out = SentTexts()
        for new, old in origin.items():
            if old in self:
                out.add(new, self[old], self._by[old])
        return out


@lazy_dataclass(slots=True)
class MessageCache:
    """Cached forms of the messages of one session; entries that no longer fit the messages are replaced."""

    history: HistoryRepair = field(default_factory=HistoryRepair)
    """Of the messages as they are stored."""
    digest: RequestDigest = field(default_factory=RequestDigest)
    sent_digest: RequestDigest = field(default_factory=RequestDigest)
    """Of requests that plugins changed."""
    _sent: HistoryRepair = field(default_factory=HistoryRepair)
    """Of the messages with what plugins added to them."""
    _injected: dict[int, tuple[Message, Message]] = field(default_factory=dict)
    """By index: a message and what is sent in its place."""

    def messages_to_send(self, history: Sequence[Message], texts: Mapping[int, str]) -> Sequence[Message]:
        """Return a history as a provider accepts it. `texts`: content to send, by index of the message."""
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


class History:
    """The messages of a conversation: as they are stored, and as the model gets them.

    Args:
        call_transcript: calls a method of the stored transcript; None stores nothing.
        remember_sent: keeps the sent texts for the next conversation of the session.
    """

    def __init__(
        self,
        session_id: str,
        record: TurnRecorder,
        cache: MessageCache,
        folders: FolderInstructions,
        call_transcript: Callable[..., Awaitable[Any]] | None,
        remember_sent: Callable[[str, SentTexts], None],
    ) -> None:
        self.messages: list[Message] = []
        self.system_prompt = ""
        self.record = record
        self.folders = folders
        """Instruction files of folders, as far as the history has them."""
        self.is_started = False
        """The session is stored, or is with the next commit."""
        self.sent_texts = SentTexts()
        self._session_id = session_id
        self._cache = cache
        self._system = Message("system")
        self._call_transcript = call_transcript
        self._remember_sent = remember_sent

    def start(self, row: NewSession) -> None:
        """Store the session with the next commit."""
        self.record.add_session(row)
        self.is_started = True

    def add(self, message: Message, usage: Usage | None = None) -> None:
        """Append a message; it is stored with the next commit."""
        message = mask_message(message)
        self.messages.append(message)
        self.record.add_message(message, usage)

    def replace_answer(self, text: str) -> None:
        """Replace the text of the last message, which is the assistant's; it is stored with the next commit."""
        old = self.messages[-1] if self.messages else None
        if old is None or old.role != "assistant" or old.tool_calls:
            return
        new = mask_message(Message("assistant", text))
        self.messages[-1] = new
        self.record.replace_answer(old, new)

    async def commit(self) -> None:
        """Store what was collected. Called before other code runs, before a request, and at the end of a turn.

        Raises:
            UserError: the id of this new session is taken by another principal.
        """
        try:
            await self.record.commit()
        except UserError:
            self.is_started = bool(self.messages[:-1])
            raise

    async def replace(self, messages: list[Message], origin: dict[int, int], tokens: tuple[int, int]) -> None:
        """Continue with a shorter history; the stored transcript keeps the messages that it replaces.

        Args:
            origin: the messages that stayed: new index to old.
            tokens: approximate length before and after.
        """
        await self.commit()
        if self._call_transcript is not None:
            await self._call_transcript("compact", self._session_id, messages, tokens)
        self.messages = messages
        self.folders.forget()  # the instructions may be among the messages that are gone
        self.sent_texts = self.sent_texts.move(origin)
        if self._call_transcript is not None:
            self._remember_sent(self._session_id, self.sent_texts)

    def reload(self, messages: list[Message]) -> None:
        """Continue with the stored transcript after another part of the program changed it."""
        self.messages = messages
        self.folders.forget()
        self.sent_texts = SentTexts()

    def set_sent_text(self, index: int, text: str, by: Iterable[str]) -> None:
        """Send `text` in place of the content of message `index`; it is kept in memory only.

        Args:
            by: the plugins that added to it.
        """
        self.sent_texts.add(index, redactor.mask_known(text), by)
        if self._call_transcript is not None:
            self._remember_sent(self._session_id, self.sent_texts)

    def system_message(self) -> Message:
        """Return the system prompt as a message, the same object until it changes."""
        if self._system.content != self.system_prompt:
            self.system_prompt = redactor.mask_known(self.system_prompt)
            self._system = Message("system", self.system_prompt)
        return self._system

    def accepted(self) -> Sequence[Message]:
        """Return the messages as a provider accepts them, without what plugins added; until the next call."""
        return self._cache.history.repair(self.messages)

    def add_prompt(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages of a request: the system prompt and `messages`."""
        return self._cache.history.add_prompt(self.system_message(), messages)

    def messages_to_send(self) -> Sequence[Message]:
        """Return the messages as the model gets them, until the next call."""
        if not self.sent_texts:
            return self.accepted()
        return self._cache.messages_to_send(self.messages, self.sent_texts)
