"""Upstream's checks of commands, addresses and requests, and its lists of dangerous commands.

Commands: `tools/approval.py` of upstream, which checks a command and requests an approval. Its lists of regular
expressions can be read and extended (`Patterns`). A pattern that a plugin adds is checked (`policy.command_patterns`)
while the plugin is loaded. Upstream's own patterns (`danger_patterns.toml`, loaded at first use) only describe:
`policy.shell` parses commands and implements the same rules. So removing a pattern of upstream or of another plugin
shortens the list, but the rule stays in force, and a warning is logged.

Addresses: a tool may open public addresses and those that the operator allows. Requests: a credential is sent only to
the origin of the request (upstream's `hermes_cli.urllib_security`).

Source: plugin contract §10, §11.2, §11.3.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import re
import socket
import urllib.request
from collections.abc import Callable, Iterable, Iterator, MutableSequence
from pathlib import Path
from typing import Any, SupportsIndex, overload
from urllib.parse import urljoin, urlsplit

import yaml

from hermes_agent.adapters.events import get_session_env
from hermes_agent.compat.agent import host, host_or_none
from hermes_agent.compat.config import load_config_readonly
from hermes_agent.config import hermes_home
from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.registry import current_owner, describe_owner, staged_store
from hermes_agent.policy import Choice, CommandPatterns, PendingQuestion, Refusal
from hermes_agent.policy.command_patterns import CommandPattern, PatternList
from hermes_agent.policy.network import blocked_site
from hermes_agent.policy.operator_rules import DEFAULT_HOME, CommandPolicy
from hermes_agent.policy.shell import ShellVerdict, judge
from hermes_agent.system.safe_http import AddressRejected, is_allowed_address, parse_http_url
from hermes_agent.tools import current_scope

CHOICES: dict[str, Choice] = {"once": "once", "session": "session", "always": "always", "deny": "deny"}
"""Answers to an approval request."""


def approval_config() -> dict[str, Any]:
    """Return the block `approvals` of the config."""
    return dict(load_config_readonly().get("approvals") or {})


def approval_mode() -> str:
    """Return `approvals.mode`: `manual`, `smart` or `off`."""
    mode = approval_config().get("mode")
    return "off" if mode is False else str(mode or "manual")


def detect_dangerous_command(command: str) -> tuple[bool, str | None, str | None]:
    """Return whether a command is dangerous, with the key and the description of the first reason."""
    found = _judge(command)
    reason = found.hardline or next(iter(found.keys), "") or _listed_reason(command)
    return (True, reason, reason) if reason else (False, None, None)


def detect_hardline_command(command: str) -> tuple[bool, str | None]:
    """Return whether a command is always refused, and the reason or None."""
    found = _judge(command)
    return bool(found.hardline), found.hardline or None


def check_dangerous_command(
    command: str,
    env_type: str = "local",
    approval_callback: Callable[..., Any] | None = None,
    has_host_access: bool = False,
) -> dict[str, Any]:
    """Check whether a command may run; request an approval if it is dangerous.

    Args:
        env_type: the backend for the command; ignored, the rules are the same for every backend.
        approval_callback: replaces the approver of the conversation: `callback(command, description) -> choice`.
        has_host_access: ignored, like `env_type`.

    Returns:
        `approved` and, if it is False, `message`; `status` is `approval_required` if there is no approver.
    """
    values = load_config_readonly()
    deny, allow = (values.get("approvals") or {}).get("deny") or (), values.get("command_allowlist") or ()
    home = host_or_none(lambda host: host.home)
    rules = CommandPolicy(deny, allow, home, patterns=host_or_none(lambda host: host.patterns))
    review = rules.review(command, confined=True)
    if not review.keys and (listed := _listed_reason(command)) and listed not in allow:
        review = review._replace(keys=(listed,))
    key = review.keys[0] if review.keys else ""
    about = {"pattern_key": key, "description": key, "command": command}
    if review.verdict == "refuse":
        return {"approved": False, "message": review.reason, "hardline": bool(_judge(command).hardline), **about}
    if review.verdict == "allow" or not review.keys or (approval_mode() == "off" and not review.mandatory):
        return {"approved": True, "message": None}
    rule = " + ".join(review.keys)
    summary = f"run a command ({key})"
    request = ApprovalRequest("terminal", summary, command, rule, once=review.once, mandatory=review.mandatory)
    return _ask_approval(request, approval_callback) | about


def request_tool_approval(
    tool_name: str, reason: str, *, rule_key: str = "", approval_callback: Callable[..., Any] | None = None
) -> dict[str, Any]:
    """Request an approval of a tool call on behalf of a plugin's rule.

    Returns:
        The same keys as `check_dangerous_command`.
    """
    grain = rule_key or f"{tool_name}:{hashlib.sha256(reason.encode()).hexdigest()[:16]}"
    key = f"plugin_rule:{grain}"
    request = ApprovalRequest(tool_name, f"pass a rule of a plugin on {tool_name}", reason, key)
    return _ask_approval(request, approval_callback) | {"pattern_key": key, "description": reason}


def get_current_session_key(default: str = "default") -> str:
    """Return the session key of the chat that this thread works for; outside chats the session id."""
    key = get_session_env("HERMES_SESSION_KEY")
    if key:
        return key
    scope = current_scope.get()
    return scope.session_id if scope is not None and scope.session_id else default


def resolve_gateway_approval(
    session_key: str,
    choice: str,
    resolve_all: bool = False,
    reason: str | None = None,
    request_id: str | None = None,
) -> int:
    """Answer the oldest pending question of a session, or all of them; return how many were answered.

    Args:
        choice: `once`, `session`, `always` or `deny`; any other value denies.
        reason: reason of a denial, for the model.
        request_id: the question that is answered; None is the oldest one.
    """
    answer: Choice | Refusal = CHOICES.get(choice, "deny")
    if answer == "deny" and reason:
        answer = Refusal(f"BLOCKED: User denied this command. The user has NOT consented: {reason}")
    asked = host().asked
    if request_id:
        return int(pending_approval(session_key, request_id) is not None and asked.answer(request_id, answer))
    if answer in CHOICES and answer != "deny" and asked.is_ambiguous(session_key):
        return 0  # the answer may belong to another question: a code or a button with an id tells them apart
    return asked.answer_session(session_key, answer, everything=resolve_all)


def pending_approval(session_key: str, request_id: str) -> PendingQuestion[Choice | Refusal] | None:
    """Return the pending question of a session with this id, or None."""
    question = host().asked.get(request_id)
    return question if question is not None and question.session_key == session_key else None


def has_blocking_approval(session_key: str) -> bool:
    """Return whether a session has a pending question."""
    return bool(host().asked.questions_for(session_key))


def _judge(command: str) -> ShellVerdict:
    home = str(hermes_home())
    spelled = [command.replace(home, DEFAULT_HOME)] if home in command else []
    return judge(command, host_or_none(lambda host: host.patterns), also=spelled)


def _listed_reason(command: str) -> str:
    """Return why upstream asks about a command that is harmless by its content, or "".

    `policy.shell` reads the code in arguments and here-documents and judges it; upstream
    asks about each command with code.
    """
    return next((about for regex, about in _lists()["code"] if re.search(regex, command)), "")


def _ask_approval(request: ApprovalRequest, callback: Callable[..., Any] | None) -> dict[str, Any]:
    if callback is not None:
        allowed = CHOICES.get(str(callback(request.detail, request.summary)), "deny") != "deny"
        message = (
            None if allowed else f"BLOCKED: User denied this command. The user has NOT consented: {request.detail}"
        )
        return {"approved": allowed, "message": message, "user_consent": allowed}
    scope = current_scope.get()
    if scope is None:
        return {
            "approved": False,
            "status": "approval_required",
            "message": f"BLOCKED: {request.tool} needs approval to {request.summary}, and outside a"
            " conversation no user can be asked.",
            "user_consent": False,
        }
    refused = host().bridge.wait_core(scope.approvals.decide(request))
    if refused is None:
        return {"approved": True, "message": None, "user_approved": True}
    return {"approved": False, "message": f"BLOCKED: {refused.reason}", "outcome": "denied", "user_consent": False}


logger = logging.getLogger(__name__)

Pair = tuple[Any, str]
"""`(regex, description)`; the regex is searched for in a command."""
_PART = re.compile(r"\{([A-Z_]+)\}")
_FLAGS = re.IGNORECASE | re.DOTALL


class _Slot(LazyNamedTuple):
    pair: Pair
    place: float
    added: CommandPattern | None
    """The plugin's pattern, or None for a pattern of upstream."""


