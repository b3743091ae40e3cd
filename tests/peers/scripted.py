"""A model that says what a script says: aimock, an OpenAI-compatible server that others wrote."""

from __future__ import annotations

import contextlib
import json
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peers import install
from peers.running import free_port, running

__all__ = ["KEY", "ScriptedModel", "command", "scripted_model", "write_fixtures"]

KEY = "test-key-0123456789abcdef"
"""The key that the server wants."""


@dataclass(frozen=True, slots=True)
class ScriptedModel:
    """A running server."""

    base_url: str
    """For `model.base_url`, with `/v1`."""
    key: str
    """Empty when it wants none."""

    def requests(self) -> list[dict[str, Any]]:
        """Return the requests that it got, oldest first: `method`, `path`, `headers`, `body`, `response`."""
        url = self.base_url.removesuffix("/v1") + "/__aimock/journal"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self.key}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return list(json.load(answer))

    def bodies(self) -> list[dict[str, Any]]:
        """Return the bodies of the requests for a completion, oldest first."""
        return [r["body"] for r in self.requests() if r["path"].endswith("/chat/completions")]


def write_fixtures(path: Path, fixtures: Sequence[dict[str, Any]]) -> Path:
    """Write a script; README.md has the forms of a fixture."""
    path.write_text(json.dumps({"fixtures": list(fixtures)}), "utf-8")
    return path


def command(fixtures: Path, *, port: int, host: str = "127.0.0.1", strict: bool = True) -> list[str]:
    """Return the command of the server, for what starts it itself (a unit in a container).

    With `AIMOCK_API_KEYS` in its environment it wants one of these keys, comma-separated. It needs the files of
    `install.node()` and `install.aimock()` and no network but loopback.

    Args:
        strict: a request that no fixture matches gets status 503 instead of a made-up answer.
    """
    line = [str(install.node()), str(install.aimock()), "-p", str(port), "-h", host, "-f", str(fixtures)]
    return [*line, "--log-level", "warn", "--validate-on-load", *(["--strict"] if strict else [])]


@contextlib.contextmanager
def scripted_model(
    fixtures: Sequence[dict[str, Any]], *, key: str = KEY, strict: bool = True, host: str = "127.0.0.1"
) -> Iterator[ScriptedModel]:
    """Run the server on a free port while the block lasts.

    Args:
        key: the key that it wants; empty lets anybody in.

    Raises:
        install.NotInstalled
    """
    with tempfile.TemporaryDirectory(prefix="scripted-model-") as folder:
        script = write_fixtures(Path(folder) / "fixtures.json", fixtures)
        port = free_port(host)
        line = command(script, port=port, host=host, strict=strict)
        environ = {"AIMOCK_API_KEYS": key} if key else {}
        with running(line, host=host, port=port, path="/health", environ=environ):
            yield ScriptedModel(f"http://{host}:{port}/v1", key)
