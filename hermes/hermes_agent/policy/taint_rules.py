"""A call of a tool, as far as it matters whose words it has.

What a call of a tool does that does not say so: a plugin's, by its name.

Which values of a call come from strangers' text and not from the person. Pure.

The person's own words are trusted wherever they appear. Of the rest, these count as foreign:

- what a stranger's text says and the person does not: a short argument as a whole, or a part of it that is a run of
  words or a number; in what is run, every value that has several parts (`host.example/x.sh`), wherever it stands;
- once strangers' text is in the conversation: every address (mail, URL, host, remote, chat, account, phone number) and
  every bare number given as a text that the person did not say, in whatever way the model came to it, spelled out or
  decoded. Addresses are compared part by part (`addresses`): what the person named is named with its host, port, user
  and path.

A long argument of a tool that writes or sends is content, and so is one that its author does not count among those that
decide: its addresses alone are looked at when it is sent. What the person chose without saying it is theirs (`chosen`).
What is remembered for later turns must be in words of the person for the larger part.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hermes_agent.contracts.tool import Effect
from hermes_agent.policy.taint_addresses import Address, find_addresses, parent_hosts, parse_address
from hermes_agent.policy.taint_words import UserChoices, WordIndex, is_number, normalize, split_values, split_words


class CheckedCall(NamedTuple):
    """A call of a tool."""

    name: str
    effect: Effect
    schema: Mapping[str, Any]
    arguments: Mapping[str, Any]
    session_id: str
    cwd: Path
    """What a path among the arguments is relative to."""
    since: float = 0.0
    """When it began, by the clock of files."""
    reached: str = ""
    """A host that it reached, if the sandbox knows."""

    def places(self, result: str) -> list[str]:
        """Return the files that it is about, resolved; of a command the folder in which it stood and its process."""
        place = self.effect.place
        if callable(place):
            return list(dict.fromkeys(place(self.arguments, result)))
        value = self.arguments.get(place) if place else None
        return [str((self.cwd / Path(str(value)).expanduser()).resolve())] if value else []

    @property
    def command(self) -> str:
        """What it runs, with what it is given beside."""
        return "\n".join(str(v) for v in self.arguments.values() if isinstance(v, str))

    def folders(self, places: Sequence[str]) -> list[Path]:
        """Return the folders in which a command stood."""
        return list(dict.fromkeys([self.cwd, *(Path(place) for place in places if place.startswith("/"))]))

    @property
    def fixed(self) -> frozenset[str]:
        """The parameters whose values the schema lists."""
        properties = (self.schema.get("parameters") or {}).get("properties") or {}
        defined = (self.schema.get("parameters") or {}).get("$defs") or {}
        return frozenset(n for n, p in properties.items() if isinstance(p, Mapping) and _is_listed(p, defined))


def _is_listed(schema: Mapping[str, Any], defined: Mapping[str, Any]) -> bool:
    """Say whether a schema lists its values, itself, where it refers to, or in the one type that it allows."""
    found = defined.get(str(schema.get("$ref", "")).rpartition("/")[2], schema)
    if isinstance(one := found.get("allOf"), list) and len(one) == 1:
        return _is_listed(one[0], {})
    return bool(found.get("enum"))


READING_VERBS = frozenset(
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

OWN = Effect("reads")
"""Of the agent's own tools, which say what they do."""


@functools.lru_cache(maxsize=1024)
def guess_effect(name: str) -> Effect:
    """Return the effect of a plugin's tool that declares none: names that read, read what others wrote; others send."""
    if READING_VERBS.intersection(name.lower().replace("-", "_").split("_")):
        return GUESSED_READING
    return GUESSED_SENDING


GUESSED_READING = Effect("reads", returns="others")
GUESSED_SENDING = Effect("sends")


