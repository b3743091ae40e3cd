"""The broad guide: its plugins of special kinds and its settings, as they are printed.

What does the work of some of them comes in a later release; then it is shown that they load, register and are selected.
"""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from compat.guides import flat, guide, indented, plugin
from hermes_agent.adapters.events import call_connect, call_send
from hermes_agent.contracts.context_engine import choose_context_engine, compress, should_compress
from hermes_agent.contracts.image_video import choose_image_gen
from hermes_agent.contracts.memory import choose_memory
from hermes_agent.media.service import generate_image
from hermes_agent.testing import ScriptedModel, plugin_host, served


@pytest.fixture(scope="module")
def page() -> str:
    return guide("build-a-plugin.newest.ko.txt")


def flat_yaml(page: str, first: str, depths: str) -> Any:
    """Return the mapping whose first line is `first`, with a digit of indentation for each line."""
    lines = html.unescape(page).splitlines()
    start = lines.index(first)
    block = [line for line in lines[start:] if line.strip()][: len(depths)]
    return yaml.safe_load("".join("  " * int(d) + line + "\n" for d, line in zip(depths, block, strict=True)))


def test_the_acme_provider_is_known_and_asked(page: str, tmp_path: Path) -> None:
    init = flat(page, "# plugins/model-providers/acme/__init__.py", "))", "0000")
    last = "description: Acme Inference — OpenAI-compatible direct API"
    manifest = flat(page, "# plugins/model-providers/acme/plugin.yaml", last, "00000")
    category = plugin(tmp_path / "model-providers" / "acme", init, manifest).parent
    model = ScriptedModel("from acme")

    with (
        served(model) as base_url,
        plugin_host(
            category,
            env={"ACME_API_KEY": "a-key-of-acme", "ACME_BASE_URL": base_url},
            config={"model": {"provider": "acme-inference", "default": "acme-large-v3"}},
        ) as host,
    ):
        from providers import get_provider_profile, list_providers  # type: ignore[import-not-found]

        assert host.record.manifest.kind == "model-provider"
        assert "acme" in [profile.name for profile in list_providers()]
        assert get_provider_profile("acme-inference").default_aux_model == "acme-small-fast"
        assert host.ask("Who are you?").text == "from acme"
        assert model.requests[0]["model"] == "acme-large-v3"


def test_the_memory_provider_is_selected(page: str, tmp_path: Path) -> None:
    init = flat(
        page,
        "# plugins/memory/my-memory/__init__.py",
        "ctx.register_memory_provider(MyMemoryProvider())",
        "000112122121101",
    )
    folder = plugin(tmp_path / "memory" / "my-memory", init)

    for place in (folder, folder.parent):
        with plugin_host(place, env={"MY_MEMORY_API_KEY": "a-key"}) as host:
            (provider,) = host.providers["memory"].values()
            assert host.record.manifest.kind == "exclusive"
            assert choose_memory({"my-memory": provider}, {"memory": {"provider": "my-memory"}}).provider is provider
            assert provider.is_available()
            provider.initialize("session", hermes_home=str(host.home), platform="cli")
            assert provider.get_tool_schemas() == []
            assert provider.sync_turn("hello", "hi") is None
            assert provider.prefetch("hello", session_id="session") is None
            assert provider.system_prompt_block() == ""
    chosen = {"memory": {"provider": "my-memory"}}
    with plugin_host(folder, env={"MY_MEMORY_API_KEY": "a-key"}, config=chosen, model=["hello", "again"]) as host:
        assert [host.ask(text).text for text in ("hi", "there")] == ["hello", "again"]
        assert host.model.messages[-1]["content"] == "there"


def test_the_context_engine_is_selected_and_called_with_what_it_names(page: str, tmp_path: Path) -> None:
    init = flat(
        page,
        "# plugins/context_engine/my-engine/__init__.py",
        "ctx.register_context_engine(MyContextEngine())",
        "0001121101",
    )
    bodies = init.replace("-> bool:...", "-> bool: return len(messages) > 1 and model == 'm'").replace(
        "-> list[dict]:...", "-> list[dict]: return messages[-1:]"
    )
    messages = [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}]

    for number, text in enumerate((init, bodies)):
        with plugin_host(plugin(tmp_path / str(number) / "my-engine", text)) as host:
            engine = host.providers["context_engine"]["my-engine"]
            chosen = choose_context_engine({"my-engine": engine}, {"context": {"engine": "my-engine"}})
            assert chosen.provider is engine
            wanted = should_compress(engine, prompt_tokens=10, messages=messages, model="m")
            assert wanted is bool(number)
            if number:
                assert compress(engine, messages, current_tokens=10, model="m") == messages[1:]


def test_the_image_provider_may_return_a_path(page: str, tmp_path: Path) -> None:
    init = flat(
        page,
        "# plugins/image_gen/my-imggen/__init__.py",
        "ctx.register_image_gen_provider(MyImageGenProvider())",
        "0001121101",
    )
    manifest = flat(
        page, "# plugins/image_gen/my-imggen/plugin.yaml", "description: Custom image generation backend", "00000"
    )
    drawing = init.replace("-> str:...", "-> str: return f'/tmp/{prompt}.png'").replace(
        "-> bool:...", "-> bool: return 1"
    )
    assert drawing != init
    folder = plugin(tmp_path / "image_gen" / "my-imggen", drawing, manifest)

    with plugin_host(folder.parent) as host:
        assert host.record.manifest.kind == "backend"
        provider = host.providers["image_gen"]["my-imggen"]
        chosen = choose_image_gen({"my-imggen": provider}, {"image_gen": {"provider": "my-imggen"}})
        assert chosen.provider is provider
        answer = generate_image(provider, "cat", "square")
        assert (answer["success"], answer["image"], answer["provider"]) == (True, "/tmp/cat.png", "my-imggen")
    with plugin_host(plugin(tmp_path / "as-printed", init, manifest)) as host:
        answer = generate_image(host.providers["image_gen"]["my-imggen"], "cat", "square")
        assert answer["success"] is False
        assert "returned None" in answer["error"]


