"""Auxiliary tasks (docs/plugins/kinds/auxiliary_task.md): registering one, who is asked, what comes back."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hermes_agent.contracts.model_provider import AUXILIARY_TASK, BUILTIN_TASKS, TASK_DEFAULTS
from hermes_agent.core.errors import ModelError, UserError
from hermes_agent.host import Host
from hermes_agent.plugins.context import PluginContext

ROOT = Path(__file__).parents[2]
Start = Callable[..., Host]
HELLO = [{"role": "user", "content": "hi"}]


@pytest.fixture
def config(server: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Return a config: the conversation's model `main` at the server below `/main`, and what else is given.

    `SERVER` in it is the server's address.
    """
    for name in ("OPENAI_API_KEY", "CUSTOM_API_KEY", "GROQ_API_KEY", "OPENAI_BASE_URL", "CUSTOM_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    base = f"http://127.0.0.1:{server.server_address[1]}"

    def make(more: str = "") -> str:
        main = "model:\n  provider: custom\n  default: main\n  base_url: SERVER/main\n  api_key: key-main\n"
        return (main + more).replace("SERVER", base)

    return make


def plugin(home: Path, name: str, call: str) -> None:
    folder = home / "plugins" / name
    folder.mkdir(parents=True)
    (folder / "plugin.yaml").write_text(f"name: {name}\n")
    (folder / "__init__.py").write_text(f"def register(ctx):\n    {call}\n")


def loaded(home: Path, *names: str) -> Host:
    (home / "config.yaml").write_text(f"plugins:\n  enabled: [{', '.join(names)}]\n")
    host = Host.build(home)
    host.plugins.discover_and_load()
    host.bridge.close()
    return host


# -- registering -----------------------------------------------------------------------------------------------------


def test_the_example_is_registered_listed_and_logged(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "hermes_agent.plugins")  # as HERMES_PLUGINS_DEBUG=1 does
    host = start("auxiliary_task")

    from hermes_cli.plugins import get_plugin_auxiliary_tasks

    (record,) = host.plugins.records
    assert (record.error, record.providers_registered) == (None, [(AUXILIARY_TASK, "example_headline")])
    assert get_plugin_auxiliary_tasks() == [
        {
            "key": "example_headline",
            "display_name": "Headlines",
            "description": "Writes a headline for a text",
            "defaults": {**TASK_DEFAULTS, "timeout": 20, "extra_body": {"top_p": 0.5}},
            "plugin": "example-auxiliary-task",
        }
    ]
    assert "Plugin 'example-auxiliary-task' registered auxiliary task: example_headline" in caplog.messages
    assert hasattr(PluginContext, AUXILIARY_TASK.ctx_method)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("", "auxiliary task key is '': expected a text that is not empty"),
        (3, "auxiliary task key is 3: expected a text that is not empty"),
        ("a-b", "auxiliary task key 'a-b' must contain only alphanumeric characters and underscores"),
        *(
            (key, f"cannot register auxiliary task '{key}' — that key is reserved for a built-in task.")
            for key in sorted(BUILTIN_TASKS)
        ),
    ],
)
def test_a_key_that_cannot_be_one_fails_the_plugin(home: Path, served: None, key: Any, text: str) -> None:
    plugin(home, "odd", f"ctx.register_auxiliary_task({key!r}, display_name='D', description='d')")

    host = loaded(home, "odd")

    assert str(host.plugins.records[0].error).startswith(f"ValueError: {text}")
    assert host.auxiliary_tasks.names() == []


def test_the_key_of_another_plugin_is_refused_and_one_s_own_may_be_registered_again(home: Path, served: None) -> None:
    call = "ctx.register_auxiliary_task('mine', display_name='D', description='d')"
    plugin(home, "one", f"{call}; {call}")
    plugin(home, "two", call)

    one, two = loaded(home, "one", "two").plugins.records

    assert one.error is None
    assert two.error == "ValueError: auxiliary task 'mine' is already registered by plugin `one`"


def test_what_a_plugin_registered_before_it_failed_is_taken_back(home: Path, served: None) -> None:
    plugin(home, "half", "ctx.register_auxiliary_task('mine', display_name='D', description='d'); 1 / 0")

    assert loaded(home, "half").auxiliary_tasks.names() == []


# -- asking ----------------------------------------------------------------------------------------------------------


