"""What a daemon does once a day beside the removal of old data."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_agent.testing import plugin_host
from peers.raw import raw_server


def register(ctx: object) -> None:
    """Register nothing."""


@pytest.mark.parametrize(("config", "asked"), [({}, 1), ({"model": {"update_prices": False}}, 0)])
async def test_prices_are_fetched_unless_the_config_forbids_it(config: dict[str, object], asked: int) -> None:
    async with raw_server(b"the network is closed", status="403 Forbidden") as proxy:
        address = proxy.base_url.removesuffix("/v1")
        with plugin_host(register, config=config, env={"HTTPS_PROXY": address}) as host:
            assert await host.host.upkeep.once() == 0
            fetched = list((Path(host.host.home) / "cache" / "prices").glob("*"))
    assert [line.split(b" ")[:2] for line in proxy.requests] == asked * [[b"CONNECT", b"raw.githubusercontent.com:443"]]
    assert fetched == []  # a failure leaves the release's tables
