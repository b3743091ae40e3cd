"""Whose words are whose, in every conversation and beyond it; and the question before a stranger's words act.

Strangers' text: what it touched, and what is asked before it acts. Rule: `rule`; state: `provenance`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from stat import S_ISDIR

from hermes_agent.contracts.tool import ApprovalRequest, Does, Effect
from hermes_agent.core.text import shorten
from hermes_agent.core.untrusted import TAG, mark_untrusted, split_marked
from hermes_agent.policy.taint_addresses import Address
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
from hermes_agent.policy.taint_words import UserChoices, WordIndex

logger = logging.getLogger(__name__)

MOST_SESSIONS = 512
"""Conversations whose words are in memory; those of others are read again when they go on."""
MOST_UNTRUSTED = 2_000_000
"""Characters of one conversation that are looked at word by word; with more, all that the person did not say asks."""
MOST_IN_MEMORY = 4_000_000
"""Characters of strangers' text of all conversations whose words are in memory: a million takes about 45 MB."""
COARSE_S = 0.02
"""How much the clock of files may be behind."""
MOST_SHOWN = 8
"""Values that a question shows."""


@dataclass(frozen=True, slots=True)
class TaintSettings:
    """The block `security.foreign_text` of the config."""

    ask: bool = True
    trusted: Sequence[str] = ()
    """Globs of sources whose text is no stranger's."""
    places: Sequence[str] = ()
    """Globs of files that others wrote."""
    tools: Mapping[str, Does] = field(default_factory=dict)
    """What a call does, by tool; instead of what its plugin says."""


@dataclass(slots=True)
class _Conversation:
    """What is known of one conversation."""

    id: str
    """The session that it is kept under: a sub-agent's is its parent's."""
    user: WordIndex = field(default_factory=WordIndex)
    untrusted: WordIndex = field(default_factory=WordIndex)
    choices: UserChoices = field(default_factory=UserChoices)
    pending: list[str] = field(default_factory=list)
    """By the person; not taken up yet."""
    unsaved: list[TrackedText] = field(default_factory=list)
    """Of the person; stored as soon as there is something foreign."""
    sources: list[str] = field(default_factory=list)
    pending_quotes: list[str] = field(default_factory=list)
    """What the caller says that the agent said; not taken up yet."""
    inherited: dict[str, None] = field(default_factory=dict)
    """The sessions in which that was said, with what was heard there."""
    chars: int = 0
    loaded: bool = False
    untrusted_at: float = 0.0
    """When a stranger's text came last."""


