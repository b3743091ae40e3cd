"""Where the daemon listens: noted in `gateway_state.json` for the commands, asked by `hermes gateway status`."""

from __future__ import annotations

import http.client
import json
import logging
from pathlib import Path
from typing import Any

from hermes_agent.io.files import write_atomic
from hermes_agent.service.state import STATE_NAME

__all__ = ["ask", "ask_health", "note_address", "noted_address"]

logger = logging.getLogger(__name__)

LONGEST_ANSWER = 4 * 2**20
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}


def note_address(home: Path, address: str) -> None:
    """Add `host:port` to the state that this start has written: the commands may see other settings than the daemon."""
    path = home / STATE_NAME
    state = json.loads(path.read_text(encoding="utf-8"))
    write_atomic(path, json.dumps(state | {"http": address}, indent=2) + "\n", mode=0o644)


def noted_address(home: Path) -> str | None:
    """Return the `host:port` of the last start; None when it noted none."""
    try:
        address = json.loads((home / STATE_NAME).read_text(encoding="utf-8")).get("http")
    except (OSError, ValueError, AttributeError) as exc:
        logger.debug("no address in %s: %s", STATE_NAME, exc)
        return None
    return address if isinstance(address, str) and address else None


def ask_health(address: str, key: str | None, *, timeout_s: float = 5.0) -> dict[str, Any]:
    """Return what `GET /health` says.

    Args:
        address: `host:port`; the one that stands for every address is asked at loopback.
        key: None asks without the numbers.

    Raises:
        OSError: nothing answers there.
        ValueError: what answers is not this server, or it refused the key.
    """
    status, value = ask(address, key, "GET", "/health", timeout_s=timeout_s)
    if status != 200 or "status" not in value:
        raise ValueError(f"status {status}")
    return value


def ask(
    address: str, key: str | None, method: str, path: str, body: Any = None, *, timeout_s: float
) -> tuple[int, dict[str, Any]]:
    """Send one request to the daemon and return the status and the JSON object of the answer.

    Args:
        body: sent as JSON; None sends none.

    Raises:
        OSError: nothing answers there.
        ValueError: what answers is not this server, or it refused the key.
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
