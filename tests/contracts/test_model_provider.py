"""Model providers (docs/plugins/kinds/model_provider.md): bundled profiles, those of plugins, the gate."""

from __future__ import annotations

import inspect
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from hermes_agent.contracts.model_client import ModelAnswer, ModelRequest
from hermes_agent.contracts.model_provider import MODEL_PROVIDER, ProviderProfile
from hermes_agent.core.errors import ConfigError, ModelError, UserError
from hermes_agent.core.messages import Message
from hermes_agent.host import Host
from hermes_agent.models.bundled import BUNDLED_ORDER, BUNDLED_PROFILES
from hermes_agent.models.providers import ProviderCatalog
from hermes_agent.plugins.context import PluginContext

ROOT = Path(__file__).parents[2]
EXPECTED = ROOT / "tests" / "data" / "model_providers"
GUIDES = Path(os.environ.get("HERMES_GUIDES") or ROOT.parent / "shared" / "guides")


@pytest.fixture
def build(
    home: Path, served: None, monkeypatch: pytest.MonkeyPatch, without_host: None
) -> Iterator[Callable[[str], Host]]:
    """Build the process's host over this config, and load its plugins."""
    for provider in ProviderCatalog().providers():
        for name in provider.env_vars:
            monkeypatch.delenv(name, raising=False)
    hosts: list[Host] = []

    def make(config: str = "") -> Host:
        (home / "config.yaml").write_text(config)
        hosts.append(Host.build(home))
        hosts[-1].plugins.discover_and_load()
        return hosts[-1]

    yield make
    for host in hosts:
        host.bridge.close()


async def ask(host: Host, request: ModelRequest | None = None) -> str:
    """Ask the configured model on a loop of its own."""

    async def once() -> str:
        selection = host.select_model()
        asked = request or ModelRequest(selection.model, [Message("user", "hi")])
        answers = [part async for part in host.clients.client(selection).stream(asked) if isinstance(part, ModelAnswer)]
        await host.clients.aclose()
        return answers[0].message.text

    return await once()


def write(home: Path, place: str, body: str, manifest: str = "") -> None:
    folder = home / "plugins" / place
    folder.mkdir(parents=True)
    (folder / "plugin.yaml").write_text(manifest or f"name: {folder.name}-plugin\nkind: model-provider\n")
    (folder / "__init__.py").write_text(
        f"from providers import register_provider\nfrom providers.base import *\n{body}"
    )


ACME = "register_provider(ProviderProfile(name='acme', env_vars=('ACME_API_KEY',), base_url='https://acme.test/v1'))\n"


ANSWERS = {
    "anthropic_messages": b'{"type": "message", "content": [{"type": "text", "text": "ok"}], "stop_reason": "end_turn"}'
}
"""Of protocols other than chat completions, no streams."""

# -- bundled ---------------------------------------------------------------------------------------------------------


def test_every_bundled_folder_is_in_the_order_and_has_a_profile_of_its_name() -> None:
    assert {p.name for p in BUNDLED_PROFILES.iterdir() if p.is_dir()} == set(BUNDLED_ORDER)
    for name in BUNDLED_ORDER:
        text = (BUNDLED_PROFILES / name / "plugin.yaml").read_text()
        assert f"name: {name}\nkind: model-provider\n" in text
        longest = 120 if (BUNDLED_PROFILES / name / "client.py").exists() else 60
        assert len((BUNDLED_PROFILES / name / "__init__.py").read_text().splitlines()) <= longest
    assert [profile.name for profile in ProviderCatalog().profiles()] == list(BUNDLED_ORDER)


