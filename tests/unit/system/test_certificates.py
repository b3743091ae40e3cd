"""Certificates that are read for the first connection."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_agent.system.certificates import DeferredContext, defaults_read_later, trusted_certificates_later
from peers.irc import certificate


def test_a_context_made_in_the_block_counts_its_certificates_only_when_it_is_asked() -> None:
    with defaults_read_later():
        context = ssl.create_default_context()
    assert isinstance(context, DeferredContext) and context.read is not None
    assert context.verify_mode == ssl.CERT_REQUIRED and context.check_hostname
    assert context.cert_store_stats() == ssl.create_default_context().cert_store_stats()
    assert context.read is None


def test_contexts_outside_of_the_block_read_them_at_once() -> None:
    with defaults_read_later():
        pass
    assert type(ssl.create_default_context()) is ssl.SSLContext
    assert "set_default_verify_paths" not in vars(ssl.SSLContext)


async def test_the_first_connection_is_verified_with_what_is_read_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = certificate(tmp_path)
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(made, str(tmp_path / "key.pem"))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=server_side)
    async with server:
        port = server.sockets[0].getsockname()[1]
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        untrusting = trusted_certificates_later()
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection("127.0.0.1", port, ssl=untrusting, server_hostname="127.0.0.1")
        monkeypatch.setenv("SSL_CERT_FILE", made)
        known = trusted_certificates_later()
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=known, server_hostname="127.0.0.1")
        assert await reader.read() == b"hello"
        writer.close()


IMPORTED = """
import ssl
from hermes_agent.models.http_transport import load_http
from hermes_agent.system.certificates import DeferredContext
load_http()
from aiohttp import connector
context = connector._SSL_CONTEXT_VERIFIED
print(isinstance(context, DeferredContext), context.read is not None, context.verify_mode is ssl.CERT_REQUIRED)
"""


def test_the_http_library_reads_no_certificates_when_it_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["True", "True", "True"]
