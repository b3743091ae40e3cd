"""Taint: track untrusted text, and request approval before a tool call uses it.

`TaintTracker` indexes for each conversation what the user wrote and what is untrusted, and marks the items that contain
untrusted text. The rules are in `policy.taint_rules`, the stored state in `policy.taint_store`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from pathlib import Path
from stat import S_ISDIR

from hermes_agent.contracts.tool import ApprovalRequest, Does, Effect
from hermes_agent.core.caches import LruDict
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.text import shorten
from hermes_agent.core.untrusted import TAG, mark_untrusted, split_marked
from hermes_agent.policy.taint_rules import (
    GUESSED_SENDING,
    OWN,
    CheckedCall,
    TaintFinding,
    TaintSources,
    find_tainted_values,
    guess_effect,
    is_copied,
)
from hermes_agent.policy.taint_store import (
    MOST_CHARS,
    TaintedItems,
    TaintStore,
    TrackedText,
    fetches,
    find_changed,
    find_paths,
)
from hermes_agent.policy.taint_words import CombinedIndex, UserChoices, WordIndex

logger = logging.getLogger(__name__)

MOST_SESSIONS = 512
"""Most conversations in memory; another one is loaded again when it continues."""
MOST_UNTRUSTED = 2_000_000
"""Most indexed characters of untrusted text; beyond, every value that the user did not write is tainted."""
MOST_IN_MEMORY = 4_000_000
"""Most indexed characters of untrusted text of all conversations in memory; a million takes about 45 MB."""
COARSE_S = 0.02
"""Seconds by which the clock of the file system may be behind."""
MOST_SHOWN = 8
"""Most values that an approval request shows."""


@lazy_dataclass(frozen=True, slots=True)
class TaintSettings:
    """The block `security.foreign_text` of the config."""

    ask: bool = True
    trusted: Sequence[str] = ()
    """Globs of sources that are trusted."""
    places: Sequence[str] = ()
    """Globs of files that are untrusted."""
    tools: Mapping[str, Does] = field(default_factory=dict)
    """The effect by tool, in place of the declared one."""


@lazy_dataclass(slots=True)
class _Conversation:
    """The tracked text of one conversation."""

    id: str
    """The session under which it is stored: that of the parent for a subagent."""
    user: WordIndex = field(default_factory=WordIndex)
    untrusted: WordIndex = field(default_factory=WordIndex)
    choices: UserChoices = field(default_factory=UserChoices)
    pending: list[str] = field(default_factory=list)
    """Text of the user that is not indexed yet."""
    unsaved: list[TrackedText] = field(default_factory=list)
    """Text of the user that is stored as soon as there is untrusted text."""
    sources: list[str] = field(default_factory=list)
    """The sources of the untrusted texts, by number."""
    pending_quotes: list[str] = field(default_factory=list)
    """Answers that, says the caller, the agent gave; not indexed yet."""
    inherited: dict[str, None] = field(default_factory=dict)
    """The sessions in which the agent gave these answers."""
    chars: int = 0
    """Indexed characters of untrusted text."""
    loaded: bool = False
    untrusted_at: float = 0.0
    """When the last untrusted text arrived, in seconds since 1970."""


class TaintTracker:
    """Tracks what the users wrote and what is untrusted. Safe for threads.

    `add_user_text`, `add_quoted_answer`, `share_with_subagent` and `is_tainted` are fast. All other methods read, write
    and index; call them in a worker.

    Args:
        path: the file `state.db`.
        settings: returns the current settings.
        foreign_places: globs of files that are untrusted whatever the settings say, such as files sent into chats.
    """

    def __init__(self, path: Path, settings: Callable[[], TaintSettings], foreign_places: Sequence[str] = ()) -> None:
        self.store = TaintStore(path)
        self._settings = settings
        self._places = tuple(foreign_places)
        self._lock = threading.RLock()
        """For workers: it may be held for seconds."""
        self._pending_lock = threading.RLock()
        """Guards `_conversations` and pending text; held briefly, so that the core loop may take it; taken last."""
        self._conversations: LruDict[str, _Conversation] = LruDict(MOST_SESSIONS)
        self.items = TaintedItems(self.store)

    # -- text that arrives ---------------------------------------------------------------------------------------

    def add_user_text(self, session_id: str, text: str) -> None:
        """Add a text of the user; the parts between marks of untrusted text are untrusted."""
        with self._pending_lock:
            self._conversation(session_id).pending.append(text)

    def add_quoted_answer(self, session_id: str, text: str) -> None:
        """Add an earlier answer of the agent as the caller quotes it; the caller may have invented it."""
        with self._pending_lock:
            self._conversation(session_id).pending_quotes.append(text)

    def save_answer(self, session_id: str, texts: Sequence[str]) -> None:
        """Store which untrusted text came before answers, for a next request that quotes them."""
        with self._lock:
            conversation = self._load(session_id)
            tainted = [*conversation.inherited, *([conversation.id] if conversation.sources else [])]
            for text in dict.fromkeys(texts):
                if text.strip():
                    self.store.save_answer(text, tainted)
            with self._pending_lock:
                self._conversations.pop(session_id, None)  # the next request is another session

    def share_with_subagent(self, child: str, parent: str) -> None:
        """Let the session of a subagent share the tracked text of its parent."""
        with self._pending_lock:
            self._conversations[child] = self._conversation(parent)

    def copy_session(self, session_id: str, copy: str) -> None:
        """Give the copy of a session its tracked texts; in a worker."""
        with self._lock:
            self.store.add(copy, self.store.texts(self._load(session_id).id))

    def is_tainted(self, session_id: str) -> bool:
        """Return whether a conversation or an item has untrusted text, or may have it (not loaded yet)."""
        conversation = self._conversations.get(session_id)
        if (
            not self.items.is_loaded
            or conversation is None
            or not conversation.loaded
            or conversation.pending
            or conversation.pending_quotes
        ):
            return True
        return bool(self.items.sources or conversation.sources)

    def count_untrusted(self, session_id: str) -> int:
        """Return the number of untrusted texts in a conversation; it never decreases."""
        with self._lock:
            return len(self._load(session_id).sources)

    def _conversation(self, session_id: str) -> _Conversation:
        with self._pending_lock:
            return self._conversations.use(session_id, lambda: _Conversation(session_id))

    def _make_room(self, conversation: _Conversation) -> None:
        """Drop the least recently used conversations, but not this one, from memory until their next use."""
        with self._pending_lock:
            sizes = {each.id: each.chars for each in self._conversations.values()}
            over = sum(sizes.values()) - MOST_IN_MEMORY
            for each in list(self._conversations.values()) if over > 0 else ():
                if over > 0 and each is not conversation and not each.pending and sizes.get(each.id):
                    over -= sizes.pop(each.id)
                    for key in [key for key, value in self._conversations.items() if value is each]:
                        del self._conversations[key]

    def _load(self, session_id: str) -> _Conversation:
        """Return a conversation with its stored text and its pending text indexed."""
        conversation = self._conversation(session_id)
        if not conversation.loaded:
            conversation.loaded = True
            for text in self.store.texts(conversation.id):
                if text.source:
                    self._index_untrusted(conversation, text)
                else:
                    self._index_user_text(conversation, text.text)
            self._make_room(conversation)
        self._process_pending(conversation)
        if conversation.sources and conversation.unsaved:
            self.store.add(conversation.id, conversation.unsaved)
            conversation.unsaved = []
        return conversation

    @staticmethod
    def _index_user_text(conversation: _Conversation, text: str) -> None:
        conversation.user.add(text)
        conversation.choices.add_user_text(text)

    def _process_pending(self, conversation: _Conversation) -> None:
        """Index the pending text; marked parts, and paragraphs copied from tainted items, are untrusted."""
        with self._pending_lock:
            pending, conversation.pending = conversation.pending, []
            quotes, conversation.pending_quotes = conversation.pending_quotes, []
        for text in quotes:
            sessions = self.store.sessions_before_answer(text)
            if sessions is None or not all([self._inherit(conversation, session_id) for session_id in sessions]):
                self._record_untrusted(conversation, TrackedText("an answer in the caller's history", text))
        for whole in pending:
            for piece in split_marked(whole):
                if piece.source is not None:
                    self._record_untrusted(conversation, TrackedText(piece.source, piece.text))
                    continue
                for paragraph in piece.text.split("\n\n"):
                    if (source := self.items.source_of_text(paragraph)) is not None:
                        self._record_untrusted(conversation, TrackedText(source, paragraph))
                    else:
                        self._index_user_text(conversation, paragraph)
                        conversation.unsaved.append(TrackedText("", paragraph[:MOST_CHARS]))

    def _inherit(self, conversation: _Conversation, session_id: str) -> bool:
        """Index the untrusted text of another session; return False when it is deleted."""
        if session_id in conversation.inherited:
            return True
        texts = [text for text in self.store.texts(session_id) if text.source]
        conversation.inherited[session_id] = None
        for text in texts:
            if conversation.chars <= MOST_UNTRUSTED:
                self._index_untrusted(conversation, text)
        return bool(texts)

    def _record_untrusted(self, conversation: _Conversation, text: TrackedText) -> None:
        if not text.source or not text.text.strip() or self._is_trusted(text.source):
            return
        if conversation.chars <= MOST_UNTRUSTED:
            self._index_untrusted(conversation, text)
            self.store.add(conversation.id, [*conversation.unsaved, text])
            conversation.unsaved = []
            self._make_room(conversation)

    def _is_trusted(self, source: str) -> bool:
        return any(fnmatchcase(source, glob) for glob in self._settings().trusted)

    def _index_untrusted(self, conversation: _Conversation, text: TrackedText) -> None:
        conversation.chars += len(text.text) if len(text.text) < MOST_CHARS else MOST_UNTRUSTED + 1
        conversation.untrusted.add(text.text[:MOST_CHARS], len(conversation.sources))
        conversation.untrusted.add_origin(text.source, len(conversation.sources))
        conversation.sources.append(text.source)
        conversation.untrusted_at = time.time()

    # -- before a call -------------------------------------------------------------------------------------------

    def check_call(self, call: CheckedCall) -> ApprovalRequest | None:
        """Return the approval request for the tainted values of a call, or None when it has none."""
        if call.effect.does == "reads":
            return None
        with self._lock:
            found = self._findings(call) if self._settings().ask else []
            if not found:
                return None
            conversation = self._conversation(call.session_id)
            values = [(f"{f.parameter}: {_short(f.value)}", self._source(conversation, f.number)) for f in found]
        rule = f"foreign_text:{call.name}:" + "; ".join(dict.fromkeys(value for value, _ in values))
        if any(_short(f.value) != f.value for f in found):  # the rule must cover the full values
            rule += " " + hashlib.sha256(json.dumps([f[:2] for f in found]).encode()).hexdigest()[:16]
        if self.store.is_allowed(rule):
            return None
        lines = [f"{value}   ({source})" for value, source in dict.fromkeys(values)]
        more = [f"… and {len(lines) - MOST_SHOWN} more"] if len(lines) > MOST_SHOWN else []
        shown = "\n".join([*lines[:MOST_SHOWN], *more])
        return ApprovalRequest(
            call.name,
            f"use {values[0][0].partition(': ')[2]}, which you did not write ({values[0][1]})",
            f"{call.name} with values from untrusted text, which you did not write:\n{shown}",
            rule,
            keep=lambda: self.store.allow(rule),
        )

    def _findings(self, call: CheckedCall) -> list[TaintFinding]:
        if call.effect.does == "reads":
            return []
        sources = self._sources(call.session_id)
        return (
            [] if sources is None else find_tainted_values(call.effect, call.arguments, call.fixed, sources, call.name)
        )

    def _sources(self, session_id: str) -> TaintSources | None:
        """Return the indexes of a conversation, or None when there is no untrusted text."""
        conversation = self._load(session_id)
        if not conversation.sources and not self.items.load():
            return None
        untrusted = CombinedIndex(
            conversation.untrusted, self.items.index, everything=conversation.chars > MOST_UNTRUSTED
        )
        return TaintSources(conversation.user, untrusted, bool(conversation.sources), conversation.choices)

    def _source(self, conversation: _Conversation, number: int) -> str:
        if number >= 0:
            return f"from {conversation.sources[number]}"
        if number < -1:
            return f"from {self.items.sources[-2 - number]}"
        return f"after text from {conversation.sources[-1]}" if conversation.sources else "from others"

    # -- after a call --------------------------------------------------------------------------------------------

    def is_known_text(self, effect: Effect, result: str, session_id: str) -> bool:
        """Return whether `add_result` has nothing to record: the fast path of almost every call."""
        is_own = effect.returns == "own" and effect.does != "runs" and not effect.place and TAG not in result
        if not is_own or self.is_tainted(session_id):
            return False
        self._conversations.touch(session_id)  # stays in memory
        return True

    def add_result(self, call: CheckedCall, result: str, *, ok: bool) -> str:
        """Record untrusted text of a result and tainted items of the call; return the result, marked."""
        effect = call.effect
        with self._lock:
            places = call.places(result)
            if effect.does in ("writes", "remembers") and ok:
                self._record_write(call, places)
            if effect.returns == "person":
                self.add_user_text(call.session_id, result)
                return result
            marked = [piece for piece in split_marked(result) if piece.source is not None]
            source = self._result_source(call, places)
            for piece in marked:
                self._record_untrusted(self._load(call.session_id), TrackedText(piece.source or "", piece.text))
            if effect.does == "runs" and (source or marked or self._is_copied(call)):
                self._record_command(
                    call, places, source or f"after text from {marked[0].source if marked else 'others'}"
                )
            if source:
                self._record_untrusted(self._load(call.session_id), TrackedText(source, result))
            if effect.returns == "records":
                self._conversation(call.session_id).choices.add_records(result, call.name)
            elif ok and not source and effect.does in ("writes", "sends") and effect is not GUESSED_SENDING:
                self._conversation(call.session_id).choices.add_created(result, call.arguments)
            return mark_untrusted(result, source) if source and effect.returns in ("foreign", "records") else result

    def add_recalled(self, session_id: str, text: str) -> None:
        """Record the lines of recalled text that come from tainted items."""
        with self._lock:
            for line in text.splitlines() if self.items.load() else ():
                if (source := self.items.source_of_text(line)) is not None:
                    self._record_untrusted(self._load(session_id), TrackedText(source, line))

    def mark_learned(self, session_id: str, name: str) -> None:
        """Mark an item that learns from a tainted conversation, such as a memory provider."""
        with self._lock:
            if (conversation := self._load(session_id)).sources:
                self.items.mark(
                    name, TrackedText(f"{name}, which learned after text from {conversation.sources[-1]}", "")
                )

    def mark_stored(self, session_id: str, path: Path, since: float) -> None:
        """Mark a file with the result of a call, when untrusted text arrived since the start of the call."""
        with self._lock:
            conversation = self._load(session_id)
            if conversation.sources and conversation.untrusted_at >= since:
                self.items.mark(str(path), TrackedText(f"{path}, from {conversation.sources[-1]}", ""))

    def source_of(self, name: str) -> str:
        """Return the source of a tainted item (a file, or `process:ID`); empty when it has none or is trusted."""
        with self._lock:
            source = self.items.source_of(name)
            return "" if self._is_trusted(source) else source

    def _is_copied(self, call: CheckedCall) -> bool:
        sources = self._sources(call.session_id)
        return sources is not None and is_copied(call.command, sources)

    def _result_source(self, call: CheckedCall, places: Sequence[str]) -> str:
        """Return the source of a result without marks; empty when the result is not untrusted."""
        if call.effect.returns in ("foreign", "others", "records"):
            return call.name
        globs = [str(Path(glob).expanduser()) for glob in (*self._places, *self._settings().places)]
        for place in places:
            if source := self.items.source_of(place) or (place if _matches(place, globs) else ""):
                return source
            kind, _, name = place.partition(":")
            if kind == "session" and name != call.session_id and any(text.source for text in self.store.texts(name)):
                return f"session {name}"
        if call.effect.does == "runs" and (source := self._command_source(call, call.folders(places), globs)):
            return source
        if places:
            return ""
        return f"{call.name}, asked with words of others" if self._findings(call) else ""

    def _command_source(self, call: CheckedCall, folders: Sequence[Path], globs: Sequence[str]) -> str:
        """Return the source of the untrusted text that a command fetches or reads; empty when it does neither."""
        command = call.command
        if call.reached:
            return f"{call.name}, which reached {call.reached}"
        if fetches(command):
            return f"{call.name}: {_short(command)}"
        for folder in folders:
            if source := self.items.source_in(command, folder):
                return source
            if any(_matches(path, globs) for path in find_paths(command, folder)):
                return f"{call.name}: {_short(command)}"
        conversation = self._conversation(call.session_id)
        if conversation.sources and conversation.untrusted_at >= call.since > 0:
            return f"{call.name}, while it read {conversation.sources[-1]}"
        return ""

    def _record_command(self, call: CheckedCall, places: Sequence[str], source: str) -> None:
        """Mark the files and processes of a command that fetched, read or contained untrusted text."""
        command = call.command
        folders = call.folders(places)
        named = dict.fromkeys(path for folder in folders for path in find_paths(command, folder))
        roots = dict.fromkeys(map(str, folders))
        roots |= dict.fromkeys(path for path in named if Path(path).is_dir() and Path(path) not in call.cwd.parents)
        written = [path for path in named if _is_newer(path, call.since)]
        # these may be in a sandbox or on another machine, or be written later
        written += [p for folder in folders for p in find_paths(command, folder, surely=True) if not Path(p).exists()]
        processes = [place for place in places if not place.startswith("/")]
        for item in dict.fromkeys([*processes, *find_changed(list(roots), call.since - COARSE_S), *written]):
            self.items.mark(item, TrackedText(f"{item}, {source}", ""))

    def _record_write(self, call: CheckedCall, places: Sequence[str]) -> None:
        """Mark the items that a call wrote untrusted text to."""
        sources = self._sources(call.session_id)
        if sources is None:
            return
        names = call.effect.decides if places else ()
        texts = [v for k, v in call.arguments.items() if isinstance(v, str) and k not in names]
        found = self._findings(call)
        if not found and not any(is_copied(text, sources) for text in texts):
            return
        conversation = self._conversation(call.session_id)
        origin = (
            self._source(conversation, found[0].number)
            if found
            else f"after text from {(conversation.sources or ['others'])[-1]}"
        )
        text = "\n".join(texts)
        tracked = TrackedText(f"{', '.join(places) or call.name}, {origin}", text)
        for item in places or [f"{call.name}: {_short(text)}"]:
            self.items.mark(item, tracked)
            logger.info("taint: item has untrusted text: %s: %s", origin, item)

    def resolve_effect(self, name: str, declared: Effect | None, *, own: bool) -> Effect:
        """Return the effect of a tool: set by the operator, declared by its owner, or guessed from its name.

        Args:
            name: the name of the tool.
            declared: the effect that its owner declares.
            own: whether the tool is built in; then it only reads unless it declares more.
        """
        effect = declared or (OWN if own else guess_effect(name))
        configured = self._settings().tools.get(name)
        return effect if configured is None else effect._replace(does=configured)


def _matches(path: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(path, glob) for glob in globs)


def _is_newer(path: str, since: float) -> bool:
    try:
        found = Path(path).stat()
    except OSError:
        return False
    return since > 0 and found.st_ctime >= since - COARSE_S and not S_ISDIR(found.st_mode)


def _short(text: str, limit: int = 160) -> str:
    return shorten(" ".join(text.split()), limit)
