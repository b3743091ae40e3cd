"""Upstream's registries of providers are the host's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_agent.plugins.host_services import WrongProviderType
from hermes_agent.testing import plugin_host

CODE = """
from agent.image_gen_provider import ImageGenProvider
from agent.image_gen_registry import register_provider
from agent.web_search_provider import WebSearchProvider


class Paints(ImageGenProvider):
    name = "paints"
    def is_available(self): return True
    def generate(self, prompt, **kwargs): return {"success": True}


class Reads(WebSearchProvider):
    name = "reads"
    display_name = "Reads"
    def is_available(self): return True
    def supports_search(self): return False
    def supports_extract(self): return True
    def extract(self, urls, **kwargs): return []


def register(ctx):
    register_provider(Paints())
    ctx.register_web_search_provider(Reads())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "plugin.yaml").write_text("name: p\n")
    (tmp_path / "p" / "__init__.py").write_text(CODE)
    return tmp_path / "p"


def test_a_provider_that_is_registered_in_the_registry_s_module_is_the_plugin_s(folder: Path) -> None:
    with plugin_host(folder) as host:
        from agent.image_gen_registry import get_active_provider, get_provider, list_providers

        assert [p.name for p in list_providers()] == ["openai", "paints"]
        assert get_provider(" paints ") is list_providers()[1]
        assert get_provider("none") is None
        assert get_active_provider() is get_provider("paints")
        assert host.host.providers["image_gen"].owner("paints") == "p"
        host.host.plugins.unload()
        assert get_provider("paints") is None


def test_the_registry_of_web_search_selects_for_each_purpose(folder: Path) -> None:
    with plugin_host(folder, config={"web": {"extract_backend": "reads"}}):
        from agent import web_search_registry

        assert web_search_registry.get_active_extract_provider().name == "reads"
        assert web_search_registry.get_active_search_provider().name != "reads"
        assert "reads" in [p.name for p in web_search_registry.list_providers()]


def test_a_registry_refuses_what_is_of_another_kind(folder: Path) -> None:
    with plugin_host(folder):
        from agent import tts_registry, video_gen_registry

        with pytest.raises(WrongProviderType):
            tts_registry.register_provider(object())
        assert video_gen_registry.get_active_provider() is None


def test_the_context_engine_of_a_plugin_is_an_attribute_of_the_manager(tmp_path: Path) -> None:
    code = """
from agent.context_engine import ContextEngine
class Engine(ContextEngine):
    name = "mine"
    def update_from_response(self, usage): ...
    def should_compress(self, prompt_tokens=None): return False
    def compress(self, messages, **kwargs): return messages
def register(ctx):
    assert ctx._manager._context_engine is None
    ctx.register_context_engine(Engine())
"""
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "plugin.yaml").write_text("name: p\n")
    (tmp_path / "p" / "__init__.py").write_text(code)
    with plugin_host(tmp_path / "p") as host:
        assert host.host.plugins._context_engine.name == "mine"
        host.host.plugins.unload()
        assert host.host.plugins._context_engine is None


def test_the_platforms_of_tools_keep_what_a_plugin_adds_and_the_outputs_have_a_folder(tmp_path: Path) -> None:
    code = """
import hermes_cli.tools_config as tools_config
from cron.jobs import OUTPUT_DIR
def register(ctx):
    tools_config.PLATFORMS["mine"] = {"label": "Mine", "default_toolset": "hermes-mine"}
    assert OUTPUT_DIR.is_dir()
"""
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "plugin.yaml").write_text("name: p\n")
    (tmp_path / "p" / "__init__.py").write_text(code)
    with plugin_host(tmp_path / "p") as host:
        from hermes_cli.tools_config import PLATFORMS

        assert PLATFORMS["mine"]["default_toolset"] == "hermes-mine"
        assert PLATFORMS["cli"]["default_toolset"] == "hermes-cli"
        assert host.home / "cron" / "output" == host.module.OUTPUT_DIR
