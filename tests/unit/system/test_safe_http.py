"""Addresses of strangers: what is asked, and where a redirect may lead. Real servers on two loopback addresses."""

from __future__ import annotations

import socket
from contextlib import AbstractAsyncContextManager

import pytest

from hermes_agent.system.safe_http import (
    AddressRejected,
    HostNotFound,
    check_host,
    is_allowed_address,
    is_public,
    open_url,
)
from peers.raw import RawServer, raw_server

PAGE = b"hello"


def moved(to: str) -> AbstractAsyncContextManager[RawServer]:
    return raw_server(status="302 Found", headers=[f"Location: {to}"])


async def ask(url: str, **options: object) -> tuple[str, bytes]:
    async with open_url(url, **options) as (at, response):  # type: ignore[arg-type]
        return at, await response.aread()


async def test_an_address_of_this_machine_is_not_asked() -> None:
    async def main() -> int:
        async with raw_server(PAGE) as server:
            with pytest.raises(AddressRejected, match=r"127\.0\.0\.1 is not a public address"):
                await ask(server.base_url)
            assert (await ask(server.base_url, private=True))[1] == b"hello"
            return len(server.requests)

    assert await main() == 1


async def test_a_redirect_to_a_metadata_service_is_not_followed_even_where_private_addresses_are_open() -> None:
    async with moved("http://169.254.169.254/latest") as server:
        with pytest.raises(AddressRejected, match=r"169\.254\.169\.254 is not a public address"):
            await ask(server.base_url, private=True)


async def test_a_redirect_is_followed_and_judged_by_the_operator_at_each_hop() -> None:
    async with raw_server(PAGE) as last, moved(f"{last.base_url}/there?x=1") as first:
        at, body = await ask(first.base_url, private=True)
        assert (at, body) == (f"{last.base_url}/there?x=1", b"hello")
        asked = []

        def check(url: str) -> None:
            asked.append(url)
            if "there" in url:
                raise AddressRejected("not there")

        with pytest.raises(AddressRejected, match="not there"):
            await ask(first.base_url, private=True, check=check)
        assert asked == [first.base_url, f"{last.base_url}/there?x=1"]


async def test_redirects_in_a_ring_end() -> None:
    async with moved("/again") as server:
        with pytest.raises(AddressRejected, match="leads on and on"):
            await ask(server.base_url, private=True)


async def test_a_name_is_asked_at_the_address_that_was_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that says something else the second time leads nowhere else: nobody asks it twice."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def rebinding(host: str, *args: object, **kwargs: object) -> object:
        if host != "rebind.test":
            return real(host, *args, **kwargs)  # type: ignore[arg-type]
        asked.append(host)
        return real("127.0.0.1" if len(asked) == 1 else "169.254.169.254", *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)

    async def main() -> bytes:
        async with raw_server(PAGE) as server:
            port = server.base_url.rpartition(":")[2].partition("/")[0]
            body = (await ask(f"http://rebind.test:{port}/", private=True))[1]
            assert f"host: rebind.test:{port}".encode() in server.requests[0].lower()
            return body

    assert await main() == b"hello"
    assert asked == ["rebind.test"]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://example.org/", "expected http:// or https://"),
        ("http://", "expected http:// or https://"),
        ("http://[::1", "cannot be read"),
        ("http://example.org:99999/", "cannot be read"),
        ("http://metadata.google.internal/computeMetadata", "own credentials"),
        ("http://user:secret@127.0.0.1/?token=x", r"^http://127\.0\.0\.1/ is not fetched"),
    ],
)
async def test_what_is_no_web_address_is_refused_and_no_secret_is_shown(url: str, why: str) -> None:
    with pytest.raises(AddressRejected, match=why):
        await check_host(url, private=False)


async def test_a_host_without_an_address_is_told_apart() -> None:
    with pytest.raises(HostNotFound, match="has no address"):
        await check_host("http://nowhere.invalid/", private=False)


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.1",
        "127.0.0.1",
        "::1",
        "fe80::1%eth0",
        "::ffff:10.0.0.1",
        "2002:7f00:1::",
        "64:ff9b::7f00:1",
        "x",
        "0.0.0.0",
    ],
)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)
    assert not is_allowed_address(address, False)


def test_public_addresses_are_public() -> None:
    assert all(
        is_public(a) and is_allowed_address(a, False) for a in ("1.1.1.1", "2606:4700:4700::1111", "::ffff:1.1.1.1")
    )


def test_private_addresses_open_and_those_of_credentials_do_not() -> None:
    assert is_allowed_address("10.0.0.1", True)
    assert is_allowed_address("::1", True)
    closed = ("169.254.169.254", "::ffff:169.254.169.254", "100.100.100.200", "fd00:ec2::254", "0.0.0.0", "224.0.0.1")
    assert not any(is_allowed_address(a, True) for a in closed)
