"""A model that fails on demand: llmock (the PyPI package), an OpenAI-compatible server that others wrote."""

from __future__ import annotations

import contextlib
import json
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from peers import install
from peers.running import free_port, running

__all__ = ["FaultyModel", "faulty_model"]


@dataclass(frozen=True, slots=True)
class FaultyModel:
    """A running server."""

    base_url: str
    """For `model.base_url`, with `/v1`."""

    def script(self, *behaviors: dict[str, Any]) -> None:
        """Forget everything, then queue what the next requests are to meet; README.md has the forms."""
        self._call("POST", "/_llmock/reset")
        if behaviors:
            self._call("POST", "/_llmock/scenario", {"behaviors": list(behaviors)})

    def requests(self) -> list[dict[str, Any]]:
        """Return what it knows of the requests that it got, oldest first."""
        return list(self._call("GET", "/_llmock/requests")["requests"])

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        data = json.dumps(body).encode() if body is not None else None
        url = self.base_url.removesuffix("/v1") + path
        with urllib.request.urlopen(urllib.request.Request(url, data, method=method), timeout=60) as answer:
            return dict(json.load(answer))


@contextlib.contextmanager
def faulty_model(*flags: str, host: str = "127.0.0.1") -> Iterator[FaultyModel]:
    """Run the server on a free port while the block lasts.

    Args:
        flags: of `llmock serve`, for example `--context-window 100`, `--rpm 1`, `--stream-chunk-delay-ms 20`.

    Raises:
        install.NotInstalled
    """
    folder, port = install.llmock(), free_port(host)
    # -S: the packages of the interpreter that runs the tests stay out of its way
    line = [sys.executable, "-S", "-c", "from llmock.cli import app; app()", "serve"]
    line += ["-h", host, "-p", str(port), "--log-level", "warning", *flags]
    environ = {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": ""}
    with running(line, host=host, port=port, path="/v1/models", environ=environ):
        yield FaultyModel(f"http://{host}:{port}/v1")
