from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.config.settings import Settings
from hermes_agent.core.errors import ConfigError, UserError
from hermes_agent.core.redaction import redactor
from hermes_agent.credentials import Credentials
from hermes_agent.models.client_pool import ClientPool
from hermes_agent.models.providers import ProviderCatalog
from hermes_agent.models.selection import ModelSelection, select_model

NOWHERE = {"path": "/nonexistent/weights.gguf"}
"""`model.local` of a machine without the embedded model."""


def chosen(
    tmp_path: Path, block: Any = "", environ: dict[str, str] | None = None, providers: Any = None, **asked: str
) -> ModelSelection:
    block = block if isinstance(block, dict) else {"default": block}
    config = {"model": {"local": NOWHERE, **block}, "providers": providers or {}}
    return select_model(Settings(config), Credentials(tmp_path, environ or {}), **asked)


def summary(selection: ModelSelection) -> tuple[str, str, str, str, str]:
    end = selection.endpoint
    return (selection.provider, selection.model, selection.base_url, end.key_name, end.key)


@pytest.mark.parametrize(
    ("model", "environ", "expected"),
    [
        (
            {"provider": "openrouter", "default": "x/y"},
            {"OPENROUTER_API_KEY": "k1", "OPENAI_API_KEY": "k2"},
            ("openrouter", "x/y", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", "k1"),
        ),
        (
            {"provider": "openai", "default": "gpt"},
            {"OPENAI_API_KEY": "k2", "OPENAI_BASE_URL": "http://proxy:1/v1/"},
            ("openai", "gpt", "http://proxy:1/v1", "OPENAI_API_KEY", "k2"),
        ),
        (
            {"provider": "Google", "default": "gemini-x"},
            {"GOOGLE_API_KEY": " k3\n"},
            (
                "gemini",
                "gemini-x",
                "https://generativelanguage.googleapis.com/v1beta/openai",
                "GOOGLE_API_KEY",
                "k3",
            ),
        ),
        # no provider: the address, then its environment form, then the first key
        (
            {"base_url": "http://127.0.0.1:8000/v1", "default": "m"},
            {"OPENROUTER_API_KEY": "k1"},
            ("custom", "m", "http://127.0.0.1:8000/v1", "", ""),
        ),
        (
            {"base_url": "https://api.groq.com/openai/v1", "default": "m"},
            {"GROQ_API_KEY": "k4", "OPENAI_API_KEY": "k2"},
            ("groq", "m", "https://api.groq.com/openai/v1", "GROQ_API_KEY", "k4"),
        ),
        (
            "m",
            {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "OPENAI_API_KEY": "k2", "OPENROUTER_API_KEY": "k1"},
            ("custom", "m", "http://127.0.0.1:1/v1", "OPENAI_API_KEY", "k2"),
        ),
        (
            {"provider": "auto", "default": "m"},
            {"XAI_API_KEY": "k5", "DEEPSEEK_API_KEY": "k6"},
            ("deepseek", "m", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", "k6"),
        ),
        # the key of the configuration comes before any other
        (
            {"provider": "openai", "default": "m", "api_key": "k7"},
            {"OPENAI_API_KEY": "k2"},
            ("openai", "m", "https://api.openai.com/v1", "model.api_key", "k7"),
        ),
        # a server of one's own needs neither key nor name
        ({"provider": "ollama"}, {}, ("ollama", "", "http://127.0.0.1:11434/v1", "", "")),
        ({}, {"OPENAI_BASE_URL": "http://h:1/v1"}, ("custom", "", "http://h:1/v1", "", "")),
        # a provider whose key is missing is taken: the failure comes when it is asked
        ({"provider": "xai", "default": "m"}, {}, ("xai", "m", "https://api.x.ai/v1", "", "")),
    ],
)
def test_what_is_configured_and_which_keys_are_there_choose(
    tmp_path: Path, model: Any, environ: dict[str, str], expected: tuple[str, ...]
) -> None:
    assert summary(chosen(tmp_path, model, environ)) == expected


def test_what_is_asked_for_takes_the_place_of_the_configuration(tmp_path: Path) -> None:
    configured = {"provider": "custom", "base_url": "http://h:1/v1", "api_key": "k1", "default": "m"}
    environ = {"GROQ_API_KEY": "k4"}
    expected = ("groq", "other", "https://api.groq.com/openai/v1", "GROQ_API_KEY", "k4")
    assert summary(chosen(tmp_path, configured, environ, provider="groq", model="other")) == expected
    own = ("custom", "other", "http://h:1/v1", "model.api_key", "k1")
    assert summary(chosen(tmp_path, configured, environ, model="other")) == own
    assert summary(chosen(tmp_path, configured, environ, model="other", provider="custom")) == own
    with pytest.raises(UserError, match="No model is named for Groq"):
        chosen(tmp_path, configured, environ, provider="groq")


def test_server_of_the_block_providers_has_its_own_key_headers_model_and_deadline(tmp_path: Path) -> None:
    own = {
        "my-box": {"base_url": "http://box:1/v1", "default_model": "m-box", "headers": {"X-Team": "blue-team-token"}},
        "openai": {"base_url": "http://proxy:1/v1", "api_key_env": "PROXY_KEY"},
        "plain": {"base_url": "http://plain:1/v1", "api_key": "k-plain"},
    }
    environ = {"MY_BOX_API_KEY": "k8", "PROXY_KEY": "k9", "OPENAI_API_KEY": "k2"}
    box = chosen(tmp_path, {"provider": "my-box"}, environ, own)
    assert summary(box) == ("my-box", "m-box", "http://box:1/v1", "MY_BOX_API_KEY", "k8")
    assert box.endpoint.provider.default_headers == (("X-Team", "blue-team-token"),)
    assert "blue-team-token" not in redactor("X-Team: blue-team-token")
    proxy = chosen(tmp_path, {"provider": "openai", "default": "m"}, environ, own)
    assert summary(proxy) == ("openai", "m", "http://proxy:1/v1", "PROXY_KEY", "k9")
    plain = chosen(tmp_path, {"provider": "plain", "default": "m"}, environ, own)
    assert summary(plain) == ("plain", "m", "http://plain:1/v1", "providers.plain.api_key", "k-plain")


@pytest.mark.parametrize(
    ("model", "environ", "says"),
    [
        ({"provider": "opnai", "default": "m"}, {}, "model.provider: 'opnai' is no provider"),
        ({"provider": "custom", "default": "m"}, {}, "model.base_url: the provider custom has no address of its own"),
        ({"base_url": "localhost:8000/v1", "default": "m"}, {}, "model.base_url: 'localhost:8000/v1' is no address"),
        ({"provider": "openai", "default": "m"}, {"OPENAI_BASE_URL": "nope"}, "OPENAI_BASE_URL: 'nope' is no address"),
        ({"base_url": "http://h:99999/v1", "default": "m"}, {}, "model.base_url: 'http://h:99999/v1' is no address"),
    ],
)
def test_setting_that_is_wrong_is_named(
    tmp_path: Path, model: dict[str, str], environ: dict[str, str], says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        chosen(tmp_path, model, environ)
    assert caught.value.message.startswith(says)
    assert caught.value.hint


def test_nothing_configured_lists_the_ways_with_status_2(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        chosen(tmp_path)
    assert caught.value.exit_status == 2
    for way in ("OPENROUTER_API_KEY", "model.base_url", "embedded"):
        assert way in caught.value.hint


def test_model_without_any_provider_that_could_have_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        chosen(tmp_path, "gpt-9")
    assert (caught.value.exit_status, "'gpt-9'" in caught.value.message) == (2, True)


def test_key_without_a_model_says_that_a_model_is_wanted(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        chosen(tmp_path, "", {"GROQ_API_KEY": "k4"})
    assert caught.value.message == "GROQ_API_KEY is there, but no model is named."
    assert caught.value.exit_status == 2


def test_provider_without_a_model_says_that_a_model_is_wanted(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        chosen(tmp_path, {"provider": "groq"}, {"GROQ_API_KEY": "k4"})
    assert caught.value.message == "No model is named for Groq (api.groq.com)."
    assert caught.value.exit_status == 2


def test_embedded_model_answers_where_nothing_is_set_up(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="the runtime of the embedded model is not installed")
    weights = tmp_path / "tiny.gguf"
    weights.write_bytes(b"GGUF")
    local = {"local": {"path": str(weights)}}
    found = chosen(tmp_path, local)
    assert summary(found) == ("local", "tiny", "", "", "")
    assert found.client_profile is not None and found.new_client().provider == "local"
    assert "GROQ_API_KEY" in chosen(tmp_path, local, {"GROQ_API_KEY": "k4"}).reason
    assert summary(chosen(tmp_path, {**local, "default": "m"}, {"GROQ_API_KEY": "k4"}))[0] == "groq"
    assert summary(chosen(tmp_path, {**local, "provider": "local"}, {"GROQ_API_KEY": "k4"}))[0] == "local"


def test_key_that_is_used_is_masked_from_then_on(tmp_path: Path) -> None:
    chosen(tmp_path, {"provider": "openai", "default": "m", "api_key": "a-key-of-no-known-form"})
    assert redactor("a-key-of-no-known-form") == "[redacted]"


def test_selection_does_not_show_its_key(tmp_path: Path) -> None:
    shown = repr(chosen(tmp_path, {"provider": "openai", "default": "m"}, {"OPENAI_API_KEY": "k-shown-nowhere"}))
    assert "k-shown-nowhere" not in shown


async def test_pool_makes_one_client_per_endpoint(tmp_path: Path) -> None:
    environ = {"OPENAI_API_KEY": "k2", "GROQ_API_KEY": "k4"}
    pool = ClientPool()
    first = pool.client(chosen(tmp_path, {"provider": "openai", "default": "m"}, environ))
    same = pool.client(chosen(tmp_path, {"provider": "openai", "default": "other"}, environ))
    another = pool.client(chosen(tmp_path, {"provider": "groq", "default": "m"}, environ))
    assert first is same and first is not another
    await pool.aclose()


def test_every_provider_of_a_vendor_has_an_address_and_a_key() -> None:
    for provider in ProviderCatalog().providers():
        if provider.needs_key:
            own = ("azure-foundry",)  # at the address of its customer
            assert provider.name in own or provider.base_url.startswith("https://"), provider.name
            assert provider.key_names, provider.name
    names = [name for provider in ProviderCatalog().providers() for name in (provider.name, *provider.profile.aliases)]
    assert len(names) == len(set(names))


def test_environment_of_the_process_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "OPENAI_API_KEY", "k2")
    with pytest.raises(UserError):
        chosen(tmp_path, "m", {})


def test_operator_s_table_has_every_provider_with_its_keys_and_address() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/operator/models.md").read_text("utf-8")
    text = next(part for part in page.split("\n\n") if "| `openrouter` |" in part)
    rows = {line.split("`")[1]: line for line in text.splitlines() if line.startswith("| `")}  # the first is the head
    assert list(rows)[1:] == [provider.name for provider in ProviderCatalog().providers()]
    for provider in ProviderCatalog().providers():
        for said in (*provider.profile.aliases, *provider.env_vars, provider.base_url):
            assert said in rows[provider.name], (provider.name, said)


def test_a_profile_selects_the_key_of_that_name(tmp_path: Path) -> None:
    own = {"groq": {"profiles": {"work": "GROQ_WORK_KEY", "empty": "GROQ_NO_KEY"}}}
    block = {"provider": "groq", "default": "m", "api_key": "key-main"}
    environ = {"GROQ_WORK_KEY": "key-of-the-work-profile", "GROQ_API_KEY": "k4"}

    def key(profile: str) -> tuple[str, str]:
        endpoint = chosen(tmp_path, block, environ, own, profile=profile).endpoint
        return endpoint.key_name, endpoint.key

    assert key("work") == ("GROQ_WORK_KEY", "key-of-the-work-profile")
    assert key("") == key("default") == ("model.api_key", "key-main")
    assert redactor("key-of-the-work-profile") == "[redacted]"
    with pytest.raises(
        ValueError, match=r"^unknown auth profile 'home' of provider 'groq'; known: default, empty, work$"
    ):
        key("home")
    with pytest.raises(UserError, match=r"The auth profile 'empty' of groq has no key: GROQ_NO_KEY has no value"):
        key("empty")
    with pytest.raises(ValueError, match=r"of provider 'openai'; known: default$"):
        chosen(tmp_path, block, environ, own, provider="openai", model="m", profile="work")
