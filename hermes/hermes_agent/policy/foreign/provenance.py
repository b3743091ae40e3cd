"""Whose words are whose, in every conversation and beyond it; and the question before a stranger's words act."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from hermes_agent.contracts.tool import ApprovalRequest, Does, Effect
from hermes_agent.core.foreign import TAG, fenced, pieces
from hermes_agent.policy.foreign.addresses import Address, addresses
from hermes_agent.policy.foreign.keeping import MOST_CHARS, Keeping, Text
from hermes_agent.policy.foreign.rule import Finding, Sources, findings, is_copied
from hermes_agent.policy.foreign.words import MOST_RUN, Index, values, words

__all__ = ["Called", "ForeignSettings", "Provenance", "guessed"]

logger = logging.getLogger(__name__)

MOST_SESSIONS = 512
"""Conversations whose words are in memory; those of others are read again when they go on."""
MOST_FOREIGN = 2_000_000
"""Characters of one conversation that are looked at word by word; with more, all that the person did not say asks."""
MOST_IN_MEMORY = 4_000_000
"""Characters of strangers' text of all conversations whose words are in memory: a million takes about 45 MB."""
MOST_SHOWN = 8
"""Values that a question shows."""
READING = frozenset(
    [
        "check",
        "count",
        "describe",
        "fetch",
        "find",
        "get",
        "info",
        "inspect",
        "list",
        "lookup",
        "preview",
        "query",
        "read",
        "recall",
        "search",
        "show",
        "status",
        "view",
    ]
)
FETCHING = frozenset(
    [
        "aria2c",
        "clone",
        "curl",
        "fetch",
        "lynx",
        "nc",
        "netcat",
        "pull",
        "rsync",
        "scp",
        "sftp",
        "ssh",
        "telnet",
        "w3m",
        "wget",
    ]
)
"""Words of a command whose output others may have written."""


@dataclass(frozen=True, slots=True)
class ForeignSettings:
    """The block `security.foreign_text` of the config."""

    ask: bool = True
    trusted: Sequence[str] = ()
    """Globs of sources whose text is no stranger's."""
    places: Sequence[str] = ()
    """Globs of files that others wrote."""
    tools: Mapping[str, Does] = field(default_factory=dict)
    """What a call does, by tool; instead of what its plugin says."""


class Called(NamedTuple):
    """A call of a tool."""

    name: str
    effect: Effect
    schema: Mapping[str, Any]
    arguments: Mapping[str, Any]
    session_id: str
    cwd: Path
    """What a path among the arguments is relative to."""

    def places(self, result: str) -> list[str]:
        """Return the files that it is about, resolved."""
        place = self.effect.place
        if callable(place):
            return list(dict.fromkeys(place(self.arguments, result)))
        value = self.arguments.get(place) if place else None
        return [str((self.cwd / Path(str(value)).expanduser()).resolve())] if value else []

    @property
    def fixed(self) -> frozenset[str]:
        """The parameters whose values the schema lists."""
        properties = (self.schema.get("parameters") or {}).get("properties") or {}
        return frozenset(n for n, p in properties.items() if isinstance(p, Mapping) and p.get("enum"))


@dataclass(slots=True)
class _Talk:
    """What is known of one conversation."""

    id: str
    """The session that it is kept under: a sub-agent's is its parent's."""
    person: Index = field(default_factory=Index)
    foreign: Index = field(default_factory=Index)
    said: list[str] = field(default_factory=list)
    """By the person; not taken up yet."""
    unsaved: list[Text] = field(default_factory=list)
    """Of the person; stored as soon as there is something foreign."""
    sources: list[str] = field(default_factory=list)
    waiting: list[tuple[str, int]] = field(default_factory=list)
    """Foreign texts that are not taken up yet, with the number of their source."""
    chars: int = 0
    loaded: bool = False