LONG = 8
"""Words of the longest argument that is no content."""
TELLING = 5
"""Letters of the shortest word that says something about where a remembered text comes from."""
_NETWORK = re.compile(
    r"\b(?:aiohttp|aria2c|clone|curl|dig|docker|drill|fetch|ftp|getaddrinfo|getent|gethostbyname|git|host|https?|httpx"
    r"|lynx|mailx?|msmtp|mtr|mutt|nc|ncat|netcat|nslookup|ping6?|pull|push|rclone|remote|requests|resolvectl|rsync|scp"
    r"|sendmail|sftp|socat|socket|ssh|submodule|telnet|tftp|traceroute|url(?:lib|open)|w3m|websockets?|wget|whois|xh)\b",
    re.IGNORECASE,
)
"""Words of what reaches others: names in such a command are names of hosts."""
_JOINED = re.compile(r"(?<=[\w/=.:-])[\"'`\\]+(?=[\w$%/])")
"""Quotes inside of a word, which a shell leaves out."""
_CHAT = re.compile(
    r"(?:(?:bluebubbles|dingtalk|discord|email|feishu|irc|line|matrix|mattermost|messenger|ntfy|qqbot|signal|slack|sms"
    r"|teams|telegram|wecom|weixin|whatsapp|xmpp|zulip):(?!//)|[@#!](?=\w))\S+",
    re.IGNORECASE,
)


class TaintFinding(NamedTuple):
    """A value of a call that comes from strangers."""

    parameter: str
    value: str
    number: int
    """Of the foreign text that has it; -1 when none has it word by word."""


class TaintSources(NamedTuple):
    """Whose words are whose."""

    person: WordIndex
    foreign: WordIndex
    """What strangers wrote in this conversation, or what was kept of it elsewhere."""
    here: bool
    """Whether strangers' text is in this conversation."""
    chosen: UserChoices
    """What the person chose without saying it."""

    def find_source(self, run: Sequence[str]) -> int | None:
        """Return the number of the foreign text that has a run which the person did not say; None: there is none."""
        number = self.foreign.find(run)
        if number is None:
            return None
        if run in self.person and not _could_be_chance(run):
            return None
        return number


def find_tainted_values(
    effect: Effect, arguments: Mapping[str, Any], fixed: frozenset[str], sources: TaintSources, tool: str = ""
) -> list[TaintFinding]:
    """Return the values of a call that its person must be asked about.

    Args:
        fixed: parameters whose values the schema lists.
    """
    if effect.does == "reads":
        return []
    found: dict[tuple[str, str], TaintFinding] = {}
    inside = [(effect.decides[0], name) for name in effect.named(arguments)] if effect.named else []
    for parameter, value in (*_leaf_values(arguments), *inside):
        top = parameter.partition(".")[0]
        beside = bool(effect.decides) and top not in effect.decides
        if top in fixed or (beside and effect.does != "sends"):
            continue
        text = str(value)
        if effect.does == "opens":
            looked = list(_opened(text, sources))
        elif effect.does == "remembers":
            looked = [*_addresses(text, sources), *_chats(text, sources), *_remembered(text, sources)]
        elif effect.does == "runs":
            networked = _NETWORK.search(text) is not None
            looked = [*_addresses(_JOINED.sub("", text), sources, networked=networked), *_run(text, sources)]
        else:
            content = beside or len(split_words(text)) > LONG
            looked = [] if content and effect.does == "writes" else [*_addresses(text, sources)]
            looked += [] if content else _chats(text, sources)
            if not content and not sources.chosen.covers(text, sources.person, tool):
                looked += _decisive(text, sources, isinstance(value, str))
        for said, number in looked:
            found.setdefault((parameter, normalize(said)), TaintFinding(parameter, said, number))
    return list(found.values())


def is_copied(text: str, sources: TaintSources) -> bool:
    """Say whether a stored text has four words in a row, or a value, that a stranger said and the person did not."""
    return any(len(run) >= 4 or _is_pointed(run) for run, _ in _parts(split_words(text), sources))


Looked = Iterator[tuple[str, int]]


def _addresses(text: str, sources: TaintSources, *, networked: bool = False) -> Looked:
    for said, address in find_addresses(text, networked=networked):
        if sources.person.address_source(address) is None:
            number = _address_source(address, said, sources)
            if number is not None or sources.here:
                yield said, -1 if number is None else number
    for value in split_values(text):
        run = split_words(value)
        if is_number(value) and run not in sources.person:
            number = sources.foreign.find(run)
            if number is not None or sources.here:
                yield value, -1 if number is None else number


