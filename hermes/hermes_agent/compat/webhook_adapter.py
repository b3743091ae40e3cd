"""Upstream's adapter that turns signed HTTP requests into turns; platform plugins derive from it.

Its settings are a platform's `extra`: `host`, `port`, `secret`, `rate_limit`, `max_body_bytes`, and `routes`, a mapping
from names to `{secret, events, filters, script, prompt, skills, deliver, deliver_extra, deliver_only, enabled}`.
Further routes stand in `HOME/webhook_subscriptions.json`. The agent's own webhooks are another thing: addresses of the
daemon (`webhooks` of the config).

Source: plugin contract §8.2.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import logging
import re
import time
import urllib.parse
from collections import deque
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from hermes_agent.adapters.base import BasePlatformAdapter
from hermes_agent.adapters.config import Platform, PlatformConfig
from hermes_agent.adapters.events import MessageEvent, MessageType, SendResult
from hermes_agent.compat.gateway import platform_registry
from hermes_agent.compat.lookups import is_network_accessible
from hermes_agent.compat.plugins import get_skill_commands
from hermes_agent.compat.tool_queries import build_skill_invocation_message
from hermes_agent.compat.webhook_routes import DEFAULT_SCRIPT_TIMEOUT_SECONDS, WebhookRouteProcessor
from hermes_agent.config import hermes_home

if TYPE_CHECKING:
    from aiohttp import web

logger = logging.getLogger(__name__)

DEFAULT_HOST = None
DEFAULT_PORT = 8644
INSECURE_NO_AUTH = "INSECURE_NO_AUTH"
"""Secret of a route that checks no signature; for an address of this machine alone."""
SUBSCRIPTIONS = "webhook_subscriptions.json"
RATE_WINDOW_S = 60.0
MAX_AGE_S = 300.0
"""Largest difference between a signed time and now."""
KEPT_S = 3600
"""How long a delivery is known, for its reply and for being sent twice."""
LONGEST_PAYLOAD, LONGEST_PART = 4_000, 2_000
"""Limits of a payload and of a part of one in a prompt, in characters."""
COMMENT_S = 30.0
_FIELD = re.compile(r"\{([a-zA-Z0-9_.]+)\}")
_REPOSITORY = re.compile(r"[A-Za-z0-9._-]+/[A-Za-z0-9._-]+")


def check_webhook_requirements() -> bool:
    """Return whether the HTTP server's library is installed."""
    return find_spec("aiohttp") is not None


