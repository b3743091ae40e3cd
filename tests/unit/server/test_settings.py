"""What the variables and the config say, and where the server cannot listen."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.config import load
from hermes_agent.core.errors import EXIT_CONFIG, EXIT_FAILED, ConfigError, UserError
from hermes_agent.credentials import Credentials
from hermes_agent.server import HttpSettings, read_settings
from hermes_agent.server.http_server import address_of, is_loopback, listen


def settings(home: Path, config: str = "", **variables: str) -> HttpSettings:
    (home / "config.yaml").write_text(config)
    return read_settings(load(home).settings, Credentials(home, dict(variables)))


def test_without_any_setting_it_listens_on_loopback(tmp_path: Path) -> None:
    assert settings(tmp_path) == HttpSettings()


def test_variables_win_over_the_config(tmp_path: Path) -> None:
    config = "server: {enabled: false, host: '::1', port: 1, key: from-config, drain_timeout_s: 3}\n"
    plain = settings(tmp_path, config)
    assert (plain.enabled, plain.host, plain.port, plain.key, plain.drain_timeout_s) == (
        False,
        "::1",
        1,
        "from-config",
        3,
    )
    given = settings(
        tmp_path,
        config,
        API_SERVER_ENABLED="TRUE",
        API_SERVER_HOST="0.0.0.0",
        API_SERVER_PORT="2",
        API_SERVER_KEY="from-variable",
    )
    assert (given.enabled, given.host, given.port, given.key) == (True, "0.0.0.0", 2, "from-variable")
    assert (plain.port_from, given.port_from) == ("server.port", "API_SERVER_PORT")


def test_variables_may_stand_in_the_env_file_of_the_home_and_empty_ones_do_not_count(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("API_SERVER_PORT=9001\nAPI_SERVER_HOST=\n")
    given = settings(tmp_path, "server: {host: localhost}\n")
    assert (given.port, given.host) == (9001, "localhost")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("API_SERVER_PORT", "eighty"),
        ("API_SERVER_PORT", "65536"),
        ("API_SERVER_PORT", "-1"),
        ("API_SERVER_PORT", "٣"),
        ("API_SERVER_PORT", "9" * 5000),
        ("API_SERVER_ENABLED", "maybe"),
    ],
)
def test_a_variable_that_cannot_be_used_is_named_with_its_value(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(tmp_path, **{name: value})
    assert caught.value.message.startswith(f"{name} is {value!r}: expected ")
    assert caught.value.exit_status == EXIT_CONFIG


@pytest.mark.parametrize("key", ["two words", "schlüssel", "tab\tkey"])
def test_a_key_that_no_header_can_bear_is_refused_and_not_shown(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(tmp_path, API_SERVER_KEY=key)
    assert caught.value.message.startswith("API_SERVER_KEY has characters")
    assert key not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("allowed_hosts", "https://chat.example.org"),
        ("allowed_hosts", "*"),
        ("allowed_hosts", "a b"),
        ("allowed_origins", "*"),
        ("allowed_origins", "chat.example.org"),
        ("allowed_origins", "https://chat.example.org/path"),
    ],
)
def test_a_host_or_an_origin_that_could_never_match_is_refused(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(tmp_path, f"server: {{{name}: ['{value}']}}\n")
    assert caught.value.message.startswith(f"server.{name}: {value!r} is not ")


def test_hosts_and_origins_are_compared_in_lower_case(tmp_path: Path) -> None:
    given = settings(
        tmp_path, "server: {allowed_hosts: [Chat.Example.org], allowed_origins: ['https://Chat.example.org/']}\n"
    )
    assert given.allowed_hosts == {"chat.example.org"}
    assert given.allowed_origins == {"https://chat.example.org"}


def test_a_port_in_use_is_named_with_the_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError) as caught:
            listen(HttpSettings(port=port))
        with pytest.raises(UserError) as by_variable:
            listen(HttpSettings(port=port, port_from="API_SERVER_PORT"))
    assert caught.value.message == f"port {port} on 127.0.0.1 is in use"
    assert "server.port or the variable API_SERVER_PORT" in caught.value.hint
    assert by_variable.value.hint.endswith("with API_SERVER_PORT.")
    assert caught.value.exit_status == EXIT_FAILED


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid", "a b", "." * 70])
def test_a_host_that_is_no_address_of_this_machine_is_named(host: str) -> None:
    with pytest.raises(UserError) as caught:
        listen(HttpSettings(host=host, port=0))
    assert host in caught.value.message
    assert "API_SERVER_HOST" in caught.value.hint


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as exc:
        assert exc.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
        return False
    return True


def test_localhost_means_each_of_its_addresses_with_one_port() -> None:
    sockets = listen(HttpSettings(host="localhost", port=0))
    try:
        assert all(is_loopback(one) for one in sockets)
        assert len({one.getsockname()[1] for one in sockets}) == 1
    finally:
        for one in sockets:
            one.close()


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")
def test_an_ipv6_address_stands_in_brackets() -> None:
    (one,) = listen(HttpSettings(host="::1", port=0))
    with one:
        assert address_of(one) == f"[::1]:{one.getsockname()[1]}"


async def test_connections_do_not_hold_small_answers_back() -> None:
    async def run() -> int:
        nodelay: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            peer = writer.get_extra_info("socket")
            nodelay.set_result(peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        (one,) = listen(HttpSettings(port=0))
        async with await asyncio.start_server(connected, sock=one):
            _, writer = await asyncio.open_connection(*one.getsockname())
            writer.close()
            return await asyncio.wait_for(nodelay, 5.0)

    assert await run() == 1


def test_every_address_is_not_loopback() -> None:
    (one,) = listen(HttpSettings(host="0.0.0.0", port=0))
    with one:
        assert not is_loopback(one)


def test_importing_the_server_loads_no_web_framework() -> None:
    heavy = {"uvicorn", "openai", "httpx", "pydantic"}
    code = f"import sys, hermes_agent.server, hermes_agent.app.daemon; print({heavy} & set(sys.modules))"
    environ: dict[str, Any] = dict(os.environ)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environ, timeout=60, check=True
    )
    assert done.stdout == "set()\n"
