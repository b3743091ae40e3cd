"""A program for `ProxyCommand` of ssh, which connects to a host through an HTTP proxy.

Its arguments are the port of the proxy, host and port. ssh supports no proxies, and the unit of a command has no name
server. It imports little, since it runs for each connection.
"""

import os
import select
import socket
import sys

LIMIT_S = 600
"""Seconds that the proxy may take: it may ask the user."""
_PIECE = 65_536


def main() -> int:
    """Connect, and forward bytes until one side closes."""
    proxy, host, port = sys.argv[1:]
    name = f"[{host}]" if ":" in host else host
    try:
        connection = socket.create_connection(("127.0.0.1", int(proxy)), timeout=LIMIT_S)
        connection.sendall(f"CONNECT {name}:{port} HTTP/1.1\r\nHost: {name}:{port}\r\n\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n") and (byte := connection.recv(1)):
            head += byte
        if head.split(None, 2)[1:2] != [b"200"]:
            sys.stderr.write(connection.recv(_PIECE).decode("utf-8", "replace") or "the proxy hung up\n")
            return 1
        connection.settimeout(None)
        _pass(connection)
    except OSError as exc:
        sys.stderr.write(f"{host}:{port} is not reached: {exc}\n")
        return 1
    return 0


def _pass(connection: socket.socket) -> None:
    reading = [0, connection.fileno()]
    while connection.fileno() in reading:
        ready, _, _ = select.select(reading, [], [])
        if 0 in ready:
            if data := os.read(0, _PIECE):
                connection.sendall(data)
            else:
                connection.shutdown(socket.SHUT_WR)
                reading.remove(0)
        if connection.fileno() in ready:
            data = connection.recv(_PIECE)
            if not data:
                return
            while data:
                data = data[os.write(1, data) :]


if __name__ == "__main__":
    sys.exit(main())
