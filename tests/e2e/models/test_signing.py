"""Requests without a key: Bedrock signs, Vertex has Google's credentials, Azure has tokens of Entra ID."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from hermes_agent.contracts.model_client import ModelAnswer, ModelRequest
from hermes_agent.contracts.model_provider import ProviderProfile, UnsignedRequest
from hermes_agent.core.errors import ModelError
from hermes_agent.core.messages import Message
from hermes_agent.host import Host
from hermes_agent.models.bundled import bundled_profile
from hermes_agent.models.client import HttpModelClient
from hermes_agent.models.providers import ModelEndpoint, provider_from_profile
from peers.aws import SignedModel
from peers.entra import CLIENT, TENANT, Azure
from peers.entra import SECRET as CLIENT_SECRET
from peers.google import Google
from peers.wires import Reply, WireModel

SECRET, SESSION = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "session/token+of=a/role"


@pytest.fixture(autouse=True)
def nothing_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("AWS_", "BEDROCK_", "GOOGLE_", "VERTEX_", "CLOUDSDK_", "GCE_", "AZURE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:9")


def home_for(tmp_path: Path, provider: str, url: str) -> Path:
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    model = {"provider": provider, "default": "m-1", "base_url": url}
    (home / "config.yaml").write_text(json.dumps({"model": model, "agent": {"api_max_retries": 0}}))
    return home


async def ask(home: Path, times: int = 1) -> list[str]:
    async def main() -> list[str]:
        host = Host.build(home)
        try:
            selection = host.select_model()
            client = host.clients.client(selection)
            request, said = ModelRequest(selection.model, [Message("user", "Grüße")]), []
            for _ in range(times):
                said += [p.message.text async for p in client.stream(request) if isinstance(p, ModelAnswer)]
            return said
        finally:
            await host.aclose()

    return await main()


async def failure(home: Path) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await ask(home)
    return caught.value


def hermes(home: Path, tmp_path: Path, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hermes_agent", *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "HERMES_HOME": str(home), **environ},
        check=False,
    )


# -- Bedrock -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "query", "signature"),
    [
        ("GET", "", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("GET", "?Param2=value2&Param1=value1", "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"),
        ("POST", "", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
    ],
)
def test_the_signatures_are_those_of_amazons_test_suite(method: str, query: str, signature: str) -> None:
    bundled_profile("bedrock")
    from hermes_plugins_bundled_model_providers_bedrock import sigv4  # type: ignore[import-not-found]

    now = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)
    url = f"https://example.amazonaws.com/{query}"
    keys = sigv4.Keys("AKIDEXAMPLE", SECRET)
    headers = sigv4.sign_headers(method, url, {}, b"", keys, region="us-east-1", service="service", now=now)
    assert headers["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request,"
        f" SignedHeaders=host;x-amz-date, Signature={signature}"
    )


@pytest.mark.parametrize("session", ["", SESSION])
@pytest.mark.parametrize("place", ["profile", "config"])
async def test_bedrock_is_asked_with_a_signature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, session: str
) -> None:
    with SignedModel({"AKIDEXAMPLE": (SECRET, session)}, "eu-central-1") as model:
        home = home_for(tmp_path, "bedrock", model.url)
        section = "work" if place == "profile" else "profile work"
        file = tmp_path / "file"
        token = f"aws_session_token = {session}\n" if session else ""
        file.write_text(
            f"[{section}]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = {SECRET}\n{token}"
            "region = eu-central-1\n"
        )
        monkeypatch.setenv("AWS_PROFILE", "work")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE" if place == "profile" else "AWS_CONFIG_FILE", str(file))
        assert await ask(home, 2) == ["It is done."] * 2
        assert model.refused == []


def test_keys_of_aws_in_the_file_env_of_the_home_sign(tmp_path: Path) -> None:
    with SignedModel({"AKIDEXAMPLE": (SECRET, SESSION)}, "eu-central-1") as model:
        home = home_for(tmp_path, "bedrock", model.url)
        values = {"ACCESS_KEY_ID": "AKIDEXAMPLE", "SECRET_ACCESS_KEY": SECRET, "SESSION_TOKEN": SESSION}
        lines = [f"AWS_{name}={value}\n" for name, value in (values | {"REGION": "eu-central-1"}).items()]
        (home / ".env").write_text("".join(lines))
        (home / ".env").chmod(0o600)
        done = hermes(home, tmp_path, "-z", "hi")
    assert (done.returncode, done.stdout) == (0, "It is done.\n"), done.stderr


async def test_a_key_of_bedrock_goes_before_the_signature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bedrock-key-0123456789")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with SignedModel({"AKIDEXAMPLE": (SECRET, "")}) as model:
        error = await failure(home_for(tmp_path, "bedrock", model.url))
        assert model.refused == ["Missing Authentication Token"]
    assert (error.kind, "AWS_BEARER_TOKEN_BEDROCK" in str(error)) == ("auth", True)


@pytest.mark.parametrize(
    ("environ", "kind", "told"),
    [
        ({}, "no_key", "There are no AWS credentials"),
        ({"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE"}, "no_key", "AWS_SECRET_ACCESS_KEY is not"),
        ({"AWS_PROFILE": "gone"}, "no_key", "AWS_PROFILE is 'gone', and there is no such profile"),
        ({"AWS_PROFILE": "sso"}, "no_key", "sso_session"),
        (
            {"AWS_ACCESS_KEY_ID": "AKIDOTHER", "AWS_SECRET_ACCESS_KEY": SECRET},
            "auth",
            "security token included in the request is invalid",
        ),
        (
            {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "wrong" + SECRET},
            "auth",
            "signature does not match",
        ),
    ],
    ids=["none", "half", "no profile", "sso", "unknown key", "wrong secret"],
)
async def test_what_is_wrong_with_the_credentials_of_aws_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], kind: str, told: str
) -> None:
    monkeypatch.setitem(sys.modules, "botocore", None)  # type: ignore[arg-type]
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text("[profile sso]\nsso_session = work\n")
    with SignedModel({"AKIDEXAMPLE": (SECRET, "")}) as model:
        error = await failure(home_for(tmp_path, "bedrock", model.url))
    assert (error.kind, told in str(error)) == (kind, True), str(error)
    assert SECRET not in str(error)


async def test_a_profile_whose_keys_have_to_be_asked_for_signs_with_botocore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("botocore")
    answer = json.dumps(
        {"Version": 1, "AccessKeyId": "AKIDEXAMPLE", "SecretAccessKey": SECRET, "SessionToken": SESSION}
    )
    (tmp_path / "answer").write_text(answer)
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text(f"[profile asks]\ncredential_process = cat {tmp_path}/answer\n")
    monkeypatch.setenv("AWS_PROFILE", "asks")
    with SignedModel({"AKIDEXAMPLE": (SECRET, SESSION)}) as model:
        assert await ask(home_for(tmp_path, "bedrock", model.url)) == ["It is done."]


def signing_client(sign: Callable[[UnsignedRequest], Mapping[str, str]], url: str) -> HttpModelClient:
    class Signs(ProviderProfile):
        def sign(self, request: UnsignedRequest) -> Mapping[str, str]:
            return sign(request)

    return HttpModelClient(ModelEndpoint(provider_from_profile(Signs("signs", display_name="Signs")), url, "", ""))


async def answers_of(client: HttpModelClient, count: int) -> list[str]:
    async def one() -> str:
        request = ModelRequest("m-1", [Message("user", "hi")])
        [text] = [p.message.text async for p in client.stream(request) if isinstance(p, ModelAnswer)]
        return text

    try:
        return await asyncio.wait_for(asyncio.gather(*(one() for _ in range(count))), 20)
    finally:
        await client.aclose()


async def test_requests_at_once_are_each_signed_anew_when_the_token_is_refused() -> None:
    with Google() as google:
        bearer = f"Bearer {google.token}"
        client = signing_client(lambda r: {"authorization": bearer if r.again else "Bearer old"}, google.url)
        assert await answers_of(client, 8) == ["It is done."] * 8


async def test_a_token_that_the_provider_repeats_in_its_refusal_is_masked() -> None:
    token = "FwoGZXIvYXdzEXAMPLE0a1b2c3"
    refusal = Reply(f"The Canonical String should have been host:x x-amz-security-token:{token}", status=403)
    with WireModel(refusal) as model:
        client = signing_client(lambda r: {"x-amz-security-token": token, "x-amz-date": "20261123T"}, model.url)
        with pytest.raises(ModelError) as caught:
            await answers_of(client, 1)
    assert "The Canonical String" in str(caught.value) and token not in str(caught.value)


async def test_a_profile_that_fails_to_sign_is_named() -> None:
    client = signing_client(lambda r: {"authorization": {}["missing"]}, "http://127.0.0.1:9/v1")
    with pytest.raises(ModelError, match="its profile failed with KeyError: 'missing'") as caught:
        await answers_of(client, 1)
    assert caught.value.kind == "refused"


def test_auth_status_says_what_bedrock_is_signed_with(tmp_path: Path) -> None:
    home = home_for(tmp_path, "bedrock", "http://127.0.0.1:9/openai/v1")
    done = hermes(home, tmp_path, "auth", "status", AWS_ACCESS_KEY_ID="AKIDEXAMPLE", AWS_SECRET_ACCESS_KEY=SECRET)
    assert (done.returncode, done.stdout) == (0, "bedrock: AWS_ACCESS_KEY_ID of the environment: ready\n")
    half = hermes(home, tmp_path, "auth", "status", AWS_ACCESS_KEY_ID="AKIDEXAMPLE")
    assert half.returncode == 1 and "AWS_SECRET_ACCESS_KEY is not" in half.stdout


# -- Vertex ------------------------------------------------------------------------------------------------------------


def user(google: Google) -> dict[str, Any]:
    values = {"client_id": "id-1", "client_secret": "secret-1", "refresh_token": "rt-1"}
    return {"type": "authorized_user", **values, "token_uri": f"http://{google.address}/token"}


def account(google: Google) -> dict[str, Any]:
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    values = {"private_key": google.key.private_bytes(*form).decode(), "private_key_id": "kid-1"}
    values |= {"client_email": "robot@project.example", "token_uri": f"http://{google.address}/token"}
    return {"type": "service_account", **values}


@pytest.mark.parametrize("kind", ["user", "account", "metadata"])
async def test_vertex_renews_its_token_when_it_ends_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    with Google() as google:
        if kind == "metadata":
            google.on_machine = True
            # a proxy, at which nothing listens, is for other hosts: it would be shown the token
            monkeypatch.setenv("GCE_METADATA_HOST", google.address.replace("127.0.0.1", "localhost"))
            monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
            monkeypatch.setenv("no_proxy", "127.0.0.1")
        elif kind == "user":
            folder = tmp_path / ".config" / "gcloud"
            folder.mkdir(parents=True)
            (folder / "application_default_credentials.json").write_text(json.dumps(user(google)))
        else:
            (tmp_path / "account.json").write_text(json.dumps(account(google)))
            monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
        home = home_for(tmp_path, "vertex", google.url)
        _forget()
        assert await ask(home, 3) == ["It is done."] * 3
        assert len(google.renewed) == 1
        google.lives_s = 60  # it is about to end
        google.renewed.append("revoked")  # the present token is another one: the one that is kept is refused
        assert await ask(home) == ["It is done."]
        assert await ask(home) == ["It is done."]
        assert len(google.renewed) == 4


async def test_a_token_of_google_is_renewed_in_time_for_a_week(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead, real = [0.0], time.monotonic
    with Google() as google:
        (tmp_path / "account.json").write_text(json.dumps(account(google)))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
        home = home_for(tmp_path, "vertex", google.url)
        _forget()
        monkeypatch.setattr(time, "monotonic", lambda: real() + ahead[0])
        for day in range(8):
            ahead[0] = day * 86_400.0
            assert await ask(home) == ["It is done."]
            assert len(google.renewed) == day + 1


def _forget() -> None:
    bundled_profile("vertex")
    sys.modules["hermes_plugins_bundled_model_providers_vertex"]._tokens.cache_clear()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "which is not there"),
        ("{", "cannot be read"),
        ({"type": "external_account"}, "'external_account'"),
        ({"type": "authorized_user"}, "has no 'client_id'"),
        ({"token_uri": "http://evil.example/token"}, "which is no https://"),
        ({"refresh_token": "other"}, "Token has been expired or revoked"),
        ({"type": "service_account", "private_key": "x", "private_key_id": "k", "client_email": "e"}, "no RSA key"),
    ],
)
async def test_what_is_wrong_with_the_credentials_of_google_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: Any, told: str
) -> None:
    file = tmp_path / "credentials.json"
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    _forget()
    with Google() as google:
        if isinstance(content, str):
            file.write_text(content)
        elif content is not None:
            whole = content if "type" in content else user(google) | content
            file.write_text(json.dumps(whole))
        error = await failure(home_for(tmp_path, "vertex", google.url))
    assert (error.kind, told in str(error)) == ("no_key", True), str(error)


async def test_a_machine_without_credentials_of_google_is_told_how_to_get_them(tmp_path: Path) -> None:
    _forget()
    error = await failure(home_for(tmp_path, "vertex", "http://127.0.0.1:9/v1"))
    assert error.kind == "no_key" and "gcloud auth application-default login" in str(error)


# -- Azure -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Azure]:
    """Azure, whose authority this process knows and trusts."""
    with Azure(tmp_path) as azure:
        bundled_profile("azure-foundry")
        from hermes_plugins_bundled_model_providers_azure_foundry import entra  # type: ignore[import-not-found]

        entra.tokens.cache_clear()
        monkeypatch.setenv("AZURE_AUTHORITY_HOST", azure.authority.url)
        monkeypatch.setenv("AZURE_TENANT_ID", TENANT)
        monkeypatch.setenv("AZURE_CLIENT_ID", CLIENT)
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", azure.authority.certificate)
        yield azure


@pytest.mark.parametrize("kind", ["workload", "principal"])
async def test_azure_is_asked_with_a_token_that_is_kept_and_asked_for_again_when_it_is_refused(
    azure: Azure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind == "workload":
        azure.authority.assertion = "assertion.of.the.cluster"
        (tmp_path / "token").write_text(azure.authority.assertion)
        monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(tmp_path / "token"))
    else:
        monkeypatch.setenv("AZURE_CLIENT_SECRET", CLIENT_SECRET)
    home = home_for(tmp_path, "azure-foundry", azure.url)

    assert await ask(home, 3) == ["It is done."] * 3
    assert [grant["scope"] for grant in azure.authority.grants] == ["https://cognitiveservices.azure.com/.default"]
    azure.authority.grants.append({})  # the present token is another one: the one that is kept is refused
    assert await ask(home, 2) == ["It is done."] * 2
    assert len(azure.authority.grants) == 3


async def test_a_refusal_of_entra_names_its_code_and_what_to_set(
    azure: Azure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "another-secret")

    error = await failure(home_for(tmp_path, "azure-foundry", azure.url))

    assert error.kind == "no_key"
    assert "AADSTS7000215: Invalid client secret provided" in str(error)
    assert "Trace ID" not in str(error) and "another-secret" not in str(error)
    assert "AZURE_FOUNDRY_API_KEY" in error.hint


@pytest.mark.parametrize(
    ("host", "audience"),
    [
        ("box.openai.azure.com", "cognitiveservices.azure.com"),
        ("box.services.ai.azure.com", "cognitiveservices.azure.com"),
        ("box.openai.azure.us", "cognitiveservices.azure.us"),
        ("azure.us.example.org", "cognitiveservices.azure.com"),
    ],
)
def test_a_token_is_for_the_cloud_of_the_resource(azure: Azure, host: str, audience: str) -> None:
    from hermes_plugins_bundled_model_providers_azure_foundry import entra

    assert entra.scope_of(host) == f"https://{audience}/.default"


def test_auth_status_says_which_identity_azure_is_asked_with(tmp_path: Path) -> None:
    home = home_for(tmp_path, "azure-foundry", "http://127.0.0.1:9/openai/v1")
    named = {"AZURE_CLIENT_ID": CLIENT, "AZURE_FEDERATED_TOKEN_FILE": "/run/token"}
    done = hermes(home, tmp_path, "auth", "status", **named)
    assert (done.returncode, done.stdout) == (
        0,
        "azure-foundry: the workload identity client-1 (/run/token): ready\n",
    )
