"""HTTP requests of commands to the daemon, at the address in its state file."""

from __future__ import annotations

import http.client
import json
from typing import Any

LONGEST_ANSWER = 4 * 2**20
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}


def ask_daemon_health(address: str, key: str | None, *, timeout_s: float = 5.0) -> dict[str, Any]:
    """Return the answer of `GET /health`.

    Args:
        address: `host:port`; an address that stands for all is requested at the loopback.
        key: None requests the answer without numbers.

    Raises:
        OSError: there is no answer.
        ValueError: the answer is not from this server, or the server refused the key.
    """
    status, value = ask_daemon_http(address, key, "GET", "/health", timeout_s=timeout_s)
    if status != 200 or "status" not in value:
        raise ValueError(f"status {status}")
    return value


def ask_daemon_http(
    address: str, key: str | None, method: str, path: str, body: Any = None, *, timeout_s: float
) -> tuple[int, dict[str, Any]]:
    """Send one request to the daemon; return the status and the JSON object of the answer.

    Args:
        body: sent as JSON; None sends none.

    Raises:
        OSError: there is no answer.
        ValueError: the answer is not from this server, or the server refused the key.
    """
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(_WILDCARDS.get(host, host), int(port), timeout=timeout_s)
    try:
        data = None if body is None else json.dumps(body).encode()
        connection.request(method, path, data, {"Authorization": f"Bearer {key}"} if key else {})
        response = connection.getresponse()
        answer = response.read(LONGEST_ANSWER)
    except http.client.HTTPException as exc:
        raise ValueError(f"no HTTP: {exc!r}") from exc
    finally:
        connection.close()
    if response.status == 401:
        raise ValueError("it has another key")
    value = json.loads(answer)
    if not isinstance(value, dict):
        raise ValueError(f"status {response.status}")
    return response.status, value
