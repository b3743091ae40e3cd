"""The page of proposals: a list, each proposal as a diff, and the answer of the operator.

A page without a script. The key of the server, typed into a form, opens a session of the page: a cookie that no script
reads and no other site sends. Every form has a token of that session. The form of an answer has a digest of what it
shows, so that a proposal, or a file, that changed since is shown again before it takes effect.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qs

from hermes_agent.core.caches import LruDict
from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.redaction import redactor
from hermes_agent.server.app import HttpRoute, make_application
from hermes_agent.server.authentication import BEARS_KEY, OTHER_ORIGIN, PROPOSALS
from hermes_agent.server.http_server import peer_name
from hermes_agent.server.http_types import HttpError, HttpReply, read_body
from hermes_agent.tools.proposals import Proposal, Proposals

if TYPE_CHECKING:
    from hermes_agent.server.http_types import Headers, Receive, Scope

COOKIE = "hermes_proposals"
SESSION_S = 8 * 3600.0
"""Seconds after which a session of the page ends."""
MAX_SESSIONS = 64
MAX_ATTEMPTS, ATTEMPTS_S = 10, 60.0
"""Wrong keys that an address may send in a time; then its sign-ins wait."""
MAX_BODY = 16 * 1024
BODY_S = 30.0

_STYLE = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS: Headers = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"content-security-policy", _POLICY.encode()),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
_OUTCOMES = {"tool": "a tool call of the agent", "review": "the review of a turn"}

InWorker = Callable[..., Awaitable[str | None]]
"""Runs a function with its arguments in a worker."""


class PageSession(LazyNamedTuple):
    """A browser that signed in."""

    token: str
    """What its forms send."""
    ends_at: float
    notices: list[str]
    """What the next page says first."""


class ProposalPage:
    """The page.

    Args:
        key: the key of the server.
        run: runs blocking work in a worker.
        clock: returns seconds.
    """

    def __init__(
        self, proposals: Proposals, key: str, run: InWorker, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._proposals, self._key, self._run, self._clock = proposals, key.encode(), run, clock
        self._sessions: LruDict[str, PageSession] = LruDict(MAX_SESSIONS)
        self._attempts: LruDict[str, list[float]] = LruDict(1024)

    def routes(self) -> list[HttpRoute]:
        """Return the routes of the page."""
        return [
            HttpRoute(PROPOSALS, make_application(self.listing)),
            HttpRoute(f"{PROPOSALS}/", make_application(self.proposal)),
            HttpRoute(f"{PROPOSALS}/", make_application(self.post), "POST"),
        ]

    async def listing(self, scope: Scope, receive: Receive) -> HttpReply:
        """Return the list, or the form for the key."""
        session = self._session(scope)
        if session is None:
            return _sign_in_page()
        return _page("Proposals", await self._run(self._list) or "", session)

    async def proposal(self, scope: Scope, receive: Receive) -> HttpReply:
        """Return one proposal with its diff and the forms of the answers."""
        session = self._session(scope)
        if session is None:
            return _sign_in_page()
        body = await self._run(self._detail, scope["name"], session)
        return _page("Proposal", body, session) if body else _page("Proposals", _GONE, session, status=404)

    async def post(self, scope: Scope, receive: Receive) -> HttpReply:
        """Sign in or out, or accept or reject a proposal."""
        if scope.get(OTHER_ORIGIN):
            return _page("Refused", "<p>Pages of other origins cannot answer here.</p>", None, status=403)
        try:
            form = _fields(await read_body(scope, receive, max_bytes=MAX_BODY, timeout_s=BODY_S))
        except HttpError as refusal:
            return refusal.reply()
        name = scope["name"]
        if name == "sign-in":
            return self._sign_in(scope, form)
        session = self._session(scope)
        if session is None:
            return _sign_in_page()
        if not hmac.compare_digest(form.get("token", "").encode(), session.token.encode()):
            text = f'<p>The form is not of this session. <a href="{PROPOSALS}">Open the list again.</a></p>'
            return _page("Refused", text, session, status=403)
        if name == "sign-out":
            self._sessions.pop(_cookie_hash(scope), None)
            return _moved((b"set-cookie", _cookie("", 0)))
        action = form.get("action", "")
        if action not in ("accept", "reject"):
            return _page("Refused", "<p>The form names neither accept nor reject.</p>", session, status=400)
        changed = await self._run(self._answer, name, action, form.get("shown", ""), session)
        return _moved() if changed is None else _page("Proposal", changed, session, status=409)

    def _sign_in(self, scope: Scope, form: Mapping[str, str]) -> HttpReply:
        peer = peer_name(str((scope.get("client") or ("?",))[0]))
        now = self._clock()
        recent = [at for at in self._attempts.get(peer, []) if now - at < ATTEMPTS_S]
        if len(recent) >= MAX_ATTEMPTS:
            wait = b"%d" % (ATTEMPTS_S - (now - recent[0]) + 1)
            return _sign_in_page("Too many wrong keys. Wait a minute.", 429, ((b"retry-after", wait),))
        if not hmac.compare_digest(form.get("key", "").strip().encode(), self._key):
            self._attempts[peer] = [*recent, now]
            return _sign_in_page("The key is wrong.")
        self._attempts.pop(peer, None)
        value = secrets.token_urlsafe(32)
        self._sessions[_hash(value)] = PageSession(secrets.token_urlsafe(32), now + SESSION_S, [])
        return _moved((b"set-cookie", _cookie(value, int(SESSION_S))))

    def _session(self, scope: Scope) -> PageSession | None:
        """Return the session of the request; the key in the header stands for a session of this request alone."""
        if scope.get(BEARS_KEY):
            token = hmac.new(self._key, PROPOSALS.encode(), hashlib.sha256).hexdigest()
            return PageSession(token, self._clock() + SESSION_S, [])
        found = self._sessions.get(number := _cookie_hash(scope))
        if found is not None and found.ends_at <= self._clock():
            self._sessions.pop(number, None)
            return None
        return found

    def _list(self) -> str:
        rows = [
            f'<li><a href="{PROPOSALS}/{each.id}">{_text(each.title)}</a>'
            f"<p>{_text(each.kind)}, until {_day(each.expires_at)}"
            + (f": {_text(each.reason)}" if each.reason else "")
            + "</p></li>"
            for each in self._proposals.all()
        ]
        return f"<ul>{''.join(rows)}</ul>" if rows else "<p>No proposal waits.</p>"

    def _detail(self, number: str, session: PageSession) -> str | None:
        """Return the body of the page of a proposal, or None without such a proposal."""
        proposal = self._find(number)
        if proposal is None:
            return None
        diff, problem = self._diff(proposal)
        shown = _shown(proposal, diff)
        forms = [_form(proposal, session, shown, "accept", "Accept: make this change")] if not problem else []
        forms.append(_form(proposal, session, shown, "reject", "Reject: delete the proposal"))
        rows = {
            "Kind": proposal.kind,
            "Reason": proposal.reason or "none given",
            "Comes from": _OUTCOMES.get(proposal.origin, proposal.origin),
            "Session": proposal.session_id or "none",
            "Id": proposal.short,
            "Made": _day(proposal.created_at),
            "Expires": _day(proposal.expires_at),
        }
        table = "".join(f"<dt>{name}</dt><dd>{_text(value)}</dd>" for name, value in rows.items())
        warning = f'<p class="notice">It cannot be accepted any more: {_text(problem)}</p>' if problem else ""
        lines = "\n".join(map(_diff_line, diff.splitlines()))
        return (
            f"<h2>{_text(proposal.title)}</h2><dl>{table}</dl>{warning}"
            f'<pre tabindex="0" role="region" aria-label="Change">{lines}</pre>'
            f'<div class="answers">{"".join(forms)}</div>'
        )

    def _answer(self, number: str, action: Literal["accept", "reject"], shown: str, session: PageSession) -> str | None:
        """Accept or reject a proposal; return a page instead if it is not what the form showed."""
        proposal = self._find(number)
        if proposal is None:
            return _GONE
        if not hmac.compare_digest(_shown(proposal, self._diff(proposal)[0]).encode(), shown.encode()):
            return (
                '<p class="notice">This has changed since it was shown. Nothing was done; look at it again.</p>'
                f"{self._detail(number, session) or ''}"
            )
        if action == "reject":
            self._proposals.reject(proposal)
            session.notices.append(f"Rejected: {proposal.title}.")
            return None
        try:
            session.notices.append(self._proposals.accept(proposal))
        except UserError as error:
            return f'<p class="notice">{_text(str(error))}</p>{self._detail(number, session) or ""}'
        return None

    def _find(self, number: str) -> Proposal | None:
        return next((each for each in self._proposals.all() if each.id == number), None)

    def _diff(self, proposal: Proposal) -> tuple[str, str]:
        try:
            return self._proposals.diff(proposal), ""
        except UserError as error:
            return "", error.message


_GONE = (
    f'<p>No proposal waits with this id: it was answered, or has expired. <a href="{PROPOSALS}">All proposals</a></p>'
)


def _sign_in_page(notice: str = "", status: int = 401, headers: Headers = ()) -> HttpReply:
    said = f'<p class="notice" role="alert">{_text(notice)}</p>' if notice else ""
    body = (
        f'{said}<form method="post" action="{PROPOSALS}/sign-in"><p><label for="key">Key of the server '
        '(<code>hermes gateway key</code> prints it)</label><input id="key" name="key" type="password" required '
        'autofocus autocomplete="current-password"></p><p><button>Sign in</button></p></form>'
    )
    asked = ((b"www-authenticate", b'Bearer realm="hermes-agent"'),) if status == 401 else ()
    return _page("Sign in", body, None, status=status, headers=headers + asked)


def _page(title: str, body: str, session: PageSession | None, *, status: int = 200, headers: Headers = ()) -> HttpReply:
    said, out = "", ""
    if session is not None:
        said = "".join(f'<p class="notice" role="status">{_text(each)}</p>' for each in session.notices)
        session.notices.clear()
        out = f'<form method="post" action="{PROPOSALS}/sign-out">{_token(session)}<button>Sign out</button></form>'
    html = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_escape(title)} – hermes-agent</title><style>{_STYLE}</style></head><body>"
        f'<header><h1><a href="{PROPOSALS}">Proposals of the agent</a></h1>{out}</header>'
        f"<main>{said}{body}</main></body></html>"
    )
    return HttpReply(status, html.encode(), _HEADERS + headers)


def _moved(*headers: tuple[bytes, bytes]) -> HttpReply:
    """Return the way to the list, so that a page that is loaded again sends no form again."""
    return HttpReply(303, b"", ((b"location", PROPOSALS.encode()), (b"cache-control", b"no-store"), *headers))


def _form(proposal: Proposal, session: PageSession, shown: str, action: str, label: str) -> str:
    return (
        f'<form method="post" action="{PROPOSALS}/{proposal.id}">{_token(session)}'
        f'<input type="hidden" name="shown" value="{shown}">'
        f'<button name="action" value="{action}">{label}</button></form>'
    )


def _token(session: PageSession) -> str:
    return f'<input type="hidden" name="token" value="{session.token}">'


def _shown(proposal: Proposal, diff: str) -> str:
    """Return the digest of what the page shows: the signed content, and the diff to the present files."""
    return hashlib.sha256(f"{proposal.signature}\0{diff}".encode("utf-8", "surrogatepass")).hexdigest()


def _fields(body: bytes) -> dict[str, str]:
    """Return the first value of each field of a form."""
    try:
        found = parse_qs(body.decode("ascii"), keep_blank_values=True, max_num_fields=20)
    except ValueError:
        return {}
    return {name: values[0] for name, values in found.items()}


def _cookie(value: str, seconds: int) -> bytes:
    return f"{COOKIE}={value}; Path={PROPOSALS}; Max-Age={seconds}; HttpOnly; SameSite=Strict".encode()


def _cookie_hash(scope: Scope) -> str:
    """Return the hash under which the session of the request's cookie is kept; "" without a cookie."""
    for name, value in scope["headers"]:
        if name == b"cookie":
            for part in value.decode("latin-1").split(";"):
                cookie, _, text = part.strip().partition("=")
                if cookie == COOKIE and text:
                    return _hash(text)
    return ""


def _hash(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()


def _diff_line(line: str) -> str:
    kind = "hunk" if line.startswith(("@@", "---", "+++")) else {"+": "add", "-": "del"}.get(line[:1], "")
    return f'<span class="{kind}">{_text(line)}</span>' if kind else _text(line)


def _text(text: str) -> str:
    """Return untrusted text for a page: escaped, without secrets, invisible characters as `\\uNNNN`."""
    plain = "".join(c if c.isprintable() or c == "\t" else f"\\u{ord(c):04x}" for c in redactor(text))
    return _escape(plain)


def _escape(text: str) -> str:
    from html import escape  # 100 KiB that only an opened page needs

    return escape(text)


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