def _address_source(address: Address, said: str, sources: TaintSources) -> int | None:
    """Return the number of the foreign text that has an address, or a host that it lies below."""
    known = (sources.foreign.address_source(each) for each in (address, *parent_hosts(address)))
    return next((number for number in known if number is not None), sources.foreign.find(split_words(said)))


def _chats(text: str, sources: TaintSources) -> Looked:
    """Yield a short argument that names a chat, by platform or sign, which the person did not name."""
    if _CHAT.fullmatch(text.strip()):
        chat = split_words(text.rpartition(":")[2] if text.count(":") == 1 else text.partition(":")[2] or text)
        number = sources.foreign.find(chat)
        if chat not in sources.person and (number is not None or sources.here):
            yield text.strip(), -1 if number is None else number


def _decisive(text: str, sources: TaintSources, is_text: bool) -> Looked:
    run = split_words(text)
    number = sources.find_source(run) if run else None
    if number is not None:
        yield text.strip(), number
    elif run not in sources.person:
        if is_text and sources.here and len(run) == 1 and run[0].isdecimal():
            yield text.strip(), -1
        for part, number in _parts(run, sources):
            if len(part) > 1 or _is_pointed(part):
                yield text.strip(), number
                return


def _run(text: str, sources: TaintSources) -> Looked:
    run = split_words(text)
    if len(run) <= LONG:
        yield from _decisive(text, sources, is_text=False)
        return
    for value in split_values(text):
        part = split_words(value)
        if len(part) > 1 and (number := sources.find_source(part)) is not None:
            yield value, number
    yield from ((" ".join(p), n) for p, n in _parts(run, sources) if len(p) > 2)


def _remembered(text: str, sources: TaintSources) -> Looked:
    yield from _run(text, sources)
    telling = {w for w in split_words(text) if len(w) >= TELLING and (w,) not in sources.person}
    theirs = {w: n for w in sorted(telling) if (n := sources.foreign.find((w,))) is not None}
    if len(theirs) > 1 and 2 * len(theirs) > len(telling):
        yield " ".join(text.split()), next(iter(theirs.values()))


def _opened(text: str, sources: TaintSources) -> Looked:
    """An address that a person or a page gave may be opened; one that was made up may carry words out.

    It may be made up where the person named the host and no stranger's text is from its site or about it; whoever has
    a host that nobody named may be the stranger, and learns all that the address says.
    """
    whole = parse_address(text)
    for said, address in [(text, whole)] if whole is not None else find_addresses(text, networked=True):
        address = address._replace(query=address.query.partition("#")[0])
        if sources.person.address_source(address) is not None or sources.foreign.address_source(address) is not None:
            continue
        number = sources.foreign.site_source(address.site)
        if number is None:
            root = address._replace(path="", query="")
            if not sources.here or sources.person.address_source(root) is not None:
                continue
        yield said, -1 if number is None else number


def _parts(run: Sequence[str], sources: TaintSources) -> Iterator[tuple[Sequence[str], int]]:
    """Yield the longest runs that strangers brought; words that the person said one by one are no stranger's."""
    begin = 0
    while begin < len(run):
        end = begin
        while end < len(run) and run[begin : end + 1] in sources.foreign:
            end += 1
        part = run[begin:end]
        number = sources.find_source(part) if part else None
        if number is not None and not all((w,) in sources.person and not _could_be_chance((w,)) for w in part):
            yield part, number
        begin = max(end, begin + 1)


def _could_be_chance(run: Sequence[str]) -> bool:
    """Say whether this is so short a number that the person may have meant something else by it."""
    return len(run) == 1 and run[0].isdecimal() and len(run[0]) < 4


def _is_pointed(run: Sequence[str]) -> bool:
    """Say whether a run is a value rather than prose: a number, or a name with one in it."""
    return any(len(w) > 2 and any(c.isdigit() for c in w) for w in run)


def _leaf_values(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaf_values(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaf_values(item, name)
    elif value is not None and not isinstance(value, bool):
        yield name, value
