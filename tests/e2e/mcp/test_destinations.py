"""Where the client of an MCP server at an address may go: the table of hosts, and what the server itself names."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import json
import sys
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from e2e.mcp.conftest import PEER, mcp_config, quiet
from hermes_agent.config.settings import Settings
from hermes_agent.mcp import sdk
from hermes_agent.mcp.http_transport import McpDestinations, sign_in
from hermes_agent.mcp.servers import McpServers
from hermes_agent.mcp.settings import McpServerSettings
from hermes_agent.policy.network import HostTables
from hermes_agent.system.safe_http import AddressRejected
from hermes_agent.testing import plugin_host
from peers.running import free_port, running

pytest.importorskip("mcp")


class Answering(http.server.ThreadingHTTPServer):
    """Has pages, answers everything else in the same way, and keeps what was asked."""

    leads_to, status = "", 307

    def __init__(self, address: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__((address, port), _Handler)
        self.asked: list[str] = []
        self.pages: dict[str, Any] = {}
        self.refuses_with: dict[str, str] = {}
        """Fields of the answer to who has not signed in."""


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Answering)
        server = self.server
        server.asked.append(self.path)
        body = json.dumps(server.pages[self.path]).encode() if self.path in server.pages else b""
        failed = 401 if server.refuses_with else 500
        self.send_response(200 if body else server.status if server.leads_to else failed)
        if server.leads_to:
            self.send_header("Location", server.leads_to)
        for name, value in server.refuses_with.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST

    def log_message(self, *args: Any) -> None:
        return


@contextlib.contextmanager
def serving(address: str = "127.0.0.1", port: int = 0) -> Iterator[Answering]:
    with Answering(address, port) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def connected_to(url: str, more: Mapping[str, Any] = {}, **network: Any) -> str:
    """Return why a host is not connected to a server at that address."""
    config = mcp_config(weather={"url": url, "connect_timeout": 20, **more}) | {"network": network}
    with plugin_host(quiet, config=config) as host:
        host.host.service(McpServers).wait_connected(60)
        return str(host.host.service(McpServers).status()[0].error)


@pytest.mark.attack("egress")
@pytest.mark.parametrize("network", [{"tools": "hosts"}, {"tools": "ask"}, {"deny": ["127.0.0.1"]}])
def test_a_server_that_the_table_does_not_allow_is_not_asked(network: dict[str, Any]) -> None:
    with serving() as server:
        why = connected_to(f"http://127.0.0.1:{server.server_port}/mcp", **network)
    assert server.asked == [] and "gets no request: `network." in why


def test_a_listed_server_and_by_default_each_is_asked() -> None:
    with serving() as server:
        url = f"http://127.0.0.1:{server.server_port}/mcp"
        connected_to(url)
        connected_to(url, tools="hosts", hosts=["127.0.0.1:*"])
    assert len(server.asked) >= 2


@pytest.mark.attack("egress")
@pytest.mark.parametrize(
    "place", ["http://127.0.0.2:{port}/", "http://169.254.169.254/latest/", "http://0x7f000002:{port}/"]
)
def test_a_server_does_not_lead_the_agent_to_other_hosts_of_the_machine(place: str) -> None:
    with serving() as server, serving() as other:
        server.leads_to = place.format(port=other.server_port)
        connected_to(f"http://127.0.0.1:{server.server_port}/mcp")
    assert server.asked and other.asked == []


# -- what a server names itself, and what names resolve to -----------------------------------------------------


OAUTH = {"auth": {"type": "oauth"}, "oauth": {"scope": "user"}}


def described(server: Answering, login: str) -> str:
    """Let a server send those who ask to another one, where they sign in; return its address."""
    url = f"http://mcp.example:{server.server_port}"
    about = f"{url}/.well-known/oauth-protected-resource/mcp"
    server.refuses_with = {"WWW-Authenticate": f'Bearer resource_metadata="{about}"'}
    server.pages[about.removeprefix(url)] = {"resource": f"{url}/mcp", "authorization_servers": [login]}
    return f"{url}/mcp"


@pytest.mark.attack("egress")
@pytest.mark.parametrize(
    ("leads_to", "network"),
    [
        ("127.0.0.2", {}),
        ("169.254.169.254", {"hosts": ["169.254.0.0/16:*"]}),
        ("127.0.0.2", {"hosts": ["login.example:*"]}),  # a name alone opens no private address
        ("127.0.0.2", {"hosts": ["127.0.0.2:*"], "deny": ["login.example"]}),
        ("127.0.0.2", {"hosts": ["127.0.0.2:*", "mcp.example:*"], "tools": "hosts"}),
        ("127.0.0.2", {"hosts": ["127.0.0.2:*", "mcp.example:*"], "tools": "ask"}),
    ],
)
def test_a_server_does_not_send_the_agent_to_sign_in_where_the_table_does_not_allow(
    resolving: dict[str, list[str]], leads_to: str, network: dict[str, Any]
) -> None:
    resolving |= {"mcp.example": ["127.0.0.1"], "login.example": [leads_to]}
    with serving() as server, serving("127.0.0.2") as login:
        url = described(server, f"http://login.example:{login.server_port}")
        connected_to(url, more=OAUTH, **network)
    assert any("oauth-protected-resource" in path for path in server.asked) and login.asked == []


@pytest.mark.attack("egress")
def test_a_server_that_may_be_private_does_not_open_other_ports_of_its_host(resolving: dict[str, list[str]]) -> None:
    resolving["mcp.example"] = ["127.0.0.1"]
    with serving() as server, serving() as other:
        url = described(server, f"http://mcp.example:{other.server_port}")
        connected_to(url, more=OAUTH)
    assert server.asked and other.asked == []


def test_the_server_to_sign_in_at_is_asked_at_an_address_that_is_listed(resolving: dict[str, list[str]]) -> None:
    resolving |= {"mcp.example": ["127.0.0.1"], "login.example": ["127.0.0.2"]}
    with serving() as server, serving("127.0.0.2") as login:
        url = described(server, f"http://login.example:{login.server_port}")
        connected_to(url, more=OAUTH, hosts=["127.0.0.2:*"])
    assert "/.well-known/oauth-authorization-server" in login.asked


@pytest.mark.attack("egress")
def test_a_name_that_changes_between_the_judgement_and_the_connection_leads_nowhere_else(
    resolving: dict[str, list[str]],
) -> None:
    resolving |= {"mcp.example": ["127.0.0.1"], "login.example": ["127.0.0.2", "127.0.0.3"]}
    with serving("127.0.0.2") as judged, serving("127.0.0.3", judged.server_port) as changed, serving() as server:
        url = described(server, f"http://login.example:{judged.server_port}")
        connected_to(url, more=OAUTH, hosts=["127.0.0.2:*"])
    assert len(judged.asked) == 1, "the first request goes to what was judged, the next one is judged anew"
    assert changed.asked == []


@pytest.mark.attack("egress")
@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_no_redirect_of_a_sign_in_leads_to_the_machine(resolving: dict[str, list[str]], status: int) -> None:
    resolving |= {"mcp.example": ["127.0.0.1"], "login.example": ["127.0.0.2"]}
    with serving() as server, serving("127.0.0.2") as login, serving() as secret:
        url = described(server, f"http://login.example:{login.server_port}")
        login.leads_to, login.status = f"http://127.0.0.1:{secret.server_port}/", status
        connected_to(url, more=OAUTH, hosts=["127.0.0.2:*"])
    assert login.asked and secret.asked == []


async def test_a_public_server_is_asked_through_the_proxy_of_the_environment(
    resolving: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    resolving |= {"mcp.example": ["93.184.215.14"], "private.example": ["127.0.0.1"]}
    for name in ("HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)

    async def asked(url: str, **lists: Any) -> None:
        destinations = McpDestinations("weather", url, HostTables(lambda: Settings({"network": lists})))
        http = sdk.http_library()
        hooks = {"request": [destinations.check]}
        async with http.AsyncClient(transport=destinations.transport(http, True), event_hooks=hooks) as client:
            await client.post(url, json={})

    with serving() as proxy, serving() as server:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.server_port}")
        await asked("http://mcp.example/mcp")
        assert proxy.asked == ["http://mcp.example/mcp"]
        await asked(f"http://private.example:{server.server_port}/mcp")
        with pytest.raises(AddressRejected):
            await asked("http://mcp.example/mcp", deny=["mcp.example"])
    assert server.asked == ["/mcp"] and len(proxy.asked) == 1


@pytest.mark.attack("egress")
async def test_a_request_that_nobody_judged_is_not_sent() -> None:
    http = sdk.http_library()
    url = "http://127.0.0.1:9/"
    transport = McpDestinations("weather", url, HostTables(lambda: Settings({}))).transport(http, True)
    with pytest.raises(AddressRejected, match="was not checked"):
        await transport.handle_async_request(http.Request("GET", url))


async def test_the_whole_sign_in_at_a_server_of_another_name(tmp_path: Path) -> None:
    port = free_port()
    values = {"url": f"http://127.0.0.1:{port}/mcp", **OAUTH}
    issuer = f"http://localhost:{port}"
    settings = McpServerSettings.of("weather", values)

    def visit(address: str) -> None:  # the browser, which is sent back
        assert address.startswith(f"{issuer}/authorize?")
        threading.Thread(target=lambda: urllib.request.urlopen(address, timeout=60).close(), daemon=True).start()

    async def signed_in(**lists: Any) -> None:
        tables = HostTables(lambda: Settings({"network": lists}))
        await asyncio.wait_for(sign_in(settings, tmp_path, visit, tables), 60)

    environ = {"TEST_GUARDED": str(port), "TEST_ISSUER": issuer}
    with running([sys.executable, PEER, "http", str(port)], host="127.0.0.1", port=port, path="", environ=environ):
        with pytest.raises(BaseException) as refused:
            await signed_in(deny=["localhost"])
        assert not (tmp_path / "mcp-tokens").exists(), refused.value
        await signed_in(tools="hosts", hosts=["127.0.0.1:*", "[::1]:*", "localhost:*"])
    assert "access_token" in (tmp_path / "mcp-tokens" / "weather.json").read_text()
