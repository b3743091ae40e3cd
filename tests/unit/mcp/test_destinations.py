"""Where the client of an MCP server at an address may go: the table of hosts, and what the server itself names."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from hermes_agent.testing import plugin_host
from unit.mcp.conftest import mcp_config, quiet

pytest.importorskip("mcp")


class Answering(http.server.ThreadingHTTPServer):
    """Answers everything in the same way, and keeps what was asked."""

    leads_to = ""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[str] = []


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Answering)
        self.server.asked.append(self.path)
        self.send_response(307 if self.server.leads_to else 500)
        if self.server.leads_to:
            self.send_header("Location", self.server.leads_to)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *args: Any) -> None:
        return


@contextlib.contextmanager
def serving() -> Iterator[Answering]:
    with Answering() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def connected_to(url: str, **network: Any) -> str:
    """Return why a host is not connected to a server at that address."""
    config = mcp_config(weather={"url": url, "connect_timeout": 20}) | {"network": network}
    with plugin_host(quiet, config=config) as host:
        host.host.mcp.settle(60)
        return str(host.host.mcp.status()[0].error)


@pytest.mark.attack("egress")
@pytest.mark.parametrize("network", [{"tools": "hosts"}, {"tools": "ask"}, {"deny": ["127.0.0.1"]}])
def test_a_server_that_the_table_does_not_allow_is_not_asked(network: dict[str, Any]) -> None:
    with serving() as server:
        why = connected_to(f"http://127.0.0.1:{server.server_port}/mcp", **network)
    assert server.asked == [] and "is not asked: `network." in why


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