@pytest.mark.parametrize("name", [name for name in BUNDLED_ORDER if name != "local"])
async def test_a_bundled_provider_is_sent_this_request(name: str, server: Any, build: Callable[[str], Host]) -> None:
    provider = ProviderCatalog().get(name)
    assert provider is not None
    # a variable in it stands for itself
    address = urlsplit(re.sub(r"\$\{(\w+)[^}]*\}", r"\1", provider.base_url) or "http://custom.test/v1")
    here = f"http://127.0.0.1:{server.server_address[1]}{address.path}"
    os_key = provider.key_names[0]
    host = build(f"model:\n  provider: {name}\n  default: some-model\n  base_url: {here}\n")
    (host.home / ".env").write_text(f"{os_key}=key-of-{name}\n")
    (host.home / ".env").chmod(0o600)
    request = ModelRequest(
        "some-model",
        [Message("system", "You are kind."), Message("user", "hi")],
        tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}],
        max_tokens=100,
        temperature=0.5,
    )

    server.answer = ANSWERS.get(provider.api_mode, server.answer)

    assert await ask(host, request) == "ok"

    ((path, headers, body),) = server.seen
    sent = {"url": f"{address.scheme}://{address.netloc}{path}", "headers": headers, "body": body}
    assert sent == json.loads((EXPECTED / f"{name}.json").read_text())


# -- plugins ---------------------------------------------------------------------------------------------------------


def test_the_guide_s_profile_is_listed_and_selected(home: Path, build: Callable[[str], Host]) -> None:
    guide = GUIDES / "build-a-plugin.newest.ko.txt"
    if not guide.is_file():
        pytest.skip(f"{guide} is not there")
    text = guide.read_text()
    body = re.search(r"# plugins/model-providers/acme/__init__\.py\n(.*?)\n`", text, re.DOTALL)
    manifest = re.search(r"# plugins/model-providers/acme/plugin\.yaml\n(.*?)\n`", text, re.DOTALL)
    assert body is not None and manifest is not None
    folder = home / "plugins" / "model-providers" / "acme"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("from providers import register_provider\n" + body[1] + "\n")
    (folder / "plugin.yaml").write_text(manifest[1] + "\n")

    host = build("plugins:\n  enabled: [acme-provider]\nmodel:\n  provider: acme-inference\n  default: acme-large-v3\n")
    from providers import get_provider_profile, list_providers

    (record,) = host.plugins.records
    assert (record.manifest.key, record.error, record.providers_registered) == (
        "model-providers/acme",
        None,
        [(MODEL_PROVIDER, "acme")],
    )
    assert [p.name for p in list_providers()] == [*BUNDLED_ORDER, "acme"]
    profile = get_provider_profile("Acme-Inference")
    assert (profile.default_aux_model, profile.fallback_models) == (
        "acme-small-fast",
        ("acme-large-v3", "acme-medium-v3"),
    )
    selection = host.select_model()
    assert (selection.provider, selection.base_url) == ("acme", "https://api.acme.example.com/v1")


@pytest.mark.parametrize(
    ("place", "config", "loaded"),
    [
        ("model-providers/acme", "", False),
        ("model-providers/acme", "plugins:\n  enabled: [model-providers/acme]\n", True),
        ("model-providers/acme", "plugins:\n  enabled: [acme-plugin]\n", True),
        ("acme", "plugins:\n  enabled: [acme-plugin]\n", True),
        ("model-providers/acme", "model:\n  provider: acme\n", True),
        ("acme", "model:\n  provider: acme\n", True),
        ("acme", "model:\n  provider: acme\nplugins:\n  disabled: [acme-plugin]\n", False),
    ],
)
def test_a_plugin_s_profile_is_there_when_the_plugin_is_enabled_or_chosen(
    home: Path, build: Callable[[str], Host], place: str, config: str, loaded: bool
) -> None:
    write(home, place, ACME)

    host = build(config)

    assert [r.enabled for r in host.plugins.records] == [loaded]
    assert (host.model_providers.get("acme") is not None) == loaded


def test_a_folder_of_model_providers_needs_no_kind(home: Path, build: Callable[[str], Host]) -> None:
    write(home, "model-providers/acme", ACME, manifest="name: acme\n")

    assert build("plugins:\n  enabled: [acme]\n").plugins.records[0].manifest.kind == "model-provider"


