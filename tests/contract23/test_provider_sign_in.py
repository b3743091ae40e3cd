"""Sign-in of a plugin's model provider (plugin contract of 0.23 §9.8), against a server written from the RFCs."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compat.guides import plugin
from hermes_agent.app.start import start_host
from hermes_agent.compat.sign_in import AuthError, OAuthPKCEConfig, load_pool, validate_config
from hermes_agent.contracts.model_client import ModelAnswer, ModelRequest
from hermes_agent.contracts.model_provider import PooledCredential
from hermes_agent.core.errors import ModelError
from hermes_agent.core.messages import Message
from peers.oauth import OAuthServer, oauth_server

DECLARED = """
from hermes_cli.auth_oauth_pkce_plugin import OAuthPKCEConfig, pkce_auth_handler, pkce_refresh_credential
from providers import register_provider
from providers.base import ProviderProfile

oauth = OAuthPKCEConfig(
    client_id="hermes-test", authorize_url="{url}/authorize", token_url="{url}/token", scopes=("models",), label="Box"
)
handler = pkce_auth_handler(oauth)
register_provider(ProviderProfile(
    name="box", auth_type="oauth_external", base_url="{url}/v1", default_model="m-1",
    auth_handler=handler, refresh_credential=pkce_refresh_credential(oauth),
))
"""
"""A profile with the two hooks as they are made."""
STEPS = DECLARED.replace(
    "handler = pkce_auth_handler(oauth)",
    """
import secrets
from urllib.parse import urlencode

def handler(action, args):
    from agent.credential_pool import AUTH_TYPE_OAUTH, PooledCredential, load_pool
    from hermes_cli.auth_device_flow import (
        _bind_loopback_callback_server, _can_open_graphical_browser, _make_loopback_callback_handler,
        _pkce_code_challenge, _pkce_code_verifier, _print_loopback_ssh_hint, _serve_loopback_callback,
    )
    from hermes_cli.auth_oauth_pkce_plugin import _err, _post_token, validate_config
    if action != "add":
        return False
    error = lambda message, code: _err("box", message, code)
    validate_config("box", oauth)
    assert not _can_open_graphical_browser()
    taking, result = _make_loopback_callback_handler("/callback", display_name="Box")
    server = _bind_loopback_callback_server("127.0.0.1", 0, taking, err=error, bind_failed_code="bind")
    uri = f"http://127.0.0.1:{{server.server_address[1]}}/callback"
    verifier, state = _pkce_code_verifier(), secrets.token_urlsafe(8)
    query = dict(
        response_type="code", client_id=oauth.client_id, redirect_uri=uri, state=state,
        code_challenge=_pkce_code_challenge(verifier), code_challenge_method="S256",
    )
    print(f"{{oauth.authorize_url}}?{{urlencode(query)}}", flush=True)
    _print_loopback_ssh_hint(uri)
    given = _serve_loopback_callback(server, result, timeout_seconds=60, err=error, timeout_code="late")
    if given["error"]:
        raise error(given["error"], "denied")
    assert given["state"] == state
    form = dict(grant_type="authorization_code", code=given["code"], redirect_uri=uri, code_verifier=verifier)
    tokens = _post_token("box", oauth, form, code="exchange")
    entry = load_pool("box").add_entry(PooledCredential(
        provider="box", id="a1b2c3", label="Box", auth_type=AUTH_TYPE_OAUTH, priority=0, source="manual:loopback_pkce",
        base_url="{url}/v1", **tokens, extra={{"oauth_pkce": {{"client_id": oauth.client_id}}}},
    ))
    print("stored", entry.id)
    return True