class Provenance:
    """Knows what the person said and what strangers wrote.

    `said`, `share` and `is_tainted` are quick; everything else is for workers.

    Args:
        settings: returns the settings as they are now.
        foreign_places: globs of files that others wrote, whatever the settings say (what was sent into chats).
    """

    def __init__(self, path: Path, settings: Callable[[], ForeignSettings], foreign_places: Sequence[str] = ()) -> None:
        self.keeping = Keeping(path)
        self._settings = settings
        self._places = tuple(foreign_places)
        self._lock = threading.RLock()
        """For workers: whoever has it reads, writes and indexes for seconds."""
        self._listening = threading.RLock()
        """Of `_talks` and of what is said: held for an instant, so that the core loop may take it, and taken last."""
        self._talks: OrderedDict[str, _Talk] = OrderedDict()
        self._things: dict[str, Text] | None = None
        self._kept = Index()
        self._kept_sources: list[str] = []

    # -- what is heard -------------------------------------------------------------------------------------------

    def said(self, session_id: str, text: str) -> None:
        """The person of a conversation said something; what stands between marks in it is a stranger's."""
        with self._listening:
            self._talk(session_id).said.append(text)

    def share(self, child: str, parent: str) -> None:
        """What a sub-agent reads and what its parent does with it is one conversation."""
        with self._listening:
            self._talks[child] = self._talk(parent)

    def is_tainted(self, session_id: str) -> bool:
        """Say whether strangers' text is known in a conversation, or anywhere, or whether nobody has looked yet."""
        talk = self._talks.get(session_id)
        if self._things is None or talk is None or not talk.loaded or talk.said:
            return True
        return bool(self._kept_sources or talk.sources)

    def taint(self, session_id: str) -> int:
        """Return how many texts of others are in a conversation; for workers. The number only grows."""
        with self._lock:
            return len(self._ready(session_id).sources)

    def _talk(self, session_id: str) -> _Talk:
        with self._listening:
            talk = self._talks.get(session_id)
            if talk is None:
                talk = self._talks[session_id] = _Talk(session_id)
                while len(self._talks) > MOST_SESSIONS:
                    self._talks.popitem(last=False)
            self._talks.move_to_end(session_id)
            return talk

    def _make_room(self, talk: _Talk) -> None:
        """Let go of the conversations that were used longest ago, but this one: what was kept is read again."""
        with self._listening:
            sizes = {each.id: each.chars for each in self._talks.values()}
            over = sum(sizes.values()) - MOST_IN_MEMORY
            for each in list(self._talks.values()) if over > 0 else ():
                if over > 0 and each is not talk and not each.said and sizes.get(each.id):
                    over -= sizes.pop(each.id)
                    self._talks = OrderedDict((k, v) for k, v in self._talks.items() if v is not each)

    def _ready(self, session_id: str) -> _Talk:
        """Return a conversation with what was kept of it and what was said since."""
        talk = self._talk(session_id)
        if not talk.loaded:
            talk.loaded = True
            for text in self.keeping.texts(talk.id):
                if text.source:
                    self._take_up(talk, text)
                else:
                    talk.person.add(text.text)
            self._make_room(talk)
        with self._listening:
            said, talk.said = talk.said, []
        for whole in said:
            for piece in pieces(whole):
                if piece.source is not None:
                    self._heard(talk, Text(piece.source, piece.text))
                    continue
                for paragraph in piece.text.split("\n\n"):
                    if (source := self._kept_source(paragraph)) is not None:
                        self._heard(talk, Text(source, paragraph))
                    else:
                        talk.person.add(paragraph)
                        talk.unsaved.append(Text("", paragraph[:MOST_CHARS]))
        if talk.sources and talk.unsaved:
            self.keeping.add(talk.id, talk.unsaved)
            talk.unsaved = []
        return talk

    def _heard(self, talk: _Talk, text: Text) -> None:
        if not text.text.strip() or any(fnmatchcase(text.source, glob) for glob in self._settings().trusted):
            return
        if talk.chars <= MOST_FOREIGN:
            self._take_up(talk, text)
            self.keeping.add(talk.id, [*talk.unsaved, text])
            talk.unsaved = []
            self._make_room(talk)

    def _take_up(self, talk: _Talk, text: Text) -> None:
        talk.chars += len(text.text) if len(text.text) < MOST_CHARS else MOST_FOREIGN + 1
        talk.waiting.append((text.text[:MOST_CHARS], len(talk.sources)))
        talk.sources.append(text.source)

    # -- before a call -------------------------------------------------------------------------------------------

    def question(self, call: Called) -> ApprovalRequest | None:
        """Return what the person must be asked before a call; None: nothing of it is a stranger's."""
        if call.effect.does == "reads":
            return None
        with self._lock:
            found = self._findings(call) if self._settings().ask else []
            if not found:
                return None
            talk = self._talk(call.session_id)
            said = [(f"{f.parameter}: {_short(f.value)}", self._source(talk, f.number)) for f in found]
        rule = f"foreign_text:{call.name}:" + "; ".join(dict.fromkeys(what for what, _ in said))
        if any(_short(f.value) != f.value for f in found):  # what was cut belongs to what is allowed
            rule += " " + hashlib.sha256(json.dumps([f[:2] for f in found]).encode()).hexdigest()[:16]
        if self.keeping.is_allowed(rule):
            return None
        lines = [f"{what}   ({source})" for what, source in dict.fromkeys(said)]
        more = [f"… and {len(lines) - MOST_SHOWN} more"] if len(lines) > MOST_SHOWN else []
        shown = "\n".join([*lines[:MOST_SHOWN], *more])
        return ApprovalRequest(
            call.name,
            f"use {said[0][0].partition(': ')[2]}, which you did not say ({said[0][1]})",
            f"{call.name} with values that come from text of others, not from you:\n{shown}",
            rule,
            keep=lambda: self.keeping.allow(rule),
        )

    def _findings(self, call: Called) -> list[Finding]:
        if call.effect.does == "reads":
            return []
        sources = self._sources(call.session_id)
        return [] if sources is None else findings(call.effect, call.arguments, call.fixed, sources)

    def _sources(self, session_id: str) -> Sources | None:
        """Return whose words are whose; None where strangers wrote nothing."""
        talk = self._ready(session_id)
        self._load_things()
        if not talk.sources and not self._kept:
            return None
        waiting, talk.waiting = talk.waiting, []
        for text, number in waiting:
            talk.foreign.add(text, number)
            for _, address in addresses(talk.sources[number]):
                talk.foreign.hear_from(address, number)
        foreign = _Both(talk.foreign, self._kept, everything=talk.chars > MOST_FOREIGN)
        return Sources(talk.person, foreign, bool(talk.sources))

    def _source(self, talk: _Talk, number: int) -> str:
        if number >= 0:
            return f"from {talk.sources[number]}"
        if number < -1:
            return f"from {self._kept_sources[-2 - number]}"
        return f"after text from {talk.sources[-1]}" if talk.sources else "from others"

    # -- after a call --------------------------------------------------------------------------------------------

    def is_plain(self, effect: Effect, result: str, session_id: str) -> bool:
        """Say whether there is nothing to note of a result (`took`); the quick way, for almost every call."""
        plain = effect.returns == "own" and effect.does != "runs" and not effect.place and TAG not in result
        if not plain or self.is_tainted(session_id):
            return False
        self._talk(session_id)  # it is in use, and stays in memory
        return True

    def took(self, call: Called, result: str, *, ok: bool) -> str:
        """Note whose words a result is in, and what a call wrote; return the result, marked where it has to be."""
        effect = call.effect
        with self._lock:
            places = call.places(result)
            if effect.does in ("writes", "remembers") and ok:
                self._touched(call, places)
            if effect.returns == "person":
                self.said(call.session_id, result)
                return result
            strange = [piece for piece in pieces(result) if piece.source is not None]
            source = "" if strange else self._strange(call, places)
            for piece in strange:
                self._heard(self._ready(call.session_id), Text(piece.source or "", piece.text))
            if source:
                self._heard(self._ready(call.session_id), Text(source, result))
            return fenced(result, source) if source and effect.returns == "foreign" else result

    def _strange(self, call: Called, places: Sequence[str]) -> str:
        """Return where a result without marks comes from; empty when it is nobody's."""
        if call.effect.returns in ("foreign", "others"):
            return call.name
        if places:
            things = self._load_things()
            globs = [str(Path(glob).expanduser()) for glob in (*self._places, *self._settings().places)]
            others = [place for place in places if place in things or any(fnmatchcase(place, glob) for glob in globs)]
            return next((things[place].source if place in things else place for place in others), "")
        if call.effect.does == "runs":
            command = " ".join(str(v) for v in call.arguments.values() if isinstance(v, str))
            if FETCHING.intersection(words(command)) or any("://" in value for value in values(command)):
                return f"{call.name}: {_short(command)}"
        return f"{call.name}, asked with words of others" if self._findings(call) else ""

    def _touched(self, call: Called, places: Sequence[str]) -> None:
        """Keep what a call wrote when it has a stranger's words."""
        sources = self._sources(call.session_id)
        if sources is None:
            return
        names = call.effect.decides if places else ()
        texts = [v for k, v in call.arguments.items() if isinstance(v, str) and k not in names]
        found = self._findings(call)
        if not found and not any(is_copied(text, sources) for text in texts):
            return
        talk = self._talk(call.session_id)
        origin = self._source(talk, found[0].number) if found else f"after text from {(talk.sources or ['others'])[-1]}"
        text = "\n".join(texts)
        kept = Text(f"{', '.join(places) or call.name}, {origin}", text)
        for thing in places or [f"{call.name}: {_short(text)}"]:
            self.keeping.touch(thing, kept)
            self._load_things()[thing] = kept
            logger.info("%s has words of others (%s)", thing, origin)
        self._index(kept)

    def _load_things(self) -> dict[str, Text]:
        if self._things is None:
            self._things = self.keeping.things()
            for kept in self._things.values():
                self._index(kept)
        return self._things

    def _kept_source(self, text: str) -> str | None:
        """Return what strangers' text was written to, when most of a text is from there: a prompt, a skill."""
        self._load_things()
        said = words(text) if self._kept else []
        runs = [self._kept.find(said[i : i + MOST_RUN]) for i in range(len(said) - MOST_RUN + 1)]
        known = [number for number in runs if number is not None]
        return self._kept_sources[-2 - known[0]] if 2 * len(known) > len(runs) else None

    def _index(self, kept: Text) -> None:
        self._kept.add(kept.text, -2 - len(self._kept_sources))
        self._kept_sources.append(kept.source)

    def effect(self, name: str, declared: Effect | None, *, own: bool) -> Effect:
        """Return what a call of a tool does: what the operator says, its owner, or its name.

        Args:
            own: it is the agent's, and does nothing where it does not say so.
        """
        effect = declared or (OWN if own else guessed(name))
        wished = self._settings().tools.get(name)
        return effect if wished is None else effect._replace(does=wished)


OWN = Effect("reads")


@functools.lru_cache(maxsize=1024)
def guessed(name: str) -> Effect:
    """Return the effect of a plugin's tool that declares none: names that read, read what others wrote; others send."""
    if READING.intersection(name.lower().replace("-", "_").split("_")):
        return GUESSED_READING
    return GUESSED_SENDING


GUESSED_READING = Effect("reads", returns="others")
GUESSED_SENDING = Effect("sends")


class _Both(Index):
    """The foreign text of a conversation, and what was kept of such text elsewhere."""

    def __init__(self, here: Index, kept: Index, *, everything: bool) -> None:
        self._parts = (here, kept)
        self._everything = everything

    def find(self, run: Sequence[str]) -> int | None:
        number = self._first(part.find(run) for part in self._parts)
        return -1 if number is None and self._everything and run else number

    def giver(self, address: Address) -> int | None:
        return self._first(part.giver(address) for part in self._parts)

    def site_giver(self, site: str) -> int | None:
        number = self._first(part.site_giver(site) for part in self._parts)
        return -1 if number is None and self._everything else number

    @staticmethod
    def _first(found: Iterable[int | None]) -> int | None:
        return next((n for n in found if n is not None), None)


def _short(text: str, limit: int = 160) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
