"""The certificates that TLS connections trust, read when one needs them (20 to 50 ms of CPU)."""

from __future__ import annotations

import _ssl
import contextlib
import functools
import os
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any

_patched = threading.Lock()


def trusted_certificates() -> ssl.SSLContext:
    """Return the trusted certificates, of `SSL_CERT_FILE` and `SSL_CERT_DIR` or of the package `certifi`.

    Raises:
        OSError: a file of the environment is missing or no certificate.
    """
    return _certificates(*_places())


def trusted_certificates_later() -> ssl.SSLContext:
    """Return a context that reads the trusted certificates for its first connection, or never."""
    with defaults_read_later():
        context = ssl.create_default_context()
    assert isinstance(context, DeferredContext)
    context.read = lambda: context.load_verify_locations(*_places())
    return context


def _places() -> tuple[str | None, str | None]:
    file, folder = os.environ.get("SSL_CERT_FILE") or None, os.environ.get("SSL_CERT_DIR") or None
    if not file and not folder:
        import certifi  # a machine may have no certificates of its own

        file = certifi.where()
    return file, folder


@functools.cache
def _certificates(file: str | None, folder: str | None) -> ssl.SSLContext:
    """Read the certificates once for all connections."""
    return ssl.create_default_context(cafile=file, capath=folder)


class DeferredContext(ssl.SSLContext):
    """A TLS context that reads its certificates for its first connection. Before, it trusts no server."""

    read: Callable[[], None] | None
    """Reads them; None once that is done."""

    def _read(self) -> None:
        if self.read is not None:
            self.read()
            self.read = None  # last: a second connection meanwhile reads them, too

    def wrap_bio(self, *given: Any, **named: Any) -> ssl.SSLObject:
        self._read()
        return super().wrap_bio(*given, **named)

    def wrap_socket(self, *given: Any, **named: Any) -> ssl.SSLSocket:
        self._read()
        return super().wrap_socket(*given, **named)

    def get_ca_certs(self, *given: Any, **named: Any) -> Any:
        self._read()
        return super().get_ca_certs(*given, **named)

    def cert_store_stats(self) -> dict[str, int]:
        self._read()
        return super().cert_store_stats()


@contextlib.contextmanager
def defaults_read_later() -> Iterator[None]:
    """In the block, new contexts read the system's certificates for their first connection.

    A library that makes a context when it is imported would read them for a process that may never use it.
    """

    def later(context: ssl.SSLContext) -> None:
        if type(context) is not ssl.SSLContext:
            original(context)
            return
        context.__class__ = DeferredContext
        assert isinstance(context, DeferredContext)
        context.read = lambda: original(context)

    original = _ssl._SSLContext.set_default_verify_paths
    with _patched:
        ssl.SSLContext.set_default_verify_paths = later  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            del ssl.SSLContext.set_default_verify_paths
