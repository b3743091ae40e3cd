"""The taint rules: which values of a tool call come from untrusted text and not from the user.

Words of the user are trusted wherever they appear. Of the rest, these values are tainted:

- A value that an untrusted text has and the user did not write: a short argument as a whole, or a part of it that is a
  run of words or a number. In a command, every value of several parts counts (`host.example/x.sh`).
- With untrusted text in the conversation: every address (mail, URL, host, remote, chat, account, phone number), and
  every bare number given as a string, that the user did not write. It does not matter how the model made it. Addresses
  are compared part by part (`policy.taint_addresses`): the user must have named host, port, user and path.

A long argument of a tool that writes or sends is content. So is an argument that the tool does not list in
`Effect.decides`. When content is sent, only its addresses are checked. Values that the user chose without writing them
(`UserChoices`) are the user's. Text that is remembered for later turns must consist of words of the user for the larger
part. All functions are pure.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hermes_agent.contracts.tool import Effect
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.policy.taint_addresses import Address, find_addresses, parent_hosts, parse_address, word_set
from hermes_agent.policy.taint_words import UserChoices, WordIndex, is_number, normalize, split_values, split_words


class CheckedCall(LazyNamedTuple):
    """A tool call with what its check needs."""

    name: str
    effect: Effect
    schema: Mapping[str, Any]
    arguments: Mapping[str, Any]
    session_id: str
    cwd: Path
    """The working directory, to which relative paths among the arguments belong."""
    since: float = 0.0
    """Start of the call, by the clock of the file system."""
    reached: str = ""
    """A host that the call reached, if the sandbox knows."""

    def places(self, result: str) -> list[str]:
        """Return the resolved files of the call; of a command, its working directory and its process."""
        place = self.effect.place
        if callable(place):
            return list(dict.fromkeys(place(self.arguments, result)))
        value = self.arguments.get(place) if place else None
        return [str((self.cwd / Path(str(value)).expanduser()).resolve())] if value else []

    @property
    def command(self) -> str:
        """The command with its further text arguments."""
        return "\n".join(str(v) for v in self.arguments.values() if isinstance(v, str))

    def folders(self, places: Sequence[str]) -> list[Path]:
        """Return the working directories of a command."""
        return list(dict.fromkeys([self.cwd, *(Path(place) for place in places if place.startswith("/"))]))

    @property
    def fixed(self) -> frozenset[str]:
        """The parameters for which the schema lists the values."""
        properties = (self.schema.get("parameters") or {}).get("properties") or {}
        defined = (self.schema.get("parameters") or {}).get("$defs") or {}
        return frozenset(n for n, p in properties.items() if isinstance(p, Mapping) and _is_listed(p, defined))


def _is_listed(schema: Mapping[str, Any], defined: Mapping[str, Any]) -> bool:
    """Return whether a schema lists its values, also through `$ref` or an `allOf` of one schema."""
    resolved = defined.get(str(schema.get("$ref", "")).rpartition("/")[2], schema)
    if isinstance(parts := resolved.get("allOf"), list) and len(parts) == 1:
        return _is_listed(parts[0], {})
    return bool(resolved.get("enum"))


OWN = Effect("reads")
"""Effect of a built-in tool that declares none."""
GUESSED_READING = Effect("reads", returns="others")
GUESSED_SENDING = Effect("sends")


@functools.lru_cache(maxsize=1024)
def guess_effect(name: str) -> Effect:
    """Return the effect of a plugin's tool that declares none: its name has a reading verb, or it sends."""
    words = name.lower().replace("-", "_").split("_")
    return GUESSED_READING if word_set("reading_verbs").intersection(words) else GUESSED_SENDING