def test_a_plugin_s_profile_stands_in_for_the_bundled_one_of_its_name(
    home: Path, build: Callable[[str], Host], caplog: pytest.LogCaptureFixture
) -> None:
    write(home, "model-providers/groq", ACME.replace("acme", "groq"))

    host = build("plugins:\n  enabled: [groq-plugin]\nmodel:\n  provider: groq\n  default: m\n")

    assert host.select_model().base_url == "https://groq.test/v1"
    assert host.model_providers.names() == list(BUNDLED_ORDER)
    assert [p.base_url for p in host.model_providers.profiles() if p.name == "groq"] == ["https://groq.test/v1"]
    assert any("`groq` of plugin `model-providers/groq` replaces the bundled one" in m for m in caplog.messages)


def test_the_second_plugin_with_a_name_goes_without_it(home: Path, build: Callable[[str], Host]) -> None:
    write(home, "one", ACME)
    write(home, "two", ACME.replace("acme.test", "two.test"))

    host = build("plugins:\n  enabled: [one-plugin, two-plugin]\n")

    first, second = host.plugins.records
    assert (first.problems, [p.owner for p in second.problems]) == ([], ["one-plugin"])
    assert host.model_providers.get("acme").base_url == "https://acme.test/v1"


def test_what_a_plugin_registered_before_it_failed_is_taken_back(home: Path, build: Callable[[str], Host]) -> None:
    write(home, "half", ACME + "raise RuntimeError('half-way')\n")

    host = build("plugins:\n  enabled: [half-plugin]\n")

    assert host.plugins.records[0].error == "RuntimeError: half-way"
    assert host.model_providers.get("acme") is None


def test_a_module_that_registers_no_profile_fails_and_says_so(home: Path, build: Callable[[str], Host]) -> None:
    write(home, "empty", "")

    assert build("plugins:\n  enabled: [empty-plugin]\n").plugins.records[0].error == "no provider profile registered"


@pytest.mark.parametrize(
    "body",
    [
        "def register(ctx): ctx.register_model_provider(P)\n",
        "def register(): register_provider(P)\n",
        "def register(): return P\n",
    ],
)
def test_register_may_take_the_context_or_nothing(home: Path, build: Callable[[str], Host], body: str) -> None:
    write(home, "acme", f"P = ProviderProfile(name='acme', base_url='https://acme.test/v1')\n{body}")

    host = build("plugins:\n  enabled: [acme-plugin]\n")

    assert (host.plugins.records[0].error, host.model_providers.owner("acme")) == (None, "acme-plugin")


@pytest.mark.parametrize(
    "value", ["profile_package:register", "profile_package", "profile_package:PROFILE", "profile_package:Own"]
)
def test_a_package_brings_a_profile(
    home: Path, build: Callable[[str], Host], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    package = tmp_path / "site" / "profile_package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "from providers import register_provider\nfrom providers.base import ProviderProfile\n"
        "PROFILE = ProviderProfile(name='acme', base_url='https://acme.test/v1')\n"
        "class Own(ProviderProfile):\n    def __init__(self): super().__init__('acme', base_url='https://acme.test/v1')\n"
        "def register() -> None: register_provider(PROFILE)\n"
    )
    info = tmp_path / "site" / "profile_package-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text(f"[hermes_agent.model_providers]\nacme = {value}\n")

    assert build("").model_providers.get("acme") is None
    host = build("plugins:\n  enabled: [acme]\n")
    sys.modules.pop("profile_package")

    assert [(r.manifest.key, r.error) for r in host.plugins.records] == [("model-providers/acme", None)]
    assert host.model_providers.owner("acme") == "model-providers/acme"


def test_something_else_than_a_profile_is_refused(
    home: Path, build: Callable[[str], Host], caplog: pytest.LogCaptureFixture
) -> None:
    write(home, "odd", "def register(ctx): ctx.register_model_provider(3)\n")
    write(home, "worse", "register_provider(3)\n")
    caplog.set_level(logging.INFO)

    odd, worse = build("plugins:\n  enabled: [odd-plugin, worse-plugin]\n").plugins.records

    assert (odd.error, odd.notes) == (
        None,
        ["int was not registered as model provider: it does not inherit from ProviderProfile"],
    )
    assert worse.error == "TypeError: register_provider(int): it does not inherit from ProviderProfile"