def test_deliver_dispatches_a_tool(page: str, tmp_path: Path) -> None:
    start = page.index("def _handle_deliver") - len("def register(ctx):\n")
    snippet = _deliver(page[start:])
    seen: list[dict[str, Any]] = []

    def delegate(ctx: Any) -> None:
        def handler(args: dict[str, Any], **kwargs: Any) -> str:
            seen.append(args)
            return json.dumps({"done": args["goal"]})

        ctx.register_tool("delegate_task", schema={"name": "delegate_task"}, handler=handler, override=True)

    with plugin_host(
        plugin(tmp_path / "deliver", snippet),
        delegate,
        config={
            "plugins": {"enabled": ["deliver", "under-test"], "entries": {"under-test": {"allow_tool_override": True}}}
        },
    ) as host:
        assert host.run_command("/deliver a cake") == '{"done": "a cake"}'
        assert seen == [{"goal": "a cake", "toolsets": ["terminal", "file", "web"]}]


def test_deliver_as_printed_hands_the_goal_to_a_sub_agent(page: str, tmp_path: Path) -> None:
    start = page.index("def _handle_deliver") - len("def register(ctx):\n")
    folder = plugin(tmp_path / "deliver", _deliver(page[start:]))

    with plugin_host(folder, model=["hello", "The cake is there."]) as host:
        host.ask("hi")
        assert "The cake is there." in str(host.run_command("/deliver a cake"))
        assert "a cake" in str(host.model.messages[-1]["content"])


def _deliver(rest: str) -> str:
    """The snippet has three lines that are a bracket alone: it ends at the third."""
    lines = html.unescape(rest).splitlines()
    ends = [i for i, line in enumerate(lines) if line == ")"]
    return indented(lines[: ends[1] + 1], "01221")


def test_the_general_plugins_are_those_of_the_english_guide(page: str, tmp_path: Path) -> None:
    last = 'ctx.register_hook("pre_llm_call", inject_guardrails)'
    damaged = flat(page, '"""Guardrails plugin — enforces content policies."""', last, "0001101")
    snippet = damaged.replace("컨텍스트", "context")

    with plugin_host(plugin(tmp_path / "guardrails", snippet), model=["ok"]) as host:
        host.ask("hello")
        assert host.module.POLICY in host.model.messages[-1]["content"]
        assert "Never generate code" in host.module.POLICY


@pytest.mark.parametrize(
    ("first", "depths"),
    [("mcp_servers:", "012221223"), ("hooks:", "01223"), ("tts:", "01123333")],
)
def test_the_printed_settings_are_taken(page: str, first: str, depths: str) -> None:
    config = flat_yaml(page, first, depths)
    assert list(config) == [first.rstrip(":")]

    with plugin_host(config=config) as host:
        assert host.host.config.get(first.rstrip(":"))


def test_the_sample_platform_connects_and_sends(page: str, tmp_path: Path) -> None:
    last = 'platform_hint="You are chatting via MyPlatform. Keep responses concise.",'
    lines = html.unescape(page).splitlines()
    start = lines.index("# plugins/platforms/myplatform/adapter.py")
    adapter = indented(lines[start : lines.index(last, start) + 2], "00011101101112101")
    manifest = flat_yaml_text(page, "# plugins/platforms/myplatform/plugin.yaml", "00000001220122")
    sending = adapter.replace(
        "async def send(self, chat_id, text):...", "async def send(self, chat_id, text): sent.append((chat_id, text))"
    )
    assert sending != adapter

    for number, text in enumerate((adapter, f"sent = []\n{sending}")):
        folder = plugin(
            tmp_path / str(number) / "platforms" / "myplatform",
            "from .adapter import register\n",
            manifest,
            adapter_py=text,
        )
        config = {"platforms": {"myplatform": {"enabled": True}}}
        with plugin_host(folder.parent, config=config, env={"MYPLATFORM_TOKEN": "a-token-of-it"}) as host:
            from gateway.config import load_gateway_config  # type: ignore[import-not-found]
            from gateway.platform_registry import platform_registry  # type: ignore[import-not-found]

            assert host.record.manifest.kind == "platform"
            settings = load_gateway_config().platforms
            (own,) = [settings[p] for p in settings if p.value == "myplatform"]
            assert own.extra["token"] == "a-token-of-it"
            made = platform_registry.create_adapter("myplatform", own)
            assert host.host.bridge.wait_plugin(call_connect(made)) is True
            result = host.host.bridge.wait_plugin(call_send(made, "room", "hello", reply_to="m1"))
            assert result.success
            assert host.host.bridge.wait_plugin(made.get_chat_info("room")) == {"name": "room", "type": "dm"}
            if number:
                assert host.module.adapter.sent == [("room", "hello")]
            host.host.bridge.wait_plugin(made.disconnect())
        with plugin_host(folder.parent, config=config) as host:
            assert platform_registry.create_adapter("myplatform", own) is None, "its check says no without a token"


def flat_yaml_text(page: str, first: str, depths: str) -> str:
    """Return the lines from `first` on, with a digit of indentation for each."""
    lines = html.unescape(page).splitlines()
    block = [line for line in lines[lines.index(first) :] if line.strip()][: len(depths)]
    return "".join("  " * int(d) + line + "\n" for d, line in zip(depths, block, strict=True))