class Patterns(MutableSequence[Pair]):
    """One of upstream's pattern lists, with the patterns that plugins added to the current host.

    Args:
        compiled: yield compiled regular expressions, as upstream's compiled lists do.
    """

    def __init__(self, which: PatternList, *, compiled: bool = False) -> None:
        self._which, self._compiled = which, compiled

    # -- reading ---------------------------------------------------------------------------------------------

    @overload
    def __getitem__(self, index: SupportsIndex) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> list[Pair]: ...
    def __getitem__(self, index: Any) -> Any:
        return self.copy()[index]

    def __len__(self) -> int:
        return len(self._slots())

    def __iter__(self) -> Iterator[Pair]:
        return iter(self.copy())

    def __eq__(self, other: object) -> bool:
        return self.copy() == (other.copy() if isinstance(other, Patterns) else other)

    __hash__ = None  # type: ignore[assignment]  # lists are not hashable

    def __add__(self, other: Iterable[Pair]) -> list[Pair]:
        return [*self, *other]

    def __radd__(self, other: Iterable[Pair]) -> list[Pair]:
        return [*other, *self]

    def __repr__(self) -> str:
        return repr(self.copy())

    def copy(self) -> list[Pair]:
        """Return the pairs as an independent list."""
        return [self._shown(slot) for slot in self._slots()]

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Pair]:
        return self.copy()

    # -- changing --------------------------------------------------------------------------------------------

    def insert(self, index: SupportsIndex, value: Pair) -> None:
        """Add a pattern and check commands against it from now on.

        Raises:
            TypeError: `value` is not a pair of a regex and a description.
            ValueError: the regex is invalid.
        """
        slots, at = self._slots(), index.__index__()
        at = max(at + len(slots), 0) if at < 0 else min(at, len(slots))
        before = slots[at - 1].place if at else (slots[0].place - 2 if slots else -1)
        after = slots[at].place if at < len(slots) else before + 2
        self._add(value, (before + after) / 2)

    @overload
    def __setitem__(self, index: SupportsIndex, value: Pair) -> None: ...
    @overload
    def __setitem__(self, index: slice, value: Iterable[Pair]) -> None: ...
    def __setitem__(self, index: Any, value: Any) -> None:
        slots = self._slots()
        wanted: list[Any] = self.copy()
        wanted[index] = value  # a list raises the right error for a bad index
        if not isinstance(index, slice):
            self._check(value)
            self._remove([slots[index]])
            self._add(value, slots[index].place)
            return
        for given in wanted:
            self._check(given)
        self.assign(wanted)

    def __delitem__(self, index: Any) -> None:
        gone = self._slots()[index]
        self._remove(gone if isinstance(gone, list) else [gone])

    def clear(self) -> None:
        """Remove all pairs from the list."""
        self._remove(self._slots())

    def reverse(self) -> None:
        """Raise TypeError: the order has no meaning."""
        raise TypeError("the order of these patterns means nothing: each of them is looked for")

    def sort(self, *, key: Any = None, reverse: bool = False) -> None:
        """Raise TypeError: the order has no meaning."""
        self.reverse()

    def assign(self, wanted: Iterable[Any]) -> None:
        """Replace the pairs; this is what `tools.approval.DANGEROUS_PATTERNS = […]` does."""
        new = list(wanted)
        for given in new:
            self._check(given)
        self._remove([slot for slot in self._slots() if self._shown(slot) not in new])
        there = self.copy()
        self.extend(given for given in new if tuple(given) not in there)

    # -- storage ---------------------------------------------------------------------------------------------

    def _store(self) -> CommandPatterns:
        return staged_store(host().patterns)

    def _slots(self) -> list[_Slot]:
        upstream = [_Slot(pair, float(n), None) for n, pair in enumerate(_lists()[self._which])]
        store = host_or_none(lambda host: host.patterns)
        if store is None:
            return upstream
        added = [_Slot(pattern.given, pattern.place, pattern) for pattern in store.patterns_for(self._which)]
        slots = [*upstream, *added]
        return sorted((s for s in slots if store.is_visible(self._which, s.pair)), key=lambda slot: slot.place)

    def _shown(self, slot: _Slot) -> Pair:
        regex, about = slot.pair
        if not self._compiled:
            return slot.pair
        return (slot.added.regex if slot.added is not None else re.compile(regex, _FLAGS)), about

    def _check(self, given: Any) -> CommandPattern:
        return CommandPattern.of(self._which, given, current_owner().key, 0)

    def _add(self, given: Any, place: float) -> None:
        pattern = self._check(given)._replace(place=place)
        if not self._store().unhide(self._which, pattern.given):
            self._store().add(pattern)

    def _remove(self, slots: Iterable[_Slot]) -> None:
        owner = current_owner().key
        for slot in slots:
            if slot.added is not None and slot.added.owner == owner:
                self._store().drop(slot.added)
                continue
            self._store().hide(self._which, slot.pair, owner)
            logger.warning(
                "%s took the %s pattern %r out of the list: it stays in force%s",
                describe_owner(owner) if owner else "code of a plugin",
                self._which,
                slot.pair[1],
                "" if self._which == "hardline" else "; command_allowlist in config.yaml is the operator's to change",
            )


