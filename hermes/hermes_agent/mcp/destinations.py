"""Where the HTTP client of an MCP server may go: the server names further addresses itself (redirects, OAuth)."""

from __future__ import annotations

from typing import Any

from hermes_agent.io.http import AddressRefused, addresses_of, may_connect, safe_url_for_log
from hermes_agent.policy.network import InvalidHost, Tables, journal
from hermes_agent.tools.destinations import destination

__all__ = ["Destinations"]

UNLISTED = "`network.hosts` does not name it, and no user can be asked (`network.tools` is `ask`)"
_JUDGED = "hermes_addresses"


class Destinations:
    """Judges each request of one server's client by the operator's table of hosts.

    The host of the config is the operator's: it may have a private address. Every other one has a public address, or
    one that the table names.

    Args:
        name, url: of the server in the config.
    """

    def __init__(self, name: str, url: str, tables: Tables) -> None:
        self._tool, self._tables = f"mcp:{name}", tables
        self._own = _place(url)[0]
        self._noted: set[tuple[str, int]] = set()

    async def check(self, request: Any) -> None:
        """Judge a request, and look up its host: an event hook of the client.

        Raises:
            AddressRefused: it may not be sent.
        """
        host, port = place = _place(str(request.url))
        rule = self._tables.tool_rule(host, port)
        why = rule.why or ("" if rule.verdict == "listed" else UNLISTED)
        try:
            if why:
                raise AddressRefused(why)
            found = await addresses_of(host, port, lambda address: self._may_ask(host, address, port))
            request.extensions[_JUDGED] = found
        except AddressRefused as exc:
            journal("", self._tool, host, port, f"refused ({exc})")
            raise AddressRefused(f"{safe_url_for_log(str(request.url))} is not asked: {exc}") from exc
        if place not in self._noted:
            self._noted.add(place)
            journal("", self._tool, host, port, "allowed")

    def _may_ask(self, host: str, address: str, port: int) -> bool:
        table = self._tables.now()
        own = host == self._own and may_connect(address, private=True) and not table.denies_address(address, port)
        return own or table.may_ask(address, port)

    def transport(self, http: Any, verify: Any) -> Any:
        """Return what connects to the addresses that were judged; `http` is the HTTP library."""

        class Pinned(http.AsyncHTTPTransport):  # type: ignore[misc]
            async def handle_async_request(self, request: Any) -> Any:
                addresses = list(request.extensions.get(_JUDGED) or [request.url.host])
                extensions = {**request.extensions, "sni_hostname": request.url.host}
                while True:
                    to = request.url.copy_with(host=addresses.pop(0))
                    asked = http.Request(
                        request.method, to, headers=request.headers, stream=request.stream, extensions=extensions
                    )
                    try:
                        return await super().handle_async_request(asked)
                    except http.ConnectError:
                        if not addresses:
                            raise

        return Pinned(verify=verify)


def _place(url: str) -> tuple[str, int]:
    try:
        place = destination(url)
    except InvalidHost as exc:
        raise AddressRefused(str(exc)) from None
    if place is None:
        raise AddressRefused(f"{safe_url_for_log(url)} leads to no host")
    return place