class TaintTracker:
    """Knows what the person said and what strangers wrote.

    `said`, `share` and `is_tainted` are quick; everything else is for workers.

    Args:
        settings: returns the settings as they are now.
        foreign_places: globs of files that others wrote, whatever the settings say (what was sent into chats).
    """

    def __init__(self, path: Path, settings: Callable[[], TaintSettings], foreign_places: Sequence[str] = ()) -> None:
        self.store = TaintStore(path)
        self._settings = settings
        self._places = tuple(foreign_places)
        self._lock = threading.RLock()
        """For workers: whoever has it reads, writes and indexes for seconds."""
        self._pending_lock = threading.RLock()
        """Of `_talks` and of what is said: held for an instant, so that the core loop may take it, and taken last."""
        self._conversations: OrderedDict[str, _Conversation] = OrderedDict()
        self.items = TaintedItems(self.store)

    # -- what is heard -------------------------------------------------------------------------------------------

    def add_user_text(self, session_id: str, text: str) -> None:
        """The person of a conversation said something; what stands between marks in it is a stranger's."""
        with self._pending_lock:
            self._conversation(session_id).pending.append(text)

    def add_quoted_answer(self, session_id: str, text: str) -> None:
        """The caller, who keeps the transcript, says that the agent said this earlier; it need not be so."""
        with self._pending_lock:
            self._conversation(session_id).pending_quotes.append(text)

    def save_answer(self, session_id: str, texts: Sequence[str]) -> None:
        """Keep for the caller's next request what was heard before an answer; for workers."""
        with self._lock:
            talk = self._load(session_id)
            heard = [*talk.inherited, *([talk.id] if talk.sources else [])]
            for text in dict.fromkeys(texts):
                if text.strip():
                    self.store.save_answer(text, heard)
            with self._pending_lock:
                self._conversations.pop(session_id, None)  # the next request is another session

    def share_with_subagent(self, child: str, parent: str) -> None:
        """What a sub-agent reads and what its parent does with it is one conversation."""
        with self._pending_lock:
            self._conversations[child] = self._conversation(parent)

    def is_tainted(self, session_id: str) -> bool:
        """Say whether strangers' text is known in a conversation, or anywhere, or whether nobody has looked yet."""
        talk = self._conversations.get(session_id)
        if not self.items.is_loaded or talk is None or not talk.loaded or talk.pending or talk.pending_quotes:
            return True
        return bool(self.items.sources or talk.sources)

    def count_untrusted(self, session_id: str) -> int:
        """Return how many texts of others are in a conversation; for workers. The number only grows."""
        with self._lock:
            return len(self._load(session_id).sources)

    def _conversation(self, session_id: str) -> _Conversation:
        with self._pending_lock:
            talk = self._conversations.get(session_id)
            if talk is None:
                talk = self._conversations[session_id] = _Conversation(session_id)
                while len(self._conversations) > MOST_SESSIONS:
                    self._conversations.popitem(last=False)
            self._conversations.move_to_end(session_id)
            return talk

    def _make_room(self, talk: _Conversation) -> None:
        """Let go of the conversations that were used longest ago, but this one: what was kept is read again."""
        with self._pending_lock:
            sizes = {each.id: each.chars for each in self._conversations.values()}
            over = sum(sizes.values()) - MOST_IN_MEMORY
            for each in list(self._conversations.values()) if over > 0 else ():
                if over > 0 and each is not talk and not each.pending and sizes.get(each.id):
                    over -= sizes.pop(each.id)
                    self._conversations = OrderedDict((k, v) for k, v in self._conversations.items() if v is not each)

    def _load(self, session_id: str) -> _Conversation:
        """Return a conversation with what was kept of it and what was said since."""
        talk = self._conversation(session_id)
        if not talk.loaded:
            talk.loaded = True
            for text in self.store.texts(talk.id):
                if text.source:
                    self._index_untrusted(talk, text)
                else:
                    self._index_user_text(talk, text.text)
            self._make_room(talk)
        self._process_pending(talk)
        if talk.sources and talk.unsaved:
            self.store.add(talk.id, talk.unsaved)
            talk.unsaved = []
        return talk

    @staticmethod
    def _index_user_text(talk: _Conversation, text: str) -> None:
        talk.user.add(text)
        talk.choices.add_user_text(text)

    def _process_pending(self, talk: _Conversation) -> None:
        """Take up what was said, without what no person wrote of it."""
        with self._pending_lock:
            said, talk.pending = talk.pending, []
            quoted, talk.pending_quotes = talk.pending_quotes, []
        for text in quoted:
            before = self.store.sessions_before_answer(text)
            if before is None or not all([self._inherit(talk, other) for other in before]):
                self._record_untrusted(talk, TrackedText("an answer in the caller's history", text))
        for whole in said:
            for piece in split_marked(whole):
                if piece.source is not None:
                    self._record_untrusted(talk, TrackedText(piece.source, piece.text))
                    continue
                for paragraph in piece.text.split("\n\n"):
                    if (source := self.items.source_of_text(paragraph)) is not None:
                        self._record_untrusted(talk, TrackedText(source, paragraph))
                    else:
                        self._index_user_text(talk, paragraph)
                        talk.unsaved.append(TrackedText("", paragraph[:MOST_CHARS]))

    def _inherit(self, talk: _Conversation, session_id: str) -> bool:
        """Take up what strangers said in another session, which stays kept there; false when it is gone."""
        if session_id in talk.inherited:
            return True
        texts = [text for text in self.store.texts(session_id) if text.source]
        talk.inherited[session_id] = None
        for text in texts:
            if talk.chars <= MOST_UNTRUSTED:
                self._index_untrusted(talk, text)
        return bool(texts)

    def _record_untrusted(self, talk: _Conversation, text: TrackedText) -> None:
        if not text.source or not text.text.strip() or self._is_trusted(text.source):
            return
        if talk.chars <= MOST_UNTRUSTED:
            self._index_untrusted(talk, text)
            self.store.add(talk.id, [*talk.unsaved, text])
            talk.unsaved = []
            self._make_room(talk)

    def _is_trusted(self, source: str) -> bool:
        return any(fnmatchcase(source, glob) for glob in self._settings().trusted)

    def _index_untrusted(self, talk: _Conversation, text: TrackedText) -> None:
        talk.chars += len(text.text) if len(text.text) < MOST_CHARS else MOST_UNTRUSTED + 1
        talk.untrusted.add(text.text[:MOST_CHARS], len(talk.sources))
        talk.untrusted.add_origin(text.source, len(talk.sources))
        talk.sources.append(text.source)
        talk.untrusted_at = time.time()

    # -- before a call -------------------------------------------------------------------------------------------

    def check_call(self, call: CheckedCall) -> ApprovalRequest | None:
        """Return what the person must be asked before a call; None: nothing of it is a stranger's."""
        if call.effect.does == "reads":
            return None
        with self._lock:
            found = self._findings(call) if self._settings().ask else []
            if not found:
                return None
            talk = self._conversation(call.session_id)
            said = [(f"{f.parameter}: {_short(f.value)}", self._source(talk, f.number)) for f in found]
        rule = f"foreign_text:{call.name}:" + "; ".join(dict.fromkeys(what for what, _ in said))
        if any(_short(f.value) != f.value for f in found):  # what was cut belongs to what is allowed
            rule += " " + hashlib.sha256(json.dumps([f[:2] for f in found]).encode()).hexdigest()[:16]
        if self.store.is_allowed(rule):
            return None
        lines = [f"{what}   ({source})" for what, source in dict.fromkeys(said)]
        more = [f"… and {len(lines) - MOST_SHOWN} more"] if len(lines) > MOST_SHOWN else []
        shown = "\n".join([*lines[:MOST_SHOWN], *more])
        return ApprovalRequest(
            call.name,
            f"use {said[0][0].partition(': ')[2]}, which you did not say ({said[0][1]})",
            f"{call.name} with values that come from text of others, not from you:\n{shown}",
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
        """Return whose words are whose; None where strangers wrote nothing."""
        talk = self._load(session_id)
        if not talk.sources and not self.items.load():
            return None
        foreign = _CombinedIndex(talk.untrusted, self.items.index, everything=talk.chars > MOST_UNTRUSTED)
        return TaintSources(talk.user, foreign, bool(talk.sources), talk.choices)

    def _source(self, talk: _Conversation, number: int) -> str:
        if number >= 0:
            return f"from {talk.sources[number]}"
        if number < -1:
            return f"from {self.items.sources[-2 - number]}"
        return f"after text from {talk.sources[-1]}" if talk.sources else "from others"

    # -- after a call --------------------------------------------------------------------------------------------

    def is_known_text(self, effect: Effect, result: str, session_id: str) -> bool:
        """Say whether there is nothing to note of a result (`took`); the quick way, for almost every call."""
        plain = effect.returns == "own" and effect.does != "runs" and not effect.place and TAG not in result
        if not plain or self.is_tainted(session_id):
            return False
        self._conversation(session_id)  # it is in use, and stays in memory
        return True

    def add_result(self, call: CheckedCall, result: str, *, ok: bool) -> str:
        """Note whose words a result is in, and what a call wrote; return the result, marked where it has to be."""
        effect = call.effect
        with self._lock:
            places = call.places(result)
            if effect.does in ("writes", "remembers") and ok:
                self._record_write(call, places)
            if effect.returns == "person":
                self.add_user_text(call.session_id, result)
                return result
            strange = [piece for piece in split_marked(result) if piece.source is not None]
            source = self._result_source(call, places)
            for piece in strange:
                self._record_untrusted(self._load(call.session_id), TrackedText(piece.source or "", piece.text))
            if effect.does == "runs" and (source or strange or self._is_copied(call)):
                self._record_command(
                    call, places, source or f"after text from {strange[0].source if strange else 'others'}"
                )
            if source:
                self._record_untrusted(self._load(call.session_id), TrackedText(source, result))
            if effect.returns == "records":
                self._conversation(call.session_id).choices.add_records(result, call.name)
            elif ok and not source and effect.does in ("writes", "sends") and effect is not GUESSED_SENDING:
                self._conversation(call.session_id).choices.add_created(result, call.arguments)
            return mark_untrusted(result, source) if source and effect.returns in ("foreign", "records") else result

    def add_recalled(self, session_id: str, text: str) -> None:
        """A conversation is told what is remembered; lines of it may have been strangers' before."""
        with self._lock:
            for line in text.splitlines() if self.items.load() else ():
                if (source := self.items.source_of_text(line)) is not None:
                    self._record_untrusted(self._load(session_id), TrackedText(source, line))

    def mark_learned(self, session_id: str, name: str) -> None:
        """Something outside learns from a conversation: what it tells later may be strangers' words."""
        with self._lock:
            if (talk := self._load(session_id)).sources:
                self.items.mark(name, TrackedText(f"{name}, which learned after text from {talk.sources[-1]}", ""))

    def mark_stored(self, session_id: str, path: Path, since: float) -> None:
        """The result of a call that began then is in a file: it has a stranger's words if one came meanwhile."""
        with self._lock:
            talk = self._load(session_id)
            if talk.sources and talk.untrusted_at >= since:
                self.items.mark(str(path), TrackedText(f"{path}, from {talk.sources[-1]}", ""))

    def source_of(self, name: str) -> str:
        """Return whose words a thing has: a file, or `process:ID`; empty when they are nobody's, or trusted."""
        with self._lock:
            source = self.items.source_of(name)
            return "" if self._is_trusted(source) else source

    def _is_copied(self, call: CheckedCall) -> bool:
        sources = self._sources(call.session_id)
        return sources is not None and is_copied(call.command, sources)

    def _result_source(self, call: CheckedCall, places: Sequence[str]) -> str:
        """Return where a result without marks comes from; empty when it is nobody's."""
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
        """Return where the words come from that a command brings or reads; empty when it does neither."""
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
        talk = self._conversation(call.session_id)
        if talk.sources and talk.untrusted_at >= call.since > 0:
            return f"{call.name}, while it read {talk.sources[-1]}"
        return ""

    def _record_command(self, call: CheckedCall, places: Sequence[str], source: str) -> None:
        """Keep what a command wrote that brought or read strangers' words, or was given them."""
        command = call.command
        folders = call.folders(places)
        named = dict.fromkeys(path for folder in folders for path in find_paths(command, folder))
        roots = dict.fromkeys(map(str, folders))
        roots |= dict.fromkeys(path for path in named if Path(path).is_dir() and Path(path) not in call.cwd.parents)
        wrote = [path for path in named if _is_newer(path, call.since)]
        # in a sandbox, on another machine, or only later
        wrote += [p for folder in folders for p in find_paths(command, folder, surely=True) if not Path(p).exists()]
        processes = [place for place in places if not place.startswith("/")]
        for thing in dict.fromkeys([*processes, *find_changed(list(roots), call.since - COARSE_S), *wrote]):
            self.items.mark(thing, TrackedText(f"{thing}, {source}", ""))

    def _record_write(self, call: CheckedCall, places: Sequence[str]) -> None:
        """Keep what a call wrote when it has a stranger's words."""
        sources = self._sources(call.session_id)
        if sources is None:
            return
        names = call.effect.decides if places else ()
        texts = [v for k, v in call.arguments.items() if isinstance(v, str) and k not in names]
        found = self._findings(call)
        if not found and not any(is_copied(text, sources) for text in texts):
            return
        talk = self._conversation(call.session_id)
        origin = self._source(talk, found[0].number) if found else f"after text from {(talk.sources or ['others'])[-1]}"
        text = "\n".join(texts)
        kept = TrackedText(f"{', '.join(places) or call.name}, {origin}", text)
        for thing in places or [f"{call.name}: {_short(text)}"]:
            self.items.mark(thing, kept)
            logger.info("%s has words of others (%s)", thing, origin)

    def resolve_effect(self, name: str, declared: Effect | None, *, own: bool) -> Effect:
        """Return what a call of a tool does: what the operator says, its owner, or its name.

        Args:
            own: it is the agent's, and does nothing where it does not say so.
        """
        effect = declared or (OWN if own else guess_effect(name))
        wished = self._settings().tools.get(name)
        return effect if wished is None else effect._replace(does=wished)


class _CombinedIndex(WordIndex):
    """The foreign text of a conversation, and what was kept of such text elsewhere."""

    def __init__(self, here: WordIndex, kept: WordIndex, *, everything: bool) -> None:
        self._parts = (here, kept)
        self._everything = everything

    def find(self, run: Sequence[str]) -> int | None:
        number = self._first(part.find(run) for part in self._parts)
        return -1 if number is None and self._everything and run else number

    def address_source(self, address: Address) -> int | None:
        return self._first(part.address_source(address) for part in self._parts)

    def site_source(self, site: str) -> int | None:
        number = self._first(part.site_source(site) for part in self._parts)
        return -1 if number is None and self._everything else number

    @staticmethod
    def _first(found: Iterable[int | None]) -> int | None:
        return next((n for n in found if n is not None), None)


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