@functools.cache
def _lists() -> dict[str, list[tuple[str, str]]]:
    import tomllib  # few plugins need it

    document = tomllib.loads(Path(__file__).with_name("danger_patterns.toml").read_text(encoding="utf-8"))
    parts: dict[str, str] = document["parts"]

    def whole(text: str) -> str:
        return _PART.sub(lambda match: whole(parts[match[1]]), text)

    return {name: [(whole(p), whole(about)) for p, about in pairs] for name, pairs in document["lists"].items()}


DANGEROUS = Patterns("dangerous")
"""Patterns of commands that need an approval."""
HARDLINE = Patterns("hardline")
"""Patterns of commands that are always refused, whatever `command_allowlist` says (§10.3)."""
DANGEROUS_COMPILED = Patterns("dangerous", compiled=True)
HARDLINE_COMPILED = Patterns("hardline", compiled=True)


def is_safe_url(url: str) -> bool:
    """Return whether a tool may open `url`: the scheme is HTTP(S) and the host has only public addresses.

    `security.allow_private_urls` also allows private addresses, but never those of a metadata service. A host that
    cannot be resolved is not safe.
    """
    private = (load_config_readonly().get("security") or {}).get("allow_private_urls") is True
    try:
        parts = parse_http_url(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        found = {str(info[4][0]) for info in socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)}
    except (AddressRejected, OSError, UnicodeError):
        return False
    return bool(found) and all(is_allowed_address(address, private) for address in found)


