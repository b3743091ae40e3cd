"""Where the HTTP client of an MCP server may go: the server names further addresses itself (redirects, OAuth)."""

from __future__ import annotations

from typing import Any

from hermes_agent.contracts.platform.proxies import resolve_proxy_url
from hermes_agent.io.http import AddressRejected, is_allowed_address, resolve_host, safe_url_for_log
from hermes_agent.policy.network import HostTables, InvalidHost, log_connection
from hermes_agent.tools.destinations import parse_destination

__all__ = ["McpDestinations"]

UNLISTED = "`network.hosts` does not name it, and no user can be asked (`network.tools` is `ask`)"
_JUDGED = "hermes_addresses"


class McpDestinations:
    """Judges each request of one server's client by the operator's table of hosts.

    The host and port of the config are the operator's: they may have a private address. Every other one has a public
    address, or one that the table names.

    Args:
        name, url: of the server in the config.
    """

    def __init__(self, name: str, url: str, tables: HostTables) -> None:
        self._tool, self._tables = f"mcp:{name}", tables
        host, port = _host_and_port(url)
        self._own = {(host, port), *({(host, 443)} if port == 80 else ())}
        self._logged: set[tuple[str, int]] = set()

    async def check(self, request: Any) -> None:
        """Judge a request, and look up its host: an event hook of the client.

        Raises:
            AddressRejected: it may not be sent.
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
            raise AddressRejected(f"{safe_url_for_log(str(request.url))} is not asked: {exc}") from exc
        if place not in self._logged:
            self._logged.add(place)
            log_connection("", self._tool, host, port, "allowed")

    def _may_ask(self, place: tuple[str, int], address: str) -> bool:
        table = self._tables.current()
        own = (
            place in self._own
            and is_allowed_address(address, private=True)
            and not table.denies_address(address, place[1])
        )
        return own or table.may_connect(address, place[1])

    def transport(self, http: Any, verify: Any) -> Any:
        """Return what connects to the addresses that were judged; `http` is the HTTP library.

        Public ones are asked through the proxy of the environment, where there is one: it is the operator's.
        """

        class Pinned(http.AsyncHTTPTransport):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__(verify=verify)
                self._proxies: dict[str, Any] = {}

            async def handle_async_request(self, request: Any) -> Any:
                if not request.extensions.get(_JUDGED):
                    raise AddressRejected(f"{safe_url_for_log(str(request.url))} was not judged")
                addresses = list(request.extensions[_JUDGED])
                proxy = resolve_proxy_url(target_hosts=[request.url.host])
                if proxy is not None and all(is_allowed_address(address, private=False) for address in addresses):
                    if proxy not in self._proxies:
                        self._proxies[proxy] = http.AsyncHTTPTransport(verify=verify, proxy=proxy)
                    return await self._proxies[proxy].handle_async_request(request)
                extensions = {**request.extensions, "sni_hostname": request.url.host}
                while True:
                    to = request.url.copy_with(host=addresses.pop(0))
                    asked = http.Request(
                        request.method, to, headers=request.headers, stream=request.stream, extensions=extensions
                    )
                    try:
                        return await super().handle_async_request(asked)
                    except (http.ConnectError, http.ConnectTimeout):
                        if not addresses:
                            raise

            async def aclose(self) -> None:
                for one in self._proxies.values():
                    await one.aclose()
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
