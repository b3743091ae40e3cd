"""What is known of models: a provider's list over HTTP, the disk, the table."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hermes_agent.core.messages import Usage
from hermes_agent.models.model_catalog import ModelCatalog, ModelInfo, ModelsUnavailable
from hermes_agent.models.providers import ModelEndpoint, ProviderCatalog

ROUTED = {
    "id": "acme/large",
    "context_length": 200_000,
    "architecture": {"input_modalities": ["text", "image"]},
    "supported_parameters": ["tools", "top_p"],
    "top_provider": {"max_completion_tokens": 64_000},
    "pricing": {"prompt": "0.000003", "completion": "0.000015", "input_cache_read": "0.0000003"},
}
SERVED = {"id": "own/qwen3", "max_model_len": 40_960}


class Lister(ThreadingHTTPServer):
    entries: list[object]
    asked: int


class Handler(BaseHTTPRequestHandler):
    server: Lister

    def do_GET(self) -> None:
        self.server.asked += 1
        text = json.dumps({"data": self.server.entries}).encode()
        self.send_response(200 if self.server.entries else 500)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args: object) -> None: ...


@pytest.fixture
def lister() -> Iterator[Lister]:
    server = Lister(("127.0.0.1", 0), Handler)
    server.entries, server.asked = [ROUTED, SERVED, "bare"], 0
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def endpoint(lister: Lister | None, provider: str = "openrouter") -> ModelEndpoint:
    known = ProviderCatalog().get(provider)
    assert known is not None
    return ModelEndpoint(known, f"http://127.0.0.1:{lister.server_address[1]}/v1" if lister else known.base_url, "key")


def test_a_list_is_read_in_the_words_of_several_servers_and_kept(lister: Lister, tmp_path: Path) -> None:
    infos = ModelCatalog(tmp_path)
    assert infos.known_info(endpoint(lister), "acme/large").context_length is None
    large, served, bare = infos.list_models(endpoint(lister))
    assert large == ModelInfo("acme/large", 200_000, 64_000, True, True, 3e-06, 1.5e-05, 3e-07, None)
    assert (served.context_length, served.input_price) == (40_960, None)
    assert bare.id == "bare"
    # another process finds it, and asks nobody
    again = ModelCatalog(tmp_path)
    assert again.known_info(endpoint(lister), "acme/large") == large
    assert again.list_models(endpoint(lister)) == [large, served, bare] and lister.asked == 1
    lister.entries = [SERVED]
    assert len(again.list_models(endpoint(lister), fresh=True)) == 1
    assert len(infos.list_models(endpoint(lister))) == 1 and lister.asked == 2


def test_a_list_that_cannot_be_had_or_read_is_said(lister: Lister, tmp_path: Path) -> None:
    infos = ModelCatalog(tmp_path)
    lister.entries = []
    with pytest.raises(ModelsUnavailable, match=r"OpenRouter \(127\.0\.0\.1:\d+\) does not say which models it has"):
        infos.list_models(endpoint(lister))
    lister.entries = [SERVED]
    infos.list_models(endpoint(lister))
    (file,) = tmp_path.iterdir()
    file.write_text("{broken")
    assert [info.id for info in infos.list_models(endpoint(lister))] == ["own/qwen3"]
    lister.entries = []
    assert [info.id for info in infos.list_models(endpoint(lister), fresh=True)] == ["own/qwen3"]


def test_names_say_what_no_list_says(tmp_path: Path) -> None:
    infos = ModelCatalog(tmp_path)
    for name, size, sees in (
        ("anthropic/claude-sonnet-4.5", 200_000, True),
        ("us.anthropic.claude-sonnet-4-5", 200_000, True),
        ("gpt-5.2", 400_000, True),
        ("accounts/fireworks/models/llama-3-70b", 131_072, False),
        ("something-new", None, None),
    ):
        info = infos.known_info(endpoint(None), name)
        assert (info.context_length, info.vision) == (size, sees), name


def test_prices_of_the_table_count_for_the_vendor_s_own_address_and_the_very_model(tmp_path: Path) -> None:
    infos = ModelCatalog(tmp_path)
    sonnet = infos.known_info(endpoint(None, "anthropic"), "claude-sonnet-4-5-20250929")
    assert (sonnet.tools, sonnet.input_price, sonnet.cache_write_price) == (True, 3e-6, pytest.approx(3.75e-6))
    assert sonnet.cost_usd(Usage(100_000, 1_000_000)) == pytest.approx(15.3)
    assert sonnet.cost_usd(Usage(1_000_000, 1_000_000)) == pytest.approx(28.5)  # more than 200,000 tokens
    assert infos.known_info(endpoint(None, "openai"), "gpt-5-mini").input_price == pytest.approx(0.25e-6)
    for provider, model, base_url in (
        ("anthropic", "claude-unheard-of-9", ""),
        ("anthropic", "claude-sonnet-4-5", "http://proxy/v1"),
    ):
        place = endpoint(None, provider)
        info = infos.known_info(replace(place, base_url=base_url or place.base_url), model)
        assert (info.context_length, info.input_price) == (200_000, None), model


def test_a_cost_counts_what_was_cached_at_its_own_price() -> None:
    info = ModelInfo("m", input_price=1.0, output_price=10.0, cache_read_price=0.1, cache_write_price=2.0)
    usage = Usage(100, 5, 60, {"cache_creation_input_tokens": 10})
    assert info.cost_usd(usage) == pytest.approx(30 * 1.0 + 60 * 0.1 + 10 * 2.0 + 5 * 10.0)
    assert info._replace(cache_read_price=None).cost_usd(Usage(100, 0, 60)) == 100.0
    assert ModelInfo("m").cost_usd(usage) is None


def test_two_servers_of_one_name_have_two_lists(lister: Lister, tmp_path: Path) -> None:
    infos = ModelCatalog(tmp_path)
    infos.list_models(endpoint(lister))
    other = replace(endpoint(lister), base_url="http://127.0.0.1:9/v1")
    assert infos.known_info(other, "acme/large").context_length is None