def redirect_target_from_response(response: Any) -> str | None:
    """Return the absolute address to which a response redirects, or None if it is no redirect."""
    status = getattr(response, "status_code", None) or getattr(response, "status", None)
    if status not in (301, 302, 303, 307, 308):
        return None
    location = response.headers.get("location") or response.headers.get("Location")
    return urljoin(str(response.url), location) if location else None


def check_website_access(url: str, config_path: Path | None = None) -> dict[str, str] | None:
    """Return why `security.website_blocklist` forbids `url`, or None if it is allowed.

    Args:
        config_path: a config file that replaces that of the home.

    Returns:
        `host`, `rule`, `source` and `message`.
    """
    if config_path is None:
        values = load_config_readonly()
    else:
        values = yaml.safe_load(Path(config_path).read_text(encoding="utf-8")) or {}
    return blocked_site((values.get("security") or {}).get("website_blocklist"), url)


SAFE_HEADERS = frozenset({"accept", "accept-encoding", "accept-language", "range", "user-agent"})
"""Headers that are also sent to another origin."""
CREDENTIAL_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization", "x-api-key"})
"""Headers that no other origin gets, whatever a plugin names."""
PORTS = {"http": 80, "https": 443}


def url_origin(url: str) -> tuple[str, str, int | None]:
    """Return scheme, host and port of an address."""
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    return scheme, (parts.hostname or "").rstrip(".").lower(), parts.port or PORTS.get(scheme)


class KeepingCredentials(urllib.request.HTTPRedirectHandler):
    """Redirect handler that sends only `SAFE_HEADERS`, and no cookies, to another scheme, host or port.

    Args:
        original_url: the address of the first request.
        cross_origin_safe_headers: further headers that other hosts get; never one with a credential.
    """

    def __init__(self, original_url: str, *, cross_origin_safe_headers: Iterable[str] = ()) -> None:
        self._origin = url_origin(original_url)
        self._safe = SAFE_HEADERS | {name.lower() for name in cross_origin_safe_headers} - CREDENTIAL_HEADERS

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """Return the next request, or None if urllib does not follow the redirect."""
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following is not None and url_origin(following.full_url) != self._origin:
            for name, _ in list(following.header_items()):
                if name.lower() not in self._safe:
                    following.remove_header(name)
        return following


def open_credentialed_url(
    request: urllib.request.Request, *, timeout: float, opener_factory: Callable[..., Any] | None = None
) -> Any:
    """Open a request with a credential in its headers and return the response.

    Args:
        timeout: seconds.
        opener_factory: returns an opener for the given redirect handler; default `urllib.request.build_opener`.
    """
    opener = (opener_factory or urllib.request.build_opener)(KeepingCredentials(request.full_url))
    return opener.open(request, timeout=timeout)