async def test_the_example_is_asked_with_what_its_hook_adds(
    start: Callable[..., Host], server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXAMPLE_BASE_URL", f"http://127.0.0.1:{server.server_address[1]}/v1")
    monkeypatch.setenv("EXAMPLE_API_KEY", "key-1")
    host = start("model_provider", config="model:\n  provider: example\n  default: example-large\n")

    assert await ask(host) == "ok"

    ((path, headers, body),) = server.seen
    assert (path, headers["authorization"]) == ("/v1/chat/completions", "Bearer key-1")
    assert body["metadata"] == {"team": "blue", "model": "example-large"}


HOOKED = """
import threading
class Own(ProviderProfile):
    def prepare_messages(self, messages):
        assert threading.current_thread() is not threading.main_thread()
        return [{**m, "content": m["content"].upper()} for m in messages]
    def build_extra_body(self, *, session_id=None, **context):
        return {"session": session_id, "keys": sorted(context)}
    def build_api_kwargs_extras(self, *, reasoning_config=None, **context):
        return {"more": sorted(context)}, {"top_p": 0.5, "extra_headers": {"X-Own": "1"}}
    def get_max_tokens(self, model):
        return 77
register_provider(Own(name="acme", base_url="http://127.0.0.1:PORT/v1", fixed_temperature=TEMPERATURE))
"""


@pytest.mark.parametrize(("temperature", "sent"), [("0.25", 0.25), ("OMIT_TEMPERATURE", None), ("None", 0.9)])
async def test_every_hook_has_its_effect_and_runs_beside_the_loop(
    home: Path, build: Callable[[str], Host], server: Any, temperature: str, sent: float | None
) -> None:
    write(home, "acme", HOOKED.replace("PORT", str(server.server_address[1])).replace("TEMPERATURE", temperature))
    host = build("plugins:\n  enabled: [acme-plugin]\nmodel:\n  provider: acme\n  default: m\n")

    await ask(host, ModelRequest("m", [Message("user", "hi")], temperature=0.9, session_id="s-1"))

    ((_, headers, body),) = server.seen
    assert headers["x-own"] == "1" and "authorization" not in headers
    assert body["messages"] == [{"role": "user", "content": "HI"}]
    assert (body["session"], body["top_p"], body["max_tokens"], body.get("temperature")) == ("s-1", 0.5, 77, sent)
    assert set(body["keys"]) == {
        "provider_preferences",
        "model",
        "base_url",
        "reasoning_config",
        "openrouter_min_coding_score",
    }
    assert set(body["more"]) == {
        "supports_reasoning",
        "qwen_session_metadata",
        "model",
        "base_url",
        "ollama_num_ctx",
        "session_id",
    }


THINKING = """
class Own(ProviderProfile):
    def build_api_kwargs_extras(self, *, reasoning_config=None, **context):
        return {"thinking": dict(reasoning_config, known=context["supports_reasoning"])} if reasoning_config else {}, {}
class Deaf(ProviderProfile):
    def build_api_kwargs_extras(self, *, reasoning_config=None, **context):
        return {"always": 1}, {}
register_provider(Own(name="acme", base_url="http://127.0.0.1:PORT/v1"))
register_provider(Deaf(name="deaf", base_url="http://127.0.0.1:PORT/v1"))
"""


@pytest.mark.parametrize(
    ("provider", "sent"),
    [
        ("acme", {"thinking": {"enabled": True, "effort": "low", "known": True}}),
        ("deaf", {"always": 1, "reasoning_effort": "low"}),
    ],
)
async def test_a_profile_says_the_reasoning_effort_in_its_own_words_else_the_protocol_does(
    home: Path, build: Callable[[str], Host], server: Any, provider: str, sent: dict[str, Any]
) -> None:
    write(home, "acme", THINKING.replace("PORT", str(server.server_address[1])))
    host = build(f"plugins:\n  enabled: [acme-plugin]\nmodel:\n  provider: {provider}\n  default: m\n")

    await ask(host, ModelRequest("m", [Message("user", "hi")], extra={"reasoning_effort": "low"}))

    ((_, _, body),) = server.seen
    assert {name: body[name] for name in ("thinking", "always", "reasoning_effort") if name in body} == sent


async def test_a_hook_that_fails_is_named_and_nothing_is_sent(
    home: Path, build: Callable[[str], Host], server: Any
) -> None:
    text = HOOKED.replace("PORT", str(server.server_address[1])).replace("TEMPERATURE", "None")
    write(home, "acme", text.replace("return 77", "raise KeyError('gone')"))
    host = build("plugins:\n  enabled: [acme-plugin]\nmodel:\n  provider: acme\n  default: m\n")

    with pytest.raises(ModelError, match=r"was not asked: its profile failed with KeyError: 'gone'"):
        await ask(host)
    assert server.seen == []


def test_a_wire_that_is_not_spoken_is_a_config_error(home: Path, build: Callable[[str], Host]) -> None:
    write(home, "acme", ACME.replace("name='acme'", "name='acme', api_mode='copilot_acp'"))
    host = build("plugins:\n  enabled: [acme-plugin]\nmodel:\n  provider: acme\n  default: m\n")

    with pytest.raises(
        ConfigError, match="acme speaks copilot_acp, this release speaks chat_completions, anthropic_messages, "
    ):
        host.select_model()


def test_a_wire_protocol_that_the_config_misspells_names_the_setting(build: Callable[[str], Host]) -> None:
    entry = "{base_url: 'http://127.0.0.1:9/v1', transport: antropic}"
    host = build(f"providers: {{mine: {entry}}}\nmodel: {{provider: mine, default: m}}\n")

    with pytest.raises(
        ConfigError, match=r"providers\.mine\.transport: there is no wire protocol `antropic`, only chat"
    ):
        host.select_model()


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ("model:\n  provider: acme\n  default: m\n", "/v1/messages"),
        ("model:\n  provider: acme\n  default: m\n  api_mode: codex_responses\n", "/v1/responses"),
        ("model: {provider: acme, default: m}\nproviders: {acme: {transport: openai_chat}}\n", "/v1/chat/completions"),
    ],
)
async def test_the_config_says_the_wire_and_else_the_profile(
    home: Path, build: Callable[[str], Host], server: Any, config: str, path: str
) -> None:
    address = f"http://127.0.0.1:{server.server_address[1]}/v1"
    write(home, "acme", f"register_provider(ProviderProfile('acme', 'anthropic_messages', base_url='{address}'))\n")
    host = build("plugins:\n  enabled: [acme-plugin]\n" + config)

    with pytest.raises(ModelError):
        server.answer = b"{}"
        await ask(host)

    assert [seen[0] for seen in server.seen] == [path]


