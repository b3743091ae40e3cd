"""An MCP server at an address: its HTTP client, the hosts that it may reach, and the OAuth sign-in.

The server itself names further addresses, in redirects and for OAuth, so each request is checked against the operator's
table of hosts.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from hermes_agent.adapters.proxies import resolve_proxy_url
from hermes_agent.core.errors import UserError
from hermes_agent.credentials.oauth import CallbackServer
from hermes_agent.mcp import sdk
from hermes_agent.mcp.settings import McpServerSettings
from hermes_agent.policy.network import HostTables, InvalidHost, log_connection
from hermes_agent.system.files import PRIVATE, write_atomic
from hermes_agent.system.safe_http import AddressRejected, is_allowed_address, resolve_host, safe_url_for_log
from hermes_agent.tools.approval_gate import parse_destination

UNLISTED = "`network.hosts` does not name it, and no user can be asked (`network.tools` is `ask`)"
_JUDGED = "hermes_addresses"


class McpDestinations:
    """Checks each request of one server's client against the operator's table of hosts.

    The host and port of the config may have a private address, because the operator chose them. Every other host needs
    a public address, or one that the table names.

    Args:
        name: name of the server in the config.
        url: its address in the config.
    """

    def __init__(self, name: str, url: str, tables: HostTables) -> None:
        self._tool, self._tables = f"mcp:{name}", tables
        host, port = _host_and_port(url)
        self._own = {(host, port), *({(host, 443)} if port == 80 else ())}
        self._logged: set[tuple[str, int]] = set()

    async def check(self, request: Any) -> None:
        """Check a request and resolve its host; an event hook of the client.

        Raises:
            AddressRejected: the request may not be sent.
        """
        host, port = place = _host_and_port(str(request.url))
        rule = self._tables.judge_for_tool(host, port)
        why = rule.why or ("" if rule.verdict == "listed" else UNLISTED)
        try:
            if why:
                raise AddressRejected(why)
            found = await resolve_host(host, port, lambda address: self._may_ask(place, address))
            request.extensions[_JUDGED] = found
        except AddressRejected as exc:
            log_connection("", self._tool, host, port, f"refused ({exc})")
            raise AddressRejected(f"{safe_url_for_log(str(request.url))} gets no request: {exc}") from exc
        if place not in self._logged:
            self._logged.add(place)
            log_connection("", self._tool, host, port, "allowed")

    def _may_ask(self, place: tuple[str, int], address: str) -> bool:
        table = self._tables.current()
        own = place in self._own and table.may_ask_own(address, place[1])
        return own or table.may_connect(address, place[1])

    def transport(self, http: Any, verify: Any) -> Any:
        """Return a transport that connects only to the checked addresses. `http`: the HTTP library.

        Public addresses are reached through the proxy of the environment, if there is one: the operator set it.
        """

        class Pinned(http.AsyncHTTPTransport):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__(verify=verify)
                self._proxies: dict[str, Any] = {}

            async def handle_async_request(self, request: Any) -> Any:
                if not request.extensions.get(_JUDGED):
                    raise AddressRejected(f"{safe_url_for_log(str(request.url))} was not checked")
                addresses = list(request.extensions[_JUDGED])
                proxy = resolve_proxy_url(target_hosts=[request.url.host])
                if proxy is not None and all(is_allowed_address(address, private=False) for address in addresses):
                    if proxy not in self._proxies:
                        self._proxies[proxy] = http.AsyncHTTPTransport(verify=verify, proxy=proxy)
                    return await self._proxies[proxy].handle_async_request(request)
                extensions = {**request.extensions, "sni_hostname": request.url.host}
                while True:
                    to = request.url.copy_with(host=addresses.pop(0))
                    pinned = http.Request(
                        request.method, to, headers=request.headers, stream=request.stream, extensions=extensions
                    )
                    try:
                        return await super().handle_async_request(pinned)
                    except (http.ConnectError, http.ConnectTimeout):
                        if not addresses:
                            raise

            async def aclose(self) -> None:
                for proxied in self._proxies.values():
                    await proxied.aclose()
                await super().aclose()

        return Pinned()


def _host_and_port(url: str) -> tuple[str, int]:
    try:
        place = parse_destination(url)
    except InvalidHost as exc:
        raise AddressRejected(str(exc)) from None
    if place is None:
        raise AddressRejected(f"{safe_url_for_log(url)} leads to no host")
    return place


CONNECT_S = 30.0
CLIENT_NAME = "hermes-agent"


class LoginRequired(UserError):
    """The server needs a sign-in."""


@contextlib.asynccontextmanager
async def http_streams(
    settings: McpServerSettings, home: Path, auth: Any = None, *, tables: HostTables
) -> AsyncIterator[tuple[Any, Any]]:
    """Yield the two streams of a server at an address.

    Args:
        tables: the operator's lists of hosts.
        auth: authentication of the client; None uses the stored tokens if the server has OAuth.
    """
    if auth is None and settings.oauth is not None:
        auth = _auth(settings, TokenStore(home, settings), _refuse_login(settings.name))
    http = sdk.http_library()
    timeout = http.Timeout(CONNECT_S, read=max(settings.timeout_s, 300.0))
    certificate = (settings.client_cert, settings.client_key or None) if settings.client_cert else None
    verify = _verify(settings.ssl_verify, certificate)
    destinations = McpDestinations(settings.name, settings.url, tables)

    def client(headers: Any = None, timeout: Any = timeout, auth: Any = auth) -> Any:
        more = {**settings.headers, **(headers or {})}
        return http.AsyncClient(
            headers=more,
            timeout=timeout,
            auth=auth,
            verify=verify,
            transport=destinations.transport(http, verify),
            event_hooks={"request": [destinations.check]},
        )

    if settings.sse:
        sse_client = sdk.load_class("mcp.client.sse", "sse_client")
        async with sse_client(settings.url, httpx_client_factory=client, auth=auth) as both:
            yield both
        return
    streamable = sdk.load_class("mcp.client.streamable_http", "streamable_http_client")
    async with client() as http_client, streamable(settings.url, http_client=http_client) as found:
        yield found[0], found[1]


def _verify(verify: bool | str, certificate: tuple[str, str | None] | None) -> Any:
    """Return the `verify` argument of the HTTP library."""
    if isinstance(verify, bool) and certificate is None:
        return verify
    import ssl  # with the HTTP library

    context = ssl.create_default_context(cafile=verify if isinstance(verify, str) else None)
    if verify is False:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(*certificate)
    return context


class TokenStore:
    """The store of a sign-in for the SDK: `HOME/mcp-tokens/SERVER.json`, which only its owner may read."""

    def __init__(self, home: Path, settings: McpServerSettings, redirect: str = "") -> None:
        self.path = home / "mcp-tokens" / f"{re.sub(r'[^A-Za-z0-9_-]', '_', settings.name)}.json"
        self._settings = settings
        self._redirect = redirect
        self._is_new = bool(redirect)
        """Whether a new sign-in replaces the stored one."""

    def _stored(self) -> dict[str, Any]:
        if self._is_new:
            return {}
        try:
            value = json.loads(self.path.read_text())
        except (OSError, ValueError):
            return {}
        return value if isinstance(value, dict) and value.get("url") == self._settings.url else {}

    def _store(self, **changes: Any) -> None:
        value = {**self._stored(), "url": self._settings.url, **changes}
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(self.path, json.dumps(value), mode=PRIVATE)
        self._is_new = False

    @property
    def ends_at(self) -> float | None:
        """Time at which the stored token ends, in seconds since the epoch; the SDK does not store it."""
        ends = self._stored().get("ends_at")
        return float(ends) if isinstance(ends, int | float) else None

    async def get_tokens(self) -> Any:
        """Return the stored tokens, or None."""
        value = self._stored().get("tokens")
        return sdk.load_class("mcp.shared.auth", "OAuthToken").model_validate(value) if value else None

    async def set_tokens(self, tokens: Any) -> None:
        """Store tokens."""
        value = tokens.model_dump(mode="json", exclude_none=True)
        ends = value.get("expires_in")
        self._store(tokens=value, ends_at=time.time() + float(ends) if ends else None)

    async def get_client_info(self) -> Any:
        """Return the OAuth client of the config, or the one that the server registered, or None."""
        settings = self._settings.oauth or {}
        value = self._stored().get("client")
        if settings.get("client_id"):
            secret = settings.get("client_secret") or None
            value = {"client_id": settings["client_id"], "client_secret": secret, "scope": settings.get("scope")}
            value["token_endpoint_auth_method"] = "client_secret_post" if secret else "none"
            value["redirect_uris"] = [self._redirect or "http://127.0.0.1/callback"]
        return sdk.load_class("mcp.shared.auth", "OAuthClientInformationFull").model_validate(value) if value else None

    async def set_client_info(self, client: Any) -> None:
        """Store the OAuth client that the server registered."""
        self._store(client=client.model_dump(mode="json", exclude_none=True))


def _auth(
    settings: McpServerSettings, tokens: TokenStore, on_redirect: Any, on_callback: Any = None, redirect: str = ""
) -> Any:
    oauth = settings.oauth or {}
    metadata = sdk.load_class("mcp.shared.auth", "OAuthClientMetadata")(
        redirect_uris=[redirect or "http://127.0.0.1/callback"],
        client_name=CLIENT_NAME,
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        scope=oauth.get("scope") or None,
        token_endpoint_auth_method="client_secret_post" if oauth.get("client_secret") else "none",
    )
    provider = sdk.load_class("mcp.client.auth", "OAuthClientProvider")
    auth = provider(settings.url, metadata, tokens, on_redirect, on_callback or on_redirect)
    auth.context.token_expiry_time = tokens.ends_at
    return auth


def _refuse_login(name: str) -> Callable[..., Any]:
    async def refuse(*args: Any) -> Any:
        raise LoginRequired(f"the MCP server {name} needs a sign-in", hint=f"Sign in with `hermes mcp login {name}`.")

    return refuse


@contextlib.contextmanager
def _callback_server(port: int) -> Any:
    try:
        callback = CallbackServer(port)
    except OSError as exc:
        raise UserError(
            f"port {port} of this machine is taken: {exc}", hint="Set another `oauth.redirect_port`."
        ) from exc
    with callback:
        yield callback


async def sign_in(settings: McpServerSettings, home: Path, show: Callable[[str], None], tables: HostTables) -> None:
    """Sign in at a server with the user's browser; it blocks this loop.

    Args:
        show: called with the address to open.
        tables: the operator's lists of hosts.

    Raises:
        UserError: the sign-in was refused, or did not end in time.
    """
    with _callback_server(int((settings.oauth or {}).get("redirect_port") or 0)) as callback:
        redirect = f"http://127.0.0.1:{callback.server_address[1]}/callback"
        state = ""

        async def open_address(address: str) -> None:
            nonlocal state
            state = dict(parse_qsl(urlsplit(address).query)).get("state", "")
            show(address)

        async def wait_callback() -> Any:
            code = callback.code(f"the MCP server {settings.name}", state)
            if not hasattr(sdk.load_class("mcp.shared", "auth"), "AuthorizationCodeResult"):
                return code, state
            result = sdk.load_class("mcp.shared.auth", "AuthorizationCodeResult")
            return result(code=code, state=state, iss=callback.answer.get("iss"))

        auth = _auth(settings, TokenStore(home, settings, redirect), open_address, wait_callback, redirect)
        transport = http_streams(settings, home, auth, tables=tables)
        async with sdk.open_session(transport, sdk.ServerCallbacks(lambda: None, None, None)) as session:
            await session.list_all("tools")