""",
)
"""The same with a flow of the plugin's own, from upstream's steps."""


@pytest.fixture
def server() -> Iterator[OAuthServer]:
    with oauth_server() as running:
        yield running


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_host: None) -> Path:
    place = tmp_path / "home"
    place.mkdir()
    monkeypatch.setenv("HERMES_HOME", str(place))
    return place


def provider(home: Path, server: OAuthServer, text: str = DECLARED) -> None:
    """Install the plugin, and select its provider."""
    plugin(home / "plugins" / "box", text.format(url=server.url), "name: box\nkind: model-provider\n")
    config = {"model": {"provider": "box", "default": "m-1"}, "plugins": {"enabled": ["box"]}}
    (home / "config.yaml").write_text(json.dumps(config))


def environment(home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "HERMES_HOME": str(home)}


def sign_in(home: Path, *args: str) -> tuple[int, str]:
    """Run `hermes auth login box`, follow the address that it shows; return the status and what it said."""
    command = [sys.executable, "-m", "hermes_agent", "auth", "login", "box", "--no-open", *args]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(home)
    ) as process:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if line.startswith("http"):
                try:
                    urllib.request.urlopen(line.strip(), timeout=30).read()
                except urllib.error.HTTPError as exc:
                    exc.read()
        return process.wait(timeout=60), said


def stored(home: Path) -> list[dict[str, Any]]:
    return list(json.loads((home / "auth.json").read_text())["credential_pool"]["box"])


async def ask(home: Path) -> str:
    host = start_host()
    try:
        selection = host.select_model()
        request = ModelRequest(selection.model, [Message("user", "hi")])
        answers = [p async for p in host.clients.client(selection).stream(request) if isinstance(p, ModelAnswer)]
        return answers[0].message.text
    finally:
        await host.aclose()


@pytest.mark.parametrize(
    ("text", "args", "label"), [(DECLARED, (), "Box"), (STEPS, ("--label", "work"), "work")], ids=["declared", "steps"]
)
async def test_a_plugin_signs_in_at_its_provider_and_the_token_is_asked_with(
    home: Path, server: OAuthServer, text: str, args: tuple[str, ...], label: str
) -> None:
    provider(home, server, text)
    status, said = sign_in(home, *args)
    assert status == 0, said
    (entry,) = stored(home)
    assert (entry["label"], entry["auth_type"], entry["access_token"]) == (label, "oauth", server.access)
    assert entry["expires_at"] > time.time()
    assert server.access not in said and f"Stored in {home}/auth.json as '{label}'." in said
    assert await ask(home) == "ok" and server.asked == [server.access]


async def test_a_sign_in_that_ended_or_was_refused_is_renewed_by_the_plugin(home: Path, server: OAuthServer) -> None:
    provider(home, server)
    server.lives_s = 1
    assert sign_in(home)[0] == 0
    server.lives_s = 3600
    assert await ask(home) == "ok" and server.renewals == 1  # it had ended
    server.access = "revoked elsewhere"
    assert await ask(home) == "ok" and server.renewals == 2  # it was refused
    assert stored(home)[0]["access_token"] == server.access and stored(home)[0]["refresh_token"] == server.refresh


async def test_a_grant_that_ended_says_how_to_sign_in_again(home: Path, server: OAuthServer) -> None:
    provider(home, server)
    assert sign_in(home)[0] == 0
    server.access = server.refresh = "revoked"
    with pytest.raises(ModelError, match=r"The login 'Box' of box is not renewed: box: .*invalid_grant") as caught:
        await ask(home)
    assert caught.value.kind == "auth" and "hermes auth login box --label Box" in caught.value.hint


async def test_a_renewal_of_a_plugin_that_fails_is_named_and_keeps_the_sign_in(home: Path, server: OAuthServer) -> None:
    provider(home, server, DECLARED.replace("pkce_refresh_credential(oauth)", "lambda entry: {{'access_token': ''}}"))
    assert sign_in(home)[0] == 0
    server.access = "revoked elsewhere"
    before = stored(home)
    with pytest.raises(ModelError, match=r"The plugin of box did not renew the login 'Box': it gave no access token"):
        await ask(home)
    assert stored(home) == before


def test_a_sign_in_that_the_user_refuses_stores_nothing(home: Path, server: OAuthServer) -> None:
    provider(home, server)
    server.denies = True
    status, said = sign_in(home)
    assert status == 1 and "Signing in at box failed: box: the sign-in was refused: access_denied" in said
    assert not (home / "auth.json").exists()


CLIENT = OAuthPKCEConfig("hermes-test", "https://box.test/authorize", "https://box.test/token")


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"token_url": "https://elsewhere.test/token"}, "oauth_token_host_rejected"),
        ({"authorize_url": "http://box.test/authorize"}, "oauth_endpoint_invalid"),
        ({"client_id": " "}, "oauth_client_id_missing"),
        ({"redirect_port": 70000}, "oauth_redirect_invalid"),
    ],
)
def test_a_client_that_would_send_tokens_elsewhere_is_refused(given: dict[str, Any], code: str) -> None:
    with pytest.raises(AuthError, match=r"^box: ") as caught:
        validate_config("box", dataclasses.replace(CLIENT, **given))
    assert (caught.value.provider, caught.value.code) == ("box", code)


def test_a_token_address_at_an_allowed_host_or_below_it_is_accepted() -> None:
    validate_config("box", dataclasses.replace(CLIENT, token_url="https://login.box.test/token"))
    away = dataclasses.replace(CLIENT, token_url="https://login.test/token", allowed_hosts=("login.test",))
    validate_config("box", away)


async def test_the_keys_of_the_agent_are_not_read_through_the_pool(home: Path, server: OAuthServer) -> None:
    provider(home, server)
    (home / "auth.json").write_text(json.dumps({"credential_pool": {"box": [{"label": "Box", "access_token": "t"}]}}))
    host = start_host()
    try:
        assert [entry.label for entry in load_pool("box").entries()] == ["Box"]
        for name in ("openrouter", "unknown"):
            with pytest.raises(PermissionError, match="the agent keeps the keys of its providers"):
                load_pool(name)
        with pytest.raises(ValueError, match="not stored among those of 'box'"):
            load_pool("box").add_entry(PooledCredential("openrouter", access_token="t"))
        gone = load_pool("box").remove_index(1)
        assert gone is not None and gone.label == "Box" and not load_pool("box").has_credentials()
        assert load_pool("box").remove_index(1) is None
    finally:
        await host.aclose()


PACKAGED = DECLARED.replace("register_provider(ProviderProfile", "def register(): register_provider(ProviderProfile")


async def test_d14_an_installed_package_whose_function_takes_nothing_is_a_provider(
    home: Path, server: OAuthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "boxed.py").write_text(PACKAGED.format(url=server.url))
    metadata = home / "boxed-1.0.dist-info"
    metadata.mkdir()
    (metadata / "entry_points.txt").write_text("[hermes_agent.plugins]\nboxed = boxed:register\n")
    (home / "config.yaml").write_text(json.dumps({"plugins": {"enabled": ["boxed"]}}))
    monkeypatch.syspath_prepend(str(home))
    host = start_host()
    try:
        assert host.model_providers.get("box") is not None
        assert host.model_providers.owner("box") == "boxed"
    finally:
        await host.aclose()
        sys.modules.pop("boxed", None)
