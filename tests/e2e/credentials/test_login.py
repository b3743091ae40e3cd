"""Signing in: the command line against a server written from the RFCs, and what the model is asked with afterwards."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import os
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from hermes_agent.contracts.model_client import ModelAnswer, ModelRequest
from hermes_agent.core.errors import ModelError, UserError
from hermes_agent.core.messages import Message
from hermes_agent.credentials.logins import API_KEY, OAUTH, Login, LoginExpired, LoginStore
from hermes_agent.credentials.oauth import refresh
from hermes_agent.host import Host
from hermes_agent.models.bundled import BUNDLED_ORDER, bundled_profile
from peers.oauth import OAuthServer, oauth_server


@pytest.fixture
def server() -> Iterator[OAuthServer]:
    with oauth_server() as running:
        yield running


@pytest.fixture
def home(tmp_path: Path, server: OAuthServer, monkeypatch: pytest.MonkeyPatch, without_host: None) -> Path:
    place = tmp_path / "home"
    place.mkdir()
    box = {"base_url": f"{server.url}/v1", "oauth": server.settings}
    config = {"model": {"provider": "box", "default": "m-1"}, "providers": {"box": box}}
    (place / "config.yaml").write_text(json.dumps(config))
    monkeypatch.setenv("HERMES_HOME", str(place))
    return place


def hermes(home: Path, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hermes_agent", *args],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "HERMES_HOME": str(home)},
        check=False,
    )


def ask(home: Path, profile: str = "") -> str:
    host = Host.build(home)

    async def once() -> str:
        selection = host.select_model(profile=profile)
        request = ModelRequest(selection.model, [Message("user", "hi")])
        answers = [p async for p in host.clients.client(selection).stream(request) if isinstance(p, ModelAnswer)]
        return answers[0].message.text

    async def main() -> str:
        try:
            return await once()
        finally:
            await host.clients.aclose()

    try:
        return asyncio.run(main())
    finally:
        host.bridge.close()


def stored(home: Path) -> list[dict[str, Any]]:
    return list(json.loads((home / "auth.json").read_text())["credential_pool"]["box"])


def test_a_key_is_stored_used_listed_and_forgotten(home: Path) -> None:
    (home / "auth.json").write_text('{"version": 1, "providers": {"other": {"mine": 1}}, "active_provider": "other"}')
    done = hermes(home, "auth", "login", "box", "--api-key", "--label", "work", stdin="sk-0123456789abcdef\n")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert stat.S_IMODE((home / "auth.json").stat().st_mode) == 0o600
    assert json.loads((home / "auth.json").read_text())["providers"] == {"other": {"mine": 1}}
    assert Host.build(home).select_model().endpoint.key == "sk-0123456789abcdef"
    listed = hermes(home, "auth", "list")
    assert listed.stdout.split() == ["box", "work", "api_key", "ready"]
    status = hermes(home, "auth", "status", "--json")
    assert json.loads(status.stdout) == {"provider": "box", "usable": True, "keys": {"the login 'work'": "ready"}}
    assert "sk-0123" not in listed.stdout + status.stdout + done.stdout
    assert hermes(home, "auth", "logout", "box").stdout == "Forgotten: box work\n"
    assert hermes(home, "auth", "logout", "box").returncode == 1
    refused = hermes(home, "auth", "login", "box", "--api-key", stdin="two words\n")
    assert refused.returncode == 2 and "That is no key" in refused.stderr
    for name in ("missing", "local"):
        unknown = hermes(home, "auth", "login", name, stdin="x\n")
        assert unknown.returncode == 2 and f"{name!r} is no provider that one signs in at" in unknown.stderr
        known = unknown.stderr.partition("Known: ")[2].split(", ")
        assert "openrouter" in known and "local" not in known


def test_a_device_signs_in_and_its_token_is_asked_with(home: Path, server: OAuthServer) -> None:
    server.pending = 2
    done = hermes(home, "auth", "login", "box", "--device")
    assert done.returncode == 0, done.stderr
    assert f"Open {server.url}/activate and enter WDJB-MJHT" in done.stdout
    (entry,) = stored(home)
    assert (entry["auth_type"], entry["access_token"]) == ("oauth", server.access)
    assert server.access not in done.stdout
    assert ask(home) == "ok" and server.asked == [server.access]
    server.denies = True
    denied = hermes(home, "auth", "login", "box", "--device", "--label", "two")
    assert denied.returncode == 1 and "Signing in at box failed: access denied." in denied.stderr
    assert len(stored(home)) == 1


def test_copilot_signs_in_with_a_device_code_of_an_app_of_one_s_own(
    home: Path, server: OAuthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    server.scope, server.refusal_status, server.pending = bundled_profile("copilot").oauth["scope"], 200, 1
    oauth = {name: server.settings[name] for name in ("client_id", "token_url", "device_url")}
    box = {"base_url": f"{server.url}/v1", "oauth": oauth}
    config = {"model": {"provider": "copilot", "default": "m-1"}, "providers": {"copilot": box}}
    (home / "config.yaml").write_text(json.dumps(config))

    done = hermes(home, "auth", "login", "copilot", "--device")
    assert done.returncode == 0, done.stderr
    assert f"Open {server.url}/activate and enter WDJB-MJHT" in done.stdout
    assert ask(home) == "ok" and server.asked == [server.access]

    server.access = server.refresh = "revoked"
    with pytest.raises(ModelError, match=r"copilot does not renew the login 'copilot': invalid grant") as caught:
        ask(home)
    assert "hermes auth login copilot --label copilot" in caught.value.hint


@pytest.mark.parametrize("denies", [False, True])
def test_a_browser_signs_in_with_pkce(home: Path, server: OAuthServer, denies: bool) -> None:
    server.denies = denies
    with subprocess.Popen(
        [sys.executable, "-m", "hermes_agent", "auth", "login", "box", "--browser", "--no-open"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "HERMES_HOME": str(home)},
    ) as process:
        assert process.stdout is not None
        url = next(line.strip() for line in process.stdout if line.startswith("http"))
        callback = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(url).query))["redirect_uri"]
        with pytest.raises(urllib.error.HTTPError):  # another page of the browser that guesses
            urllib.request.urlopen(f"{callback}?code=evil&state=guess", timeout=10)
        try:
            page = urllib.request.urlopen(url, timeout=10).read().decode()
        except urllib.error.HTTPError as exc:
            page = exc.read().decode()
        _, said = process.communicate(timeout=30)
    assert process.returncode == (1 if denies else 0), said
    assert ("did not work" in page) == denies
    if not denies:
        assert ask(home) == "ok"


def test_a_token_that_ended_or_is_refused_is_renewed_before_the_reader_notices(home: Path, server: OAuthServer) -> None:
    server.lives_s = 1
    hermes(home, "auth", "login", "box", "--device")
    server.lives_s = 3600
    assert ask(home) == "ok" and server.renewals == 1  # it had ended
    server.access = "revoked elsewhere"
    assert ask(home) == "ok" and server.renewals == 2  # it was refused
    assert server.asked[-1] == server.access == stored(home)[0]["access_token"]


def test_a_host_that_runs_for_a_week_keeps_its_login(
    home: Path, server: OAuthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hermes(home, "auth", "login", "box", "--device")
    ahead, host, answers = [0.0], Host.build(home), []
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + ahead[0])

    async def main() -> None:
        client = host.clients.client(selection := host.select_model())
        for day in range(8):
            ahead[0] = day * 86_400.0
            request = ModelRequest(selection.model, [Message("user", "hi")])
            answers.extend([p.message.text async for p in client.stream(request) if isinstance(p, ModelAnswer)])
        await host.clients.aclose()

    try:
        asyncio.run(main())
    finally:
        host.bridge.close()
    assert answers == ["ok"] * 8
    assert server.renewals == 7  # each before its request: the server saw no token that had ended
    assert len(set(server.asked)) == len(server.asked) == 8


def test_a_login_that_is_not_renewed_says_who_has_to_sign_in_again(home: Path, server: OAuthServer) -> None:
    hermes(home, "auth", "login", "box", "--device")
    server.access = server.refresh = "revoked"
    with pytest.raises(ModelError, match=r"box does not renew the login 'box': invalid grant") as caught:
        ask(home)
    assert caught.value.kind == "auth" and "hermes auth login box --label box" in caught.value.hint
    assert "sign in again" in hermes(home, "auth", "list").stdout


def test_one_process_renews_and_the_others_take_what_it_got(home: Path, server: OAuthServer) -> None:
    hermes(home, "auth", "login", "box", "--device")
    files = [LoginStore(home / "auth.json") for _ in range(8)]  # each as a process has it: a lock of its own
    stale = files[0].entries("box")[0]
    together = threading.Barrier(8)

    def use(logins: LoginStore) -> str:
        together.wait()
        return logins.refreshed(stale, stale.access_token, refresh).access_token

    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(use, files))
    # a refresh token works once: a second refresher would have been refused
    assert found == {server.access} and server.renewals == 1


def test_a_profile_of_a_plugin_s_call_selects_a_login(home: Path) -> None:
    logins = LoginStore(home / "auth.json")
    logins.put(Login("box", "work", API_KEY, "key-of-work"))
    logins.put(Login("box", "home", API_KEY, "key-of-home"))
    host = Host.build(home)
    assert host.select_model(profile="home").endpoint.key == "key-of-home"
    usual = host.select_model()
    assert [s.endpoint.key for s in (usual, *usual.with_other_keys)] == ["key-of-work", "key-of-home"]
    with pytest.raises(ValueError, match="unknown auth profile 'nobody' of provider 'box'; known: default, home, work"):
        host.select_model(profile="nobody")
    host.bridge.close()


def test_a_file_that_is_broken_is_named_and_left_alone(home: Path) -> None:
    (home / "auth.json").write_text("{broken")
    with pytest.raises(UserError, match=r"auth\.json cannot be read"):
        LoginStore(home / "auth.json").put(Login("box", "x", API_KEY, "k"))
    assert (home / "auth.json").read_text() == "{broken"


def test_secrets_are_sent_over_tls_alone() -> None:
    login = Login("box", "x", OAUTH, "a", "r", 0.0, "http://example.org/token", "c")
    with pytest.raises(UserError, match="no address to sign in at"):
        refresh(login)
    with pytest.raises(LoginExpired):
        refresh(login._replace(refresh_token=""))


def test_certificates_that_are_not_there_are_an_answer_and_no_error_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "gone.pem"))
    login = Login("box", "x", OAUTH, "a", "r", 0.0, "https://localhost:9/token", "c")
    with pytest.raises(UserError, match=r"localhost cannot be reached: .*No such file"):
        refresh(login)


def test_upstream_s_entries_are_read(home: Path) -> None:
    entry = {"id": "a", "label": "", "auth_type": "oauth_device_code", "access_token": "t", "priority": 0}
    (home / "auth.json").write_text(json.dumps({"version": 1, "credential_pool": {"box": [entry, {"label": "empty"}]}}))
    (login,) = LoginStore(home / "auth.json").entries("box")
    assert (login.label, login.auth_type, login.state) == ("box-1", OAUTH, "ready")


def test_an_entry_without_a_label_is_renewed_where_it_stands_and_forgotten_by_its_place(home: Path) -> None:
    entries = [{"auth_type": "oauth", "access_token": t, "refresh_token": "r", "note": t} for t in ("old", "other")]
    (home / "auth.json").write_text(json.dumps({"version": 1, "credential_pool": {"box": entries}}))
    logins = LoginStore(home / "auth.json")
    logins.refreshed(logins.entries("box")[0], "old", lambda login: login._replace(access_token="new"))
    assert [(e["access_token"], e["note"]) for e in stored(home)] == [("new", "old"), ("other", "other")]
    assert logins.remove("box", "box-2") == ["box-2"]
    assert [e["access_token"] for e in stored(home)] == ["new"]


# -- a key that a browser allows, as at OpenRouter ---------------------------------------------------------------------


class KeyServer(BaseHTTPRequestHandler):
    """What OpenRouter documents: `GET /auth` sends the browser back with a code, `POST /api/v1/auth/keys` a key."""

    challenges: ClassVar[dict[str, str]] = {}

    def do_GET(self) -> None:
        given = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        assert set(given) == {"callback_url", "code_challenge", "code_challenge_method"}
        back = urllib.parse.urlsplit(given["callback_url"])
        assert (back.scheme, back.hostname, given["code_challenge_method"]) == ("http", "localhost", "S256")
        code = f"auth_code_{len(self.challenges)}"
        self.challenges[code] = given["code_challenge"]
        self.send_response(302)
        self.send_header("location", f"{given['callback_url']}?code={code}")
        self.end_headers()

    def do_POST(self) -> None:
        given = json.loads(self.rfile.read(int(self.headers["content-length"])))
        digest = hashlib.sha256(given["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        good = self.challenges.get(given["code"]) == challenge and given["code_challenge_method"] == "S256"
        good = good and not self.server.denies  # type: ignore[attr-defined]
        value = {"key": "sk-or-v1-0123456789abcdef", "user_id": "user_1"} if good else None
        body = json.dumps(value or {"error": {"code": 403, "message": "Invalid code"}}).encode()
        self.send_response(200 if good else 403)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None: ...


@pytest.mark.parametrize("denies", [False, True])
def test_a_browser_allows_a_key_at_openrouter_and_no_program_is_registered(tmp_path: Path, denies: bool) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), KeyServer) as running:
        running.denies = denies  # type: ignore[attr-defined]
        threading.Thread(target=running.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{running.server_address[1]}"
        oauth = {"authorize_url": f"{url}/auth", "key_url": f"{url}/api/v1/auth/keys"}
        (home / "config.yaml").write_text(json.dumps({"providers": {"openrouter": {"oauth": oauth}}}))
        with subprocess.Popen(
            [sys.executable, "-m", "hermes_agent", "auth", "login", "openrouter", "--no-open"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={"PATH": os.environ["PATH"], "HOME": str(home), "HERMES_HOME": str(home)},
        ) as process:
            assert process.stdout is not None
            shown = next(line.strip() for line in process.stdout if line.startswith("http"))
            callback = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(shown).query))["callback_url"]
            with pytest.raises(urllib.error.HTTPError):  # another page of the browser that guesses
                urllib.request.urlopen(f"{callback.rpartition('/')[0]}?code=evil", timeout=10)
            page = urllib.request.urlopen(shown, timeout=10).read().decode()
            out, err = process.communicate(timeout=30)
        running.shutdown()
    assert "Signed in" in page
    assert process.returncode == (1 if denies else 0), err
    if denies:
        assert "Signing in at openrouter failed: Invalid code." in err
        assert not (home / "auth.json").exists()
        return
    (entry,) = json.loads((home / "auth.json").read_text())["credential_pool"]["openrouter"]
    assert (entry["auth_type"], entry["access_token"]) == ("api_key", "sk-or-v1-0123456789abcdef")
    assert "sk-or-v1" not in out + err
    assert "openrouter" in hermes(home, "auth", "list").stdout


def test_openrouter_has_its_documented_addresses_as_shipped() -> None:
    oauth = bundled_profile("openrouter").oauth
    assert (oauth["authorize_url"], oauth["key_url"]) == (
        "https://openrouter.ai/auth",
        "https://openrouter.ai/api/v1/auth/keys",
    )


def test_every_provider_with_a_key_has_a_sentence_or_a_sign_in() -> None:
    for name in BUNDLED_ORDER:
        profile = bundled_profile(name)
        assert profile.oauth.get("key_url") or profile.sign_in or profile.signup_url or not profile.needs_key, name


@pytest.mark.parametrize("provider", ["copilot", "huggingface", "azure-foundry", "bedrock", "vertex", "anthropic"])
def test_a_provider_where_one_cannot_sign_in_says_what_to_do_and_takes_the_key(
    tmp_path: Path, provider: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hermes_agent.app.main import main

    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    monkeypatch.setattr("sys.stdin", io.StringIO("key-0123456789abcdef\n"))
    assert main(["auth", "login", provider]) == 0
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert any(word in said.err for word in ("https://", "gcloud", "aws configure")), said.err
    (entry,) = json.loads((tmp_path / "auth.json").read_text())["credential_pool"][provider]
    assert (entry["auth_type"], entry["access_token"]) == ("api_key", "key-0123456789abcdef")
    assert main(["auth", "login", provider, "--device"]) == 2
    assert said.err.strip() in capsys.readouterr().err
