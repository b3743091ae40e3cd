"""Outbound webhooks: signed HTTP requests on events, as `hooks.outbound` of the config declares them.

A daemon sends them through its durable outbox. In any other process a background thread sends them in order, and tries
a second time after a connection error or a status of 500 and above. The body is the JSON that a shell hook reads;
redirects are not followed.
Source: plugin contract of 0.23 §7.5.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from queue import Empty, Full, Queue
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.text import nearest_name
from hermes_agent.hooks.bus import HookBus
from hermes_agent.hooks.catalog import HOOKS, matches_tool
from hermes_agent.hooks.observers import redact_payload
from hermes_agent.hooks.shell_hooks import REFUSED, TOOL_EVENTS, payload_of

logger = logging.getLogger(__name__)

DEFAULT_S, SHORTEST_S, LONGEST_S = 10.0, 1.0, 60.0
MAX_PENDING = 256
PAUSE_S = 1.0
"""Seconds before the second attempt."""
IDLE_S = 30.0
"""Seconds after which an idle sender ends its thread."""
OWNER = "webhook:"


class OutboundHook(LazyNamedTuple):
    """One entry of `hooks.outbound`."""

    name: str
    url: str
    events: tuple[str, ...]
    matcher: str
    secret: str
    timeout_s: float

    @property
    def owner(self) -> str:
        """The name under which the webhook is accounted, as a plugin is."""
        return f"{OWNER}{self.name}"

    def matches(self, tool: str) -> bool:
        """Return whether the webhook is for this tool."""
        return matches_tool(self.matcher, tool)


def read_outbound(value: Any, environ: Mapping[str, str]) -> tuple[list[OutboundHook], list[str]]:
    """Return the webhooks of `hooks.outbound`, and what is wrong with the others."""
    found, problems = [], []
    for number, entry in enumerate(value if isinstance(value, list) else ()):
        hook, problem = _read_entry(entry, number, environ)
        if hook is not None:
            found.append(hook)
        if problem:
            problems.append(f"hooks.outbound[{number}]: {problem}")
    return found, problems


def split_denied(
    hooks: Sequence[OutboundHook], why_denied: Callable[[str], str]
) -> tuple[list[OutboundHook], list[str]]:
    """Return the webhooks that may be sent to, and what is wrong with the others.

    Args:
        why_denied: returns why the operator's table of hosts denies an address, or "".
    """
    reasons = [(hook, why_denied(hook.url)) for hook in hooks]
    return [hook for hook, why in reasons if not why], [f"{h.name} sends nothing: {why}" for h, why in reasons if why]


def _read_entry(entry: Any, number: int, environ: Mapping[str, str]) -> tuple[OutboundHook | None, str]:
    if not isinstance(entry, dict):
        return None, "an entry is a mapping with `url` and `events`"
    url, events = str(entry.get("url") or ""), entry.get("events")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None, f"url is {url!r}: expected an http or https address"
    names = [str(name) for name in events] if isinstance(events, list) else []
    unknown = [name for name in names if name not in HOOKS or name in REFUSED]
    if not names or unknown:
        near = nearest_name(unknown[0], tuple(HOOKS)) if unknown else ""
        meant = f" (did you mean `{near}`?)" if near else ""
        return None, f"there is no event {unknown[0]!r}{meant}" if unknown else "`events` names no event"
    secret, problem = str(entry.get("secret") or ""), ""
    if variable := entry.get("secret_env"):
        secret = environ.get(str(variable), "")
        if not secret:
            return None, f"the variable {variable} of secret_env is not set; nothing is sent without a signature"
    seconds = entry.get("timeout", DEFAULT_S)
    usable = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not usable:
        problem = f"timeout is {seconds!r}: {DEFAULT_S:g} seconds are used"
    timeout_s = min(max(float(seconds), SHORTEST_S), LONGEST_S) if usable else DEFAULT_S
    name = str(entry.get("name") or parts.hostname or number)
    return OutboundHook(name, url, tuple(names), str(entry.get("matcher") or ""), secret, timeout_s), problem


def signature(secret: str, body: bytes) -> str:
    """Return the value of the header `X-Hermes-Signature-256`."""
    return f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"


StoreEvent = Callable[[OutboundHook, str, str, bytes], bool]
"""Stores an event of a hook: name of the event, id of the delivery, body."""


def request_headers(hook: OutboundHook, event: str, delivery_id: str, body: bytes) -> dict[str, str]:
    """Return the headers of a request, with the signature if the webhook has a secret."""
    headers = {"Content-Type": "application/json", "X-Hermes-Event": event, "X-Hermes-Delivery": delivery_id}
    return headers | ({"X-Hermes-Signature-256": signature(hook.secret, body)} if hook.secret else {})


class SendFailure(LazyNamedTuple):
    """Why a request failed."""

    text: str
    passing: bool
    """Whether another attempt may succeed."""


SendEvent = Callable[[OutboundHook, str, str, bytes], SendFailure | None]
"""Sends an event in a background thread: hook, name of the event, id of the delivery, body."""


class _Delivery(LazyNamedTuple):
    hook: OutboundHook
    event: str
    id: str
    body: bytes


class OutboundWebhooks:
    """The webhooks of one host.

    Args:
        cwd: returns the working directory.
        profile: name of the agent's profile.
        spawn: runs the sender in a background thread (`Bridge.spawn`).
        send: sends one event; None for success.
        store: stores an event durably; False means that this process has no outbox.
    """

    def __init__(
        self,
        bus: HookBus,
        *,
        cwd: Callable[[], str],
        profile: str,
        spawn: Callable[[Callable[[], None]], None],
        send: SendEvent,
        store: StoreEvent = lambda *event: False,
    ) -> None:
        self._store, self._post = store, send
        self.by_name: dict[str, OutboundHook] = {}
        self._bus, self._cwd, self._profile, self._spawn = bus, cwd, profile, spawn
        self._pending: Queue[_Delivery] = Queue(MAX_PENDING)
        self._owners: list[str] = []
        self._is_running = False
        self._lock = threading.Lock()

    def load(self, hooks: Sequence[OutboundHook], known: Sequence[OutboundHook]) -> None:
        """Register these webhooks in place of those before.

        Args:
            known: these, and those to hosts that are denied now, for events that wait.
        """
        for owner in self._owners:
            self._bus.remove_owner(owner)
        self._owners = [hook.owner for hook in hooks]
        self.by_name = {hook.name: hook for hook in known}
        for hook in hooks:
            for event in hook.events:
                self._bus.add(event, self._callback(hook, event), hook.owner)

    def _callback(self, hook: OutboundHook, event: str) -> Callable[..., None]:
        def send(**values: Any) -> None:
            if event in TOOL_EVENTS and hook.matcher and not hook.matches(str(values.get("tool_name") or "")):
                return
            self._queue(hook, event, values)

        return send

    def _queue(self, hook: OutboundHook, event: str, values: Mapping[str, Any]) -> None:
        delivery_id = str(uuid4())
        payload = payload_of(event, values, cwd=self._cwd(), profile=self._profile)
        shown = {**redact_payload(payload), "delivery_id": delivery_id, "timestamp": datetime.now(UTC).isoformat()}
        body = json.dumps(shown, ensure_ascii=False, default=str).encode()
        if self._store(hook, event, delivery_id, body):
            return
        try:
            self._pending.put_nowait(_Delivery(hook, event, delivery_id, body))
        except Full:
            logger.warning("webhook %s: an event %s is dropped: %d wait", hook.name, event, MAX_PENDING)
            return
        with self._lock:
            starts, self._is_running = not self._is_running, True
        if starts:
            self._spawn(self._send_pending)

    def _send_pending(self) -> None:
        while True:
            try:
                delivery = self._pending.get(timeout=IDLE_S)
            except Empty:
                with self._lock:
                    if self._pending.empty():
                        self._is_running = False
                        return
                continue
            if why := self._send(delivery):
                logger.warning("webhook %s: event %s was not delivered: %s", delivery.hook.name, delivery.event, why)

    def _send(self, delivery: _Delivery) -> str:
        """Send a delivery, at most twice; return why it failed, or ""."""
        why = self._post(*delivery)
        if why is None or not why.passing:
            return "" if why is None else why.text
        time.sleep(PAUSE_S)
        why = self._post(*delivery)
        return "" if why is None else why.text