def test_an_address_names_variables_and_says_which_one_is_missing(
    home: Path, build: Callable[[str], Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    host = build("model:\n  provider: bedrock\n  default: m\n")

    assert host.select_model().base_url == "https://bedrock-runtime.eu-central-1.amazonaws.com/openai/v1"
    with pytest.raises(ConfigError, match="the address of vertex needs GOOGLE_CLOUD_PROJECT, which has no value"):
        host.select_model(provider="vertex", model="m")


def test_the_list_of_models_is_fetched_and_no_redirection_is_given_the_key(server: Any) -> None:
    base = f"http://127.0.0.1:{server.server_address[1]}"
    profile = ProviderProfile(name="acme", base_url=f"{base}/v1/", default_headers={"X-Team": "blue"})

    assert profile.fetch_models(api_key="key-1") == ["first", "second"]
    ((path, headers, _),) = server.seen
    assert (path, headers["authorization"], headers["x-team"]) == ("/v1/models", "Bearer key-1", "blue")
    server.models = b'["a", {"id": "b"}]'
    assert profile.fetch_models(base_url=f"{base}/x") == ["a", "b"]
    server.models = b"<html>"
    assert profile.fetch_models() is None
    assert ProviderProfile(name="acme", models_url=f"{base}/moved").fetch_models(api_key="key-1") is None
    assert [path for path, _, _ in server.seen][-1] == "/moved"


def test_labels_are_those_of_the_profiles(build: Callable[[str], Host]) -> None:
    build("")
    from hermes_cli.providers import get_label

    assert (get_label("xai"), get_label("grok"), get_label("nobody")) == ("xAI", "xAI", "nobody")


def test_the_upstream_names_are_these(served: None) -> None:
    import providers
    from providers.base import ProviderProfile as upstream

    assert upstream is ProviderProfile is providers.ProviderProfile


def test_the_page_has_every_field_and_hook() -> None:
    page = (ROOT / "docs" / "plugins" / "kinds" / "model_provider.md").read_text()
    for name in ProviderProfile.__dataclass_fields__:
        assert f"| `{name}` |" in page, name
    for name, value in vars(ProviderProfile).items():
        if inspect.isfunction(value) and not name.startswith("_"):
            assert f"| `{name}(" in page, name
    assert "(../../../tests/plugins/examples/model_provider)" in page
    assert hasattr(PluginContext, MODEL_PROVIDER.ctx_method)


OWN_CLIENT = """
import os
from hermes_agent.contracts.model_client import ClientProfile, ModelAnswer, SetupHint, TextPart
from hermes_agent.core.errors import ConfigError
from hermes_agent.core.messages import Message, Usage
from providers import register_provider


class Echo:
    provider, base_url, url, api_mode, fits_within = "mine", "", "", "chat_completions", 0

    def __init__(self, services):
        self.mask = services.mask_message

    async def stream(self, request):
        text = "said: " + self.mask(request.messages[-1]).text
        yield TextPart(text)
        yield ModelAnswer(Message("assistant", text), "stop", Usage(), request.model, listed_cost_usd=0.0)

    def is_priced(self, model): return True
    def unsupported(self, model, options): return None
    def warm_up(self): pass
    async def aclose(self): pass


class Mine(ClientProfile):
    def find_model(self, services):
        if services.is_selected and services.model not in ("", "m-1"):
            raise ConfigError(f"model.default: {services.model!r} is not m-1")
        return "" if os.environ.get("MINE_IS_ILL") else "m-1"

    def make_client(self, services):
        return Echo(services)

    def setup_hint(self, services):
        return SetupHint("Plant it:\\n     hermes plugins enable mine", "`mine` grows by itself")


register_provider(Mine(name="mine", display_name="my model", is_free=True))
"""


async def test_a_plugin_brings_a_client_of_its_own(build: Callable[[str], Host], home: Path) -> None:
    write(home, "mine", OWN_CLIENT)
    host = build("plugins: {enabled: [mine-plugin]}\nmodel: {provider: mine}\n")
    assert await ask(host) == "said: hi"
    selection = host.select_model()
    assert (selection.provider, selection.model, selection.base_url) == ("mine", "m-1", "")
    assert host.model_infos.is_priced(selection.endpoint, "m-1")
    with pytest.raises(ConfigError, match="'gpt' is not m-1"):
        host.select_model(model="gpt")


async def test_a_plugin_s_client_answers_where_nothing_else_is_set_up_or_says_how_to_get_it(
    build: Callable[[str], Host], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))  # no weights of the embedded model
    write(home, "mine", OWN_CLIENT)
    host = build("plugins: {enabled: [mine-plugin]}\n")
    assert await ask(host) == "said: hi"
    monkeypatch.setenv("MINE_IS_ILL", "1")
    with pytest.raises(UserError) as failed:
        host.select_model()
    assert "  4. Plant it:\n     hermes plugins enable mine\n" in failed.value.hint
    assert "; `mine` grows by itself.\n" in failed.value.hint