class WebhookAdapter(BasePlatformAdapter):
    """Receives events by HTTP; each begins a conversation of its own."""

    interactive_resume = False

    def __init__(self, config: PlatformConfig) -> None:
        super().__init__(config, Platform.WEBHOOK)
        extra = config.extra
        self._host: str | None = extra.get("host", DEFAULT_HOST) or None
        self._port = int(extra.get("port", DEFAULT_PORT))
        self._global_secret = str(extra.get("secret", ""))
        self._static_routes: dict[str, dict[str, Any]] = extra.get("routes", {})
        self._dynamic_routes: dict[str, dict[str, Any]] = {}
        self._routes: dict[str, dict[str, Any]] = dict(self._static_routes)
        self._runner: web.AppRunner | None = None
        self._delivery_info: dict[str, dict[str, Any]] = {}
        """Where the replies of a chat go; read by each reply, so it is removed by age alone."""
        self._delivery_info_created: dict[str, float] = {}
        self._delivery_info_order: deque[tuple[float, str]] = deque()
        self._seen_deliveries: dict[str, float] = {}
        self._idempotency_ttl = KEPT_S
        self._rate_counts: dict[str, deque[float]] = {}
        self._rate_limit = int(extra.get("rate_limit", 30))
        self._max_body_bytes = int(extra.get("max_body_bytes", 1_048_576))
        self._script_timeout_seconds = int(extra.get("script_timeout_seconds", DEFAULT_SCRIPT_TIMEOUT_SECONDS))
        self._route_processor = WebhookRouteProcessor(script_timeout_seconds=self._script_timeout_seconds)

    # -- the server ------------------------------------------------------------------------------------------

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        """Listen; return False if the address cannot be had.

        Raises:
            ValueError: a route has no secret, is open to other machines, or delivers directly to nowhere.
        """
        from aiohttp import web  # a start without such a platform does not load it

        self._reload_dynamic_routes()
        for name, route in self._routes.items():
            if problem := self._problem_of(name, route):
                raise ValueError(problem)
        app = web.Application(client_max_size=self._max_body_bytes)
        app.router.add_get("/health", self._handle_health)
        app.router.add_post("/webhooks/{route_name}", self._handle_webhook)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port).start()
        except OSError as exc:
            await self._runner.cleanup()
            self._runner = None
            where = f"{self._host or 'all addresses'} port {self._port}"
            logger.error("[%s] cannot listen on %s: %s; set `host` or `port` of the platform", self.name, where, exc)
            return False
        self._mark_connected()
        return True

    async def disconnect(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        self._mark_disconnected()

    def _problem_of(self, name: str, route: Mapping[str, Any]) -> str:
        secret = route.get("secret", self._global_secret)
        if not secret:
            return f"webhook route '{name}' has no secret: set `secret` of the route or of the platform"
        if secret == INSECURE_NO_AUTH and is_network_accessible(self._host or ""):
            return f"webhook route '{name}' checks no signature, and {self._host or 'every address'} can be reached"
        if route.get("deliver_only") and route.get("deliver", "log") in ("", "log"):
            return f"webhook route '{name}' has deliver_only, and its `deliver` names no platform"
        return ""

    def _reload_dynamic_routes(self) -> None:
        """Read the subscriptions again; one without a usable secret is left out."""
        path = hermes_home() / SUBSCRIPTIONS
        try:
            read = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            read = {}
        except (OSError, ValueError) as exc:
            logger.error("[%s] %s cannot be read: %s; the routes stay as they were", self.name, path, exc)
            return
        found = {}
        for name, route in read.items() if isinstance(read, dict) else ():
            if name in self._static_routes or not isinstance(route, dict):
                continue
            if problem := self._problem_of(name, route):
                logger.warning("[%s] %s", self.name, problem)
            else:
                found[name] = route
        self._dynamic_routes = found
        self._routes = {**found, **self._static_routes}

    # -- requests --------------------------------------------------------------------------------------------

    async def _handle_health(self, request: web.Request) -> web.Response:
        return _reply({"status": "ok", "platform": "webhook"})

    async def _handle_webhook(self, request: web.Request) -> web.Response:
        """Check a request, and start its turn or deliver its text."""
        from aiohttp import web

        self._reload_dynamic_routes()
        name = request.match_info.get("route_name", "")
        route = self._routes.get(name)
        if route is None:
            return _reply({"error": f"Unknown route: {name}"}, 404)
        if route.get("enabled", True) is False:
            return _reply({"error": f"Route disabled: {name}"}, 403)
        try:
            body = b"" if (request.content_length or 0) > self._max_body_bytes else await request.read()
        except web.HTTPRequestEntityTooLarge:
            body = b""
        if not body:
            return _reply({"error": "The body is empty or too large"}, 413)
        secret = str(route.get("secret", self._global_secret))
        if not secret:
            return _reply({"error": "The route has no secret"}, 403)
        if secret != INSECURE_NO_AUTH and not self._validate_signature(request, body, secret):
            logger.warning("[%s] route %s: request without a valid signature refused", self.name, name)
            return _reply({"error": "Invalid signature"}, 401)
        now = time.time()
        if not self._record_rate_limit_hit(name, now):
            return _reply({"error": "Rate limit exceeded"}, 429)
        payload = _payload(body)
        if payload is None:
            return _reply({"error": "Cannot parse body"}, 400)
        return await self._take(request, name, route, payload, now)

    async def _take(
        self, request: web.Request, name: str, route: dict[str, Any], payload: dict[str, Any], now: float
    ) -> web.Response:
        headers = request.headers
        inner = str(payload.get("event_type") or payload.get("type") or "unknown")
        event_type = headers.get("X-GitHub-Event") or headers.get("X-GitLab-Event") or inner
        ignored = {"status": "ignored", "route": name, "event": event_type}
        if (wanted := route.get("events") or []) and event_type not in wanted:
            return _reply(ignored)
        if not self._route_processor.route_filters_match(route, payload, event_type, headers):
            return _reply({**ignored, "reason": "filter"})
        if script := route.get("script"):
            goes_on, changed = await asyncio.to_thread(self._route_processor.run_route_script, script, payload)
            if not goes_on:
                return _reply({**ignored, "reason": "script"})
            payload = changed or payload
        prompt = self._render_prompt(route.get("prompt", ""), payload, event_type, name)
        names = ("X-GitHub-Delivery", "svix-id", "X-Request-ID")
        delivery_id = next((headers[n] for n in names if n in headers), str(int(now * 1000)))
        if not self._record_delivery_id(delivery_id, now):
            return _reply({"status": "duplicate", "delivery_id": delivery_id})
        target = {
            "deliver": route.get("deliver", "log"),
            "deliver_extra": self._render_delivery_extra(route.get("deliver_extra", {}), payload),
            "payload": payload,
        }
        said = {"route": name, "event": event_type, "delivery_id": delivery_id}
        if route.get("deliver_only"):
            result = await self._direct_deliver(prompt, target)
            if result.success:
                return _reply({"status": "delivered", "target": target["deliver"], **said})
            logger.error("[%s] route %s: not delivered: %s", self.name, name, result.error)
            return _reply({"status": "error", "error": "Delivery failed", "delivery_id": delivery_id}, 502)
        chat = f"webhook:{name}:{delivery_id}"
        self._delivery_info[chat] = target
        self._delivery_info_created[chat] = now
        self._delivery_info_order.append((now, chat))
        self._prune_delivery_info(now)
        source = self.build_source(
            chat_id=chat, chat_name=f"webhook/{name}", chat_type="webhook", user_id=f"webhook:{name}", user_name=name
        )
        text = _with_skill(route.get("skills") or [], prompt)
        event = MessageEvent(text, MessageType.TEXT, source, raw_message=payload, message_id=delivery_id)
        task = asyncio.create_task(self.handle_message(event))
        self._background_tasks.add(task)
        task.add_done_callback(self._background_tasks.discard)
        return _reply({"status": "accepted", **said}, 202)

    def _validate_signature(self, request: web.Request, body: bytes, secret: str) -> bool:
        """Return whether a request is signed as GitHub, GitLab, Svix or the generic scheme do it.

        A request that shows a signature with a time is judged by it alone: the older one could be replayed.
        """
        headers = request.headers
        if any(name in headers for name in ("svix-id", "svix-timestamp", "svix-signature")):
            given = (headers.get(name, "") for name in ("svix-id", "svix-timestamp", "svix-signature"))
            return self._validate_svix_signature(body, secret, *given)
        if signature := headers.get("X-Hub-Signature-256", ""):
            return _same(signature, "sha256=" + _mac(secret.encode(), body).hex())
        if token := headers.get("X-Gitlab-Token", ""):
            return _same(token, secret)
        if signature := headers.get("X-Webhook-Signature-V2", ""):
            stamp = headers.get("X-Webhook-Timestamp", "")
            return _is_fresh(stamp) and _same(signature, _mac(secret.encode(), stamp.encode() + b"." + body).hex())
        signature = headers.get("X-Webhook-Signature", "")
        return bool(signature) and _same(signature, _mac(secret.encode(), body).hex())

    def _validate_svix_signature(
        self, body: bytes, secret: str, msg_id: str, timestamp: str, signature_header: str
    ) -> bool:
        if not (msg_id and signature_header and _is_fresh(timestamp)):
            return False
        key = secret.encode()
        if secret.startswith("whsec_"):
            try:
                key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
            except (binascii.Error, ValueError):
                return False
        right = base64.b64encode(_mac(key, b".".join((msg_id.encode(), timestamp.encode(), body)))).decode()
        given = (part.partition(",") for part in signature_header.split())
        return any(version == "v1" and _same(value, right) for version, _, value in given)

    def _record_rate_limit_hit(self, route_name: str, now: float) -> bool:
        """Count a request; return False if the route has had too many within a minute."""
        window = self._rate_counts.setdefault(route_name, deque())
        while window and window[0] < now - RATE_WINDOW_S:
            window.popleft()
        if len(window) >= self._rate_limit:
            return False
        window.append(now)
        return True

    def _record_delivery_id(self, delivery_id: str, now: float) -> bool:
        """Note a delivery; return False if it came before."""
        self._prune_seen_deliveries(now)
        if delivery_id in self._seen_deliveries:
            return False
        self._seen_deliveries[delivery_id] = now
        return True

    def _prune_seen_deliveries(self, now: float) -> None:
        cutoff = now - self._idempotency_ttl
        while self._seen_deliveries and (oldest := next(iter(self._seen_deliveries.items())))[1] < cutoff:
            del self._seen_deliveries[oldest[0]]

    def _prune_delivery_info(self, now: float) -> None:
        """Forget where the replies of old deliveries go."""
        while self._delivery_info_order and self._delivery_info_order[0][0] < now - self._idempotency_ttl:
            created, chat = self._delivery_info_order.popleft()
            if self._delivery_info_created.get(chat) == created:
                self._delivery_info.pop(chat, None)
                del self._delivery_info_created[chat]

    # -- texts -----------------------------------------------------------------------------------------------

    def _render_prompt(self, template: str, payload: dict[str, Any], event_type: str, route_name: str) -> str:
        """Return a template with each `{path.to.value}` replaced; an unknown path stays as it is."""
        whole = json.dumps(payload, indent=2)[:LONGEST_PAYLOAD]
        if not template:
            return f"Webhook event '{event_type}' on route '{route_name}':\n\n```json\n{whole}\n```"

        def value(match: re.Match[str]) -> str:
            if match[1] == "__raw__":
                return whole
            if match[1] == "event_type":
                return event_type
            found: Any = payload
            for step in match[1].split("."):
                if not isinstance(found, dict):
                    return match[0]
                found = found.get(step, match[0])
            return json.dumps(found, indent=2)[:LONGEST_PART] if isinstance(found, dict | list) else str(found)

        return _FIELD.sub(value, template)

    def _render_delivery_extra(self, extra: Mapping[str, Any], payload: dict[str, Any]) -> dict[str, Any]:
        """Return the settings of a delivery, their texts filled as a prompt is."""
        return {k: self._render_prompt(v, payload, "", "") if isinstance(v, str) else v for k, v in extra.items()}

    # -- replies ---------------------------------------------------------------------------------------------

    async def get_chat_info(self, chat_id: str) -> dict[str, Any]:
        """Return the name and type of a chat."""
        return {"name": chat_id, "type": "webhook"}

    async def send(
        self, chat_id: str, content: str, reply_to: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> SendResult:
        """Send a reply where its route says: to the log, a GitHub comment, or a chat of another platform."""
        return await self._direct_deliver(content, self._delivery_info.get(chat_id, {}))

    async def _direct_deliver(self, content: str, delivery: dict[str, Any]) -> SendResult:
        target = delivery.get("deliver", "log")
        if target == "log":
            logger.info("[%s] reply: %s", self.name, content[:200])
            return SendResult(success=True)
        if target == "github_comment":
            return await self._deliver_github_comment(content, delivery)
        return await self._deliver_cross_platform(target, content, delivery)

    async def _deliver_cross_platform(self, platform_name: str, content: str, delivery: dict[str, Any]) -> SendResult:
        """Send a text to a chat of another platform, by default to its home channel."""
        runner = self.gateway_runner
        if runner is None:
            return SendResult(success=False, error="No gateway runner for cross-platform delivery")
        try:
            platform = Platform(platform_name)
        except ValueError:
            names = ", ".join(sorted(platform_registry().names()))
            return SendResult(success=False, error=f"Unknown platform: {platform_name}; there are {names}")
        adapter = runner.adapters.get(platform)
        if adapter is None:
            return SendResult(success=False, error=f"Platform {platform_name} not connected")
        extra = delivery.get("deliver_extra", {})
        home = None if extra.get("chat_id") else runner.config.get_home_channel(platform)
        chat_id = extra.get("chat_id") or (home.chat_id if home is not None else "")
        if not chat_id:
            return SendResult(success=False, error=f"No chat_id or home channel for {platform_name}")
        thread = extra.get("message_thread_id") or extra.get("thread_id")
        sent: SendResult = await adapter.send(chat_id, content, metadata={"thread_id": thread} if thread else None)
        return sent

    async def _deliver_github_comment(self, content: str, delivery: dict[str, Any]) -> SendResult:
        """Write a comment on a pull request with the program `gh`."""
        extra = delivery.get("deliver_extra", {})
        repository, number = str(extra.get("repo", "")), str(extra.get("pr_number", ""))
        if not _REPOSITORY.fullmatch(repository) or not number.isdecimal() or int(number) == 0:
            return SendResult(success=False, error=f"Invalid repo or pr_number: {repository!r}, {number!r}")
        command = ("gh", "pr", "comment", number, "--repo", repository, "--body-file", "-")
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
            _, said = await asyncio.wait_for(process.communicate(content.encode()), COMMENT_S)
        except FileNotFoundError:
            return SendResult(success=False, error="the program `gh` is not installed")
        except TimeoutError:
            process.kill()
            return SendResult(success=False, error=f"`gh` did not end within {COMMENT_S:g} s")
        return SendResult(success=process.returncode == 0, error=said.decode(errors="replace").strip() or None)


def _reply(value: dict[str, Any], status: int = 200) -> web.Response:
    from aiohttp import web

    return web.json_response(value, status=status)


def _payload(body: bytes) -> dict[str, Any] | None:
    """Return the fields of a body: JSON or a form; None if it is neither."""
    try:
        read = json.loads(body)
    except ValueError:
        fields = urllib.parse.parse_qs(body.decode(errors="replace"))
        return {name: values[0] for name, values in fields.items()} or None
    return read if isinstance(read, dict) else {"payload": read}


def _with_skill(names: list[str], prompt: str) -> str:
    """Return the prompt as the message of the first of these skills that exists."""
    known = get_skill_commands() if names else {}
    for name in names:
        if f"/{name}" in known and (text := build_skill_invocation_message(f"/{name}", user_instruction=prompt)):
            return text
        logger.warning("webhook: there is no skill '%s'; `hermes skills list` shows them", name)
    return prompt


def _mac(key: bytes, content: bytes) -> bytes:
    return hmac.new(key, content, hashlib.sha256).digest()


def _same(given: str, right: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), right.encode())


def _is_fresh(stamp: str) -> bool:
    return stamp.isascii() and stamp.isdigit() and abs(time.time() - int(stamp[:12])) <= MAX_AGE_S