def test_a_task_asks_the_conversation_s_model_with_the_plugin_s_defaults(
    start: Start, server: Any, config: Callable[[str], str]
) -> None:
    host = start("auxiliary_task", config=config())

    assert host.commands.get("headline").handler("otters swim") == "ok"

    ((path, headers, body),) = server.seen
    assert (path, headers["authorization"], body["model"]) == ("/main/chat/completions", "Bearer key-main", "main")
    assert (body["max_tokens"], body["top_p"]) == (30, 0.5)
    assert body["messages"] == [{"role": "user", "content": "A headline for: otters swim"}]


@pytest.mark.parametrize(
    ("block", "environ", "given", "expected"),
    [
        ("model: small", {}, {}, ("/main", "small", "key-main")),
        (
            "provider: groq\n    model: tiny\n    base_url: SERVER/side\n    api_key: key-side",
            {},
            {},
            ("/side", "tiny", "key-side"),
        ),
        ("model: small", {"MODEL": "of-env"}, {}, ("/main", "of-env", "key-main")),
        (
            "model: small",
            {"BASE_URL": "SERVER/env", "API_KEY": "key-env", "PROVIDER": "custom"},
            {},
            ("/env", "small", "key-env"),
        ),
        ("model: small", {"MODEL": "of-env"}, {"model": "of-call"}, ("/main", "of-call", "key-main")),
        (
            "model: small",
            {},
            {"base_url": "SERVER/call", "api_key": "key-call"},
            ("/call", "small", "key-call"),
        ),
        (
            "timeout: 9",
            {},
            {"main_runtime": {"provider": "custom", "model": "run", "base_url": "SERVER/run", "api_key": "key-run"}},
            ("/run", "run", "key-run"),
        ),
    ],
)
def test_the_call_goes_before_the_environment_the_config_and_the_conversation(
    start: Start,
    server: Any,
    config: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    block: str,
    environ: dict[str, str],
    given: dict[str, Any],
    expected: tuple[str, str, str],
) -> None:
    base = f"http://127.0.0.1:{server.server_address[1]}"
    start("auxiliary_task", config=config(f"auxiliary:\n  example_headline:\n    {block}\n"))
    for name, value in environ.items():  # read at each call
        monkeypatch.setenv(f"AUXILIARY_EXAMPLE_HEADLINE_{name}", value.replace("SERVER", base))
    from agent.auxiliary_client import call_llm

    call_llm("example_headline", messages=HELLO, **json.loads(json.dumps(given).replace("SERVER", base)))

    ((path, headers, body),) = server.seen
    assert (path.removesuffix("/chat/completions"), body["model"], headers["authorization"]) == (
        expected[0],
        expected[1],
        f"Bearer {expected[2]}",
    )


def test_a_provider_without_a_model_is_asked_for_its_cheap_one(
    start: Start, server: Any, config: Callable[[str], str], home: Path
) -> None:
    plugin(
        home,
        "acme",
        "from providers import register_provider; from providers.base import ProviderProfile; register_provider("
        f"ProviderProfile('acme', base_url='http://127.0.0.1:{server.server_address[1]}/acme',"
        " default_aux_model='acme-small'))",
    )
    host = start(config=config("auxiliary:\n  mcp:\n    provider: acme\n"))
    (home / "config.yaml").write_text((home / "config.yaml").read_text().replace("enabled: []", "enabled: [acme]"))
    host = Host.build(home)
    host.plugins.discover_and_load()
    from agent.auxiliary_client import call_llm

    try:
        assert call_llm("mcp", messages=HELLO).provider == "acme"
    finally:
        host.bridge.close()

    assert [(path, body["model"]) for path, _, body in server.seen] == [("/acme/chat/completions", "acme-small")]


async def test_the_answer_has_the_shape_of_the_sdk_s_sync_and_async(
    start: Start, server: Any, config: Callable[[str], str]
) -> None:
    start("auxiliary_task", config=config())
    from agent.auxiliary_client import async_call_llm, call_llm

    for answer in (
        call_llm(messages=HELLO, temperature=0.1, extra_body={"a": 1}, top_p=0.3, timeout=20),
        await async_call_llm(messages=HELLO, temperature=0.1, extra_body={"a": 1}, top_p=0.3, timeout=20),
    ):
        choice = answer.choices[0]
        assert (choice.message.content, choice.message.role, choice.message.tool_calls) == ("ok", "assistant", None)
        assert (choice.finish_reason, answer.model, answer.usage.total_tokens) == ("stop", "main", 0)
    for _, _, body in server.seen:
        assert (body["temperature"], body["a"], body["top_p"], body["stream"]) == (0.1, 1, 0.3, True)