LONG = 8
"""Most words of an argument that is not content."""
TELLING = 5
"""Letters of the shortest word that shows where a remembered text comes from."""
_NETWORK = re.compile(
    r"\b(?:aiohttp|aria2c|clone|curl|dig|docker|drill|fetch|ftp|getaddrinfo|getent|gethostbyname|git|host|https?|httpx"
    r"|lynx|mailx?|msmtp|mtr|mutt|nc|ncat|netcat|nslookup|ping6?|pull|push|rclone|remote|requests|resolvectl|rsync|scp"
    r"|sendmail|sftp|socat|socket|ssh|submodule|telnet|tftp|traceroute|url(?:lib|open)|w3m|websockets?|wget|whois|xh)\b",
    re.IGNORECASE,
)
"""Words of a command that uses the network: then its names are hosts."""
_JOINED = re.compile(r"(?<=[\w/=.:-])[\"'`\\]+(?=[\w$%/])")
"""Quotes inside a word, which a shell removes."""
_CHAT = re.compile(
    r"(?:(?:bluebubbles|dingtalk|discord|email|feishu|irc|line|matrix|mattermost|messenger|ntfy|qqbot|signal|slack|sms"
    r"|teams|telegram|wecom|weixin|whatsapp|xmpp|zulip):(?!//)|[@#!](?=\w))\S+",
    re.IGNORECASE,
)


class TaintFinding(LazyNamedTuple):
    """A tainted value of a call."""

    parameter: str
    value: str
    number: int
    """Number of the untrusted text that has the value; -1 when none has it word by word."""


class TaintSources(LazyNamedTuple):
    """The indexes of the user's text and of untrusted text, for one conversation."""

    user: WordIndex
    untrusted: WordIndex
    """Untrusted text of this conversation, and of marked items such as files."""
    in_conversation: bool
    """Whether this conversation has untrusted text."""
    choices: UserChoices

    def find_source(self, run: Sequence[str]) -> int | None:
        """Return the number of the untrusted text that has a run that the user did not write, or None."""
        number = self.untrusted.find(run)
        if number is None:
            return None
        if run in self.user and not _could_be_chance(run):
            return None
        return number


def find_tainted_values(
    effect: Effect, arguments: Mapping[str, Any], fixed: frozenset[str], sources: TaintSources, tool: str = ""
) -> list[TaintFinding]:
    """Return the tainted values of a call.

    Args:
        effect: the effect of the tool.
        arguments: the arguments of the call.
        fixed: parameters for which the schema lists the values.
        sources: what the user wrote, and what is untrusted.
        tool: name of the tool.
    """
    if effect.does == "reads":
        return []
    found: dict[tuple[str, str], TaintFinding] = {}
    named = [(effect.decides[0], name) for name in effect.named(arguments)] if effect.named else []
    for parameter, value in (*_leaf_values(arguments), *named):
        top = parameter.partition(".")[0]
        is_content = bool(effect.decides) and top not in effect.decides
        if top in fixed or (is_content and effect.does != "sends"):
            continue
        text = str(value)
        if effect.does == "opens":
            tainted = list(_opened_addresses(text, sources))
        elif effect.does == "remembers":
            tainted = [*_addresses(text, sources), *_chats(text, sources), *_remembered(text, sources)]
        elif effect.does == "runs":
            networked = _NETWORK.search(text) is not None
            tainted = [*_addresses(_JOINED.sub("", text), sources, networked=networked), *_command(text, sources)]
        else:
            is_content |= len(split_words(text)) > LONG
            tainted = [] if is_content and effect.does == "writes" else [*_addresses(text, sources)]
            tainted += [] if is_content else _chats(text, sources)
            if not is_content and not sources.choices.covers(text, sources.user, tool):
                tainted += _argument(text, sources, isinstance(value, str))
        for written, number in tainted:
            found.setdefault((parameter, normalize(written)), TaintFinding(parameter, written, number))
    return list(found.values())


def is_copied(text: str, sources: TaintSources) -> bool:
    """Return whether a text has four words in a row, or a value, of an untrusted text and not of the user."""
    return any(len(run) >= 4 or _is_pointed(run) for run, _ in _untrusted_runs(split_words(text), sources))


TaintedValues = Iterator[tuple[str, int]]
"""Values as written, with the number of the untrusted text as in `TaintFinding`."""


def _addresses(text: str, sources: TaintSources, *, networked: bool = False) -> TaintedValues:
    for written, address in find_addresses(text, networked=networked):
        if sources.user.address_source(address) is None:
            number = _address_source(address, written, sources)
            if number is not None or sources.in_conversation:
                yield written, -1 if number is None else number
    for value in split_values(text):
        run = split_words(value)
        if is_number(value) and run not in sources.user:
            number = sources.untrusted.find(run)
            if number is not None or sources.in_conversation:
                yield value, -1 if number is None else number


