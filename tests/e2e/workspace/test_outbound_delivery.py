"""Outbound webhooks of a daemon: stored, signed, retried, and dead letters that can be sent again."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from hermes_agent.app.main import main
from hermes_agent.delivery import Mailbox
from hermes_agent.testing import call, plugin_host
from hermes_agent.testing.open_host import PluginHost
from hermes_agent.workspace.outbound_delivery import PLATFORM

TODO = call("todo", todos=[{"id": "1", "content": "x", "status": "pending"}])


class Receiver(HTTPServer):
    """A service that answers with the given statuses in order, then with 200."""

    def __init__(self, *statuses: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.statuses = list(statuses)
        self.requests: list[tuple[dict[str, str], bytes, int]] = []
        self.changed = threading.Condition()
        self.answers = threading.Event()
        """Cleared, requests wait for their answer."""
        self.answers.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"

    def wait(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.requests) >= count, 60), self.requests


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        with self.server.changed:
            self.server.requests.append((dict(self.headers.items()), body, status))
            self.server.changed.notify_all()
        self.server.answers.wait(60)
        self.send_response(status)
        self.send_header("Retry-After", "0")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None: ...


@contextlib.contextmanager
def received(*statuses: int) -> Iterator[Receiver]:
    with Receiver(*statuses) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def hooks(url: str) -> dict[str, Any]:
    entry = {"name": "audit", "url": url, "events": ["post_tool_call"], "matcher": "todo", "secret": "sign-it-please"}
    return {"hooks": {"outbound": [entry]}}


def letters(host: PluginHost) -> list[Any]:
    with contextlib.closing(Mailbox(host.home / "state.db")) as mailbox:
        return mailbox.list_dead(PLATFORM)


def test_an_event_is_signed_and_sent_again_until_the_service_takes_it() -> None:
    with received(503, 429) as service, plugin_host(config=hooks(service.url), model=[TODO, "done"]) as host:
        host._run(host.host.delivery.start())
        host.ask("plan")
        service.wait(3)
        host._run(host.host.delivery.drain(10))
    assert [status for _, _, status in service.requests] == [503, 429, 200]
    bodies = {body for _, body, _ in service.requests}
    (body,) = bodies
    headers = service.requests[-1][0]
    assert headers["X-Hermes-Event"] == "post_tool_call"
    digest = hmac.new(b"sign-it-please", body, hashlib.sha256).hexdigest()
    assert headers["X-Hermes-Signature-256"] == f"sha256={digest}"
    event = json.loads(body)
    assert (event["tool_name"], event["delivery_id"]) == ("todo", headers["X-Hermes-Delivery"])


def test_what_the_service_refuses_is_a_dead_letter_that_can_be_sent_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with received(400) as service, plugin_host(config=hooks(service.url), model=[TODO, "done"]) as host:
        host._run(host.host.delivery.start())
        host.ask("plan")
        service.wait(1)
        while not letters(host):  # the outcome is stored after the answer
            threading.Event().wait(0.05)
        monkeypatch.setattr(os, "environ", {**os.environ, "HERMES_HOME": str(host.home)})
        capsys.readouterr()
        assert main(["hooks", "dead", "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        assert (row["webhook"], row["event"], row["state"]) == ("audit", "post_tool_call", "failed")
        assert row["reason"] == "the receiver answered 400"
        assert main(["hooks", "retry", "999"]) == 1
        assert main(["hooks", "retry", str(row["id"])]) == 0
        assert "1 wait again." in capsys.readouterr().out
        host._run(host.host.delivery.refresh())
        service.wait(2)
        host._run(host.host.delivery.drain(10))
        assert letters(host) == []


def test_an_event_is_on_disk_while_the_service_is_away_and_outlives_the_daemon() -> None:
    with received() as service:
        url = service.url
    with plugin_host(config=hooks(url), model=[TODO, "done"]) as host:
        host._run(host.host.delivery.start())
        host.ask("plan")
        host.host.hooks.wait_idle(30)
        host._run(host.host.delivery.drain(10))
        with contextlib.closing(Mailbox(host.home / "state.db")) as mailbox:
            assert mailbox.counts()["outbox_pending"] == 1


def test_a_metadata_service_is_never_asked() -> None:
    settings = hooks("http://169.254.169.254/latest")
    with plugin_host(config=settings, model=[TODO, "done"]) as host:
        host._run(host.host.delivery.start())
        host.ask("plan")
        while not letters(host):
            threading.Event().wait(0.05)
        host._run(host.host.delivery.drain(10))
        (letter,) = letters(host)
    assert "is not a public address" in letter.reason


@pytest.mark.parametrize("key", ["network", "security"])
@pytest.mark.parametrize("daemon", [True, False])
def test_a_denied_host_is_named_at_the_start_and_gets_nothing(key: str, daemon: bool) -> None:
    lists = {"network": {"deny": ["127.0.0.0/8"]}}
    if key == "security":
        lists = {"security": {"website_blocklist": {"enabled": True, "domains": ["127.0.0.1"]}}}
    with received() as service:
        with plugin_host(config={**hooks(service.url), **lists}, model=[TODO, "done"]) as host:
            if daemon:
                host._run(host.host.delivery.start())
            host.ask("plan")
            host.host.hooks.wait_idle(30)
            if daemon:
                host._run(host.host.delivery.drain(10))
            assert "webhook: audit sends nothing: the host 127.0.0.1 is denied" in host.log_text
        assert service.requests == []


def test_a_name_whose_address_is_denied_gets_nothing() -> None:
    with received() as service:
        lists = {"network": {"deny": ["127.0.0.0/8", "::1"]}}
        settings = hooks(service.url.replace("127.0.0.1", "localhost"))
        with plugin_host(config={**settings, **lists}, model=[TODO, "done"]) as host:
            host._run(host.host.delivery.start())
            host.ask("plan")
            while not letters(host):
                threading.Event().wait(0.05)
            host._run(host.host.delivery.drain(10))
            (letter,) = letters(host)
        assert "localhost" in letter.reason and service.requests == []


def test_a_host_that_is_denied_later_gets_nothing_more() -> None:
    with received(503) as service, plugin_host(config=hooks(service.url), model=[TODO, "done"]) as host:
        host._run(host.host.delivery.start())
        service.answers.clear()
        host.ask("plan")
        service.wait(1)
        file = host.home / "config.yaml"
        file.write_text(json.dumps({**yaml.safe_load(file.read_text()), "network": {"deny": ["127.0.0.1"]}}))
        host.host.reread_config()
        service.answers.set()  # the next attempt is after the change
        while not letters(host):
            threading.Event().wait(0.05)
        host._run(host.host.delivery.drain(10))
        (letter,) = letters(host)
    assert letter.reason == "the host 127.0.0.1 is denied: `network.deny` names it" and len(service.requests) == 1


def test_the_check_of_the_config_names_a_webhook_to_a_denied_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {**hooks("https://audit.example.org/x"), "network": {"deny": ["*.example.org"]}}
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    monkeypatch.setattr(os, "environ", {**os.environ, "HERMES_HOME": str(tmp_path)})
    for command in (["config", "check"], ["config", "check", str(tmp_path / "config.yaml")]):
        assert main(command) == 78
        assert "`hooks.outbound[0].url`: the host audit.example.org is denied: `network.deny` names it" in (
            capsys.readouterr().out
        )
    assert main(["hooks", "doctor"]) == 1
    assert "audit sends nothing: the host audit.example.org is denied" in capsys.readouterr().out
    config["hooks"]["outbound"][0]["secret_env"] = "KEY_OF_THE_DAEMON"
    (tmp_path / "config.yaml").write_text(json.dumps({**config, "network": {"deny": ["example.org"]}}))
    assert main(["config", "check"]) == 0 and main(["hooks", "doctor"]) == 0