def test_the_model_may_call_the_tools_that_the_call_names(
    start: Start, server: Any, config: Callable[[str], str]
) -> None:
    start("auxiliary_task", config=config())
    from agent.auxiliary_client import call_llm

    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    server.answer = json.dumps(
        {
            "choices": [
                {
                    "message": {
                        "role": "assistant",
                        "content": None,
                        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
                    },
                    "finish_reason": "tool_calls",
                }
            ],
            "usage": {"prompt_tokens": 5, "completion_tokens": 2},
        }
    ).encode()

    answer = call_llm(messages=HELLO, tools=[tool])

    (call,) = answer.choices[0].message.tool_calls
    assert (call.id, call.type, call.function.name, call.function.arguments) == ("c1", "function", "f", "{}")
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (5, 7)
    assert server.seen[0][2]["tools"] == [tool]


async def test_what_goes_wrong_is_raised(start: Start, server: Any, config: Callable[[str], str]) -> None:
    host = start("auxiliary_task", config=config("auxiliary:\n  transient_retries: 0\n"))
    from agent.auxiliary_client import async_call_llm, call_llm

    with pytest.raises(ValueError, match="messages is empty"):
        call_llm(messages=[])
    with pytest.raises(UserError, match="'nobody' is no provider"):
        call_llm(messages=HELLO, provider="nobody")
    with pytest.raises(ModelError):
        await async_call_llm(messages=HELLO, base_url="http://127.0.0.1:9/v1", model="m")
    assert server.seen == []
    assert host.plugins.records[0].error is None


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": " said "}, "said"),
        ({"content": "<think>hm</think>said"}, "said"),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "ab"),
        ({"content": "", "reasoning": "hm"}, "hm"),
        ({"content": None, "reasoning_content": "hm"}, "hm"),
        ({"content": "", "reasoning_details": [{"summary": "one"}, {"text": "two"}]}, "one\ntwo"),
        ({"content": None}, ""),
    ],
)
def test_the_text_of_an_answer_is_its_content_else_its_reasoning(
    served: None, message: dict[str, Any], text: str
) -> None:
    from agent.auxiliary_client import extract_content_or_reasoning

    assert extract_content_or_reasoning({"choices": [{"message": message}]}) == text
    assert (
        extract_content_or_reasoning(SimpleNamespace(choices=[SimpleNamespace(message=SimpleNamespace(**message))]))
        == text
    )
    assert extract_content_or_reasoning(SimpleNamespace(choices=[])) == ""


def test_a_plugin_s_profile_is_the_key_that_is_sent(
    home: Path, start: Start, server: Any, config: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORK_KEY", "key-of-work")
    more = "providers:\n  custom:\n    profiles: {work: WORK_KEY}\n"
    host = start("auxiliary_task", config=config(more))
    written = (home / "config.yaml").read_text()
    allowed = "  entries:\n    example-auxiliary-task:\n      llm: {allow_profile_override: true}\n"
    (home / "config.yaml").write_text(written.replace("model:\n", allowed + "model:\n", 1))
    llm = host.plugins.contexts["example-auxiliary-task"].llm

    assert llm.complete(HELLO, profile="work").audit["profile"] == "work"
    assert llm.complete(HELLO).text == "ok"
    with pytest.raises(ValueError, match=r"^unknown auth profile 'home'; known: default, work$"):
        llm.complete(HELLO, profile="home")

    assert [headers["authorization"] for _, headers, _ in server.seen] == ["Bearer key-of-work", "Bearer key-main"]


def test_the_page_names_the_method_the_settings_and_the_reserved_keys() -> None:
    page = (ROOT / "docs" / "plugins" / "kinds" / "auxiliary_task.md").read_text()

    assert "`ctx.register_auxiliary_task(key, *, display_name, description, defaults=None)`" in page
    assert hasattr(PluginContext, AUXILIARY_TASK.ctx_method)
    assert all(f"`{name}`" in page for name in (*TASK_DEFAULTS, *BUILTIN_TASKS))
    assert "(../../../tests/plugins/examples/auxiliary_task)" in page