def _address_source(address: Address, written: str, sources: TaintSources) -> int | None:
    """Return the number of the untrusted text that has an address or a parent domain of it."""
    known = (sources.untrusted.address_source(each) for each in (address, *parent_hosts(address)))
    return next((number for number in known if number is not None), sources.untrusted.find(split_words(written)))


def _chats(text: str, sources: TaintSources) -> TaintedValues:
    """Yield a short argument that names a chat which the user did not name: `telegram:…`, `#…`, `@…`."""
    if _CHAT.fullmatch(text.strip()):
        chat = split_words(text.rpartition(":")[2] if text.count(":") == 1 else text.partition(":")[2] or text)
        number = sources.untrusted.find(chat)
        if chat not in sources.user and (number is not None or sources.in_conversation):
            yield text.strip(), -1 if number is None else number


def _argument(text: str, sources: TaintSources, is_text: bool) -> TaintedValues:
    """Yield a short argument that untrusted text has as a whole or in a telling part."""
    run = split_words(text)
    number = sources.find_source(run) if run else None
    if number is not None:
        yield text.strip(), number
    elif run not in sources.user:
        if is_text and sources.in_conversation and len(run) == 1 and run[0].isdecimal():
            yield text.strip(), -1
        for part, number in _untrusted_runs(run, sources):
            if len(part) > 1 or _is_pointed(part):
                yield text.strip(), number
                return


def _command(text: str, sources: TaintSources) -> TaintedValues:
    run = split_words(text)
    if len(run) <= LONG:
        yield from _argument(text, sources, is_text=False)
        return
    for value in split_values(text):
        part = split_words(value)
        if len(part) > 1 and (number := sources.find_source(part)) is not None:
            yield value, number
    yield from ((" ".join(p), n) for p, n in _untrusted_runs(run, sources) if len(p) > 2)


def _remembered(text: str, sources: TaintSources) -> TaintedValues:
    """Yield values as of a command, and the whole text when most of its telling words are untrusted."""
    yield from _command(text, sources)
    telling = {w for w in split_words(text) if len(w) >= TELLING and (w,) not in sources.user}
    untrusted = {w: n for w in sorted(telling) if (n := sources.untrusted.find((w,))) is not None}
    if len(untrusted) > 1 and 2 * len(untrusted) > len(telling):
        yield " ".join(text.split()), next(iter(untrusted.values()))


def _opened_addresses(text: str, sources: TaintSources) -> TaintedValues:
    """Yield the addresses to open that neither the user nor an untrusted text gave: the model made them.

    Such an address can carry data to its host. It is allowed where the user named the host, and no untrusted text comes
    from its site or names it. The owner of any other host may be the author of the untrusted text.
    """
    whole = parse_address(text)
    for written, address in [(text, whole)] if whole is not None else find_addresses(text, networked=True):
        address = address._replace(query=address.query.partition("#")[0])
        if sources.user.address_source(address) is not None or sources.untrusted.address_source(address) is not None:
            continue
        number = sources.untrusted.site_source(address.site)
        if number is None:
            root = address._replace(path="", query="")
            if not sources.in_conversation or sources.user.address_source(root) is not None:
                continue
        yield written, -1 if number is None else number


def _untrusted_runs(run: Sequence[str], sources: TaintSources) -> Iterator[tuple[Sequence[str], int]]:
    """Yield the longest runs of untrusted text, but not those of which the user wrote each word."""
    begin = 0
    while begin < len(run):
        end = begin
        while end < len(run) and run[begin : end + 1] in sources.untrusted:
            end += 1
        part = run[begin:end]
        number = sources.find_source(part) if part else None
        if number is not None and not all((w,) in sources.user and not _could_be_chance((w,)) for w in part):
            yield part, number
        begin = max(end, begin + 1)


def _could_be_chance(run: Sequence[str]) -> bool:
    """Return whether a run is so short a number that the user may have meant something else by it."""
    return len(run) == 1 and run[0].isdecimal() and len(run[0]) < 4


def _is_pointed(run: Sequence[str]) -> bool:
    """Return whether a run is a value rather than prose: a number, or a name that contains one."""
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
