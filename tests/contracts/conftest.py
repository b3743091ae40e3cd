"""Example plugins, each loaded by a real host; the contract suites run over what they register."""

from __future__ import annotations

import json
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from contracts.memory_service import MemoryService
from hermes_agent.compat import import_hook
from hermes_agent.host import Host

EXAMPLES = Path(__file__).parents[1] / "plugins" / "examples"
TRANSPORT = re.compile(r"host|user-agent|accept.*|connection|content-length|x-stainless-.*", re.IGNORECASE)
"""Headers that are the HTTP library's."""
ANSWER = b'{"choices": [{"message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}]}'


class Server(ThreadingHTTPServer):
    """Answers every request, and keeps it."""

    seen: list[tuple[str, dict[str, str], Any]]
    answer: bytes = ANSWER
    models: bytes = b'{"data": [{"id": "first"}, {"id": "second"}]}'


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.answer(body, self.server.answer)

    def do_GET(self) -> None:
        self.answer(None, self.server.models)

    def answer(self, body: Any, text: bytes) -> None:
        own = {k.lower(): v for k, v in self.headers.items() if not TRANSPORT.fullmatch(k)}
        self.server.seen.append((self.path, own, body))
        moved = self.path.startswith("/moved")
        self.send_response(302 if moved else 200)
        self.send_header("location", "/elsewhere")
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args: Any) -> None: ...


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(("127.0.0.1", 0), Handler)
    made.seen = []
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def memory_service(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryService]:
    """The service that the bundled `http-memory` is told of."""
    service = MemoryService()
    monkeypatch.setenv("HTTP_MEMORY_URL", service.url)
    yield service
    service.close()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home that the environment names."""
    place = tmp_path / "home"
    (place / "plugins").mkdir(parents=True)
    monkeypatch.setenv("HERMES_HOME", str(place))
    for name in ("HERMES_DECLARED_CONFIG", "HERMES_SAFE_MODE", "CREDENTIALS_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HERMES_BUNDLED_PLUGINS", str(tmp_path / "none"))  # examples alone
    return place


@pytest.fixture
def served() -> Iterator[None]:
    """Upstream's import names."""
    modules = set(sys.modules)
    import_hook.install()
    yield
    import_hook.uninstall()
    for name in set(sys.modules) - modules:
        if name.partition(".")[0] == "hermes_plugins":
            del sys.modules[name]


@pytest.fixture
def start(home: Path, served: None, without_host: None) -> Iterator[Callable[..., Host]]:
    """Build the process's host over the home, with the example plugins of these kinds enabled and loaded."""
    hosts: list[Host] = []

    def build(*kinds: str, config: str = "") -> Host:
        for kind in kinds:
            shutil.copytree(EXAMPLES / kind, home / "plugins" / kind, ignore=shutil.ignore_patterns("__pycache__"))
        enabled = ", ".join(f"example-{kind.replace('_', '-')}" for kind in kinds)
        (home / "config.yaml").write_text(f"plugins:\n  enabled: [{enabled}]\n{config}")
        host = Host.build(home)
        hosts.append(host)
        host.plugins.discover_and_load()
        return host

    yield build
    for host in hosts:
        host.bridge.close()


@pytest.fixture
def example(start: Callable[..., Host]) -> Callable[[str], Any]:
    """Return the one provider that the example plugin of a kind registers."""

    def load(kind: str, config: str = "") -> Any:
        host = start(kind, config=config)
        assert [record.error for record in host.plugins.records] == [None]
        ((_, provider),) = host.providers[kind].items()
        return provider

    return load
