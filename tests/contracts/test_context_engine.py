"""Context engines (docs/plugins/kinds/context_engine.md): the suite, calls by signature, and who is selected."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.contracts import context_engine
from hermes_agent.contracts.context_engine import ContextEngine, choose_context_engine, copy_engine
from hermes_agent.host import Host

MESSAGES = [{"role": "user", "content": str(number)} for number in range(20)]


class InMemory(ContextEngine):
    """Keeps the last message."""

    name = "memory"

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return (prompt_tokens or 0) > self.threshold_tokens

    def compress(self, messages: list[dict[str, Any]], *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        self.compression_count += 1
        return messages[-1:]


@pytest.fixture(params=["in memory", "example plugin"])
def engine(request: pytest.FixtureRequest, example: Callable[[str], Any]) -> ContextEngine:
    """Every implementation, told which model answers."""
    made = InMemory() if request.param == "in memory" else example("context_engine")
    assert isinstance(made, ContextEngine)
    made.update_model("m", 1000)
    return made


def test_it_knows_the_model_s_limit(engine: ContextEngine) -> None:
    assert engine.name
    assert (engine.context_length, engine.threshold_tokens) == (1000, int(1000 * engine.threshold_percent))
    assert context_engine.should_compress(engine, prompt_tokens=1000, messages=MESSAGES, model="m") is True
    assert context_engine.should_compress(engine, prompt_tokens=10, messages=MESSAGES, model="m") is False


def test_a_long_conversation_becomes_shorter_and_is_counted(engine: ContextEngine) -> None:
    before = list(MESSAGES)

    shorter = context_engine.compress(
        engine, MESSAGES, current_tokens=900, focus_topic=None, force=True, memory_context="", model="m"
    )

    assert 0 < len(shorter) < len(MESSAGES)
    assert shorter[-1] == MESSAGES[-1]
    assert before == MESSAGES
    assert engine.get_status()["compression_count"] == 1


def test_usage_is_noted_and_forgotten_at_a_reset(engine: ContextEngine) -> None:
    engine.update_from_response({"prompt_tokens": 7, "completion_tokens": 3})
    assert (engine.last_prompt_tokens, engine.last_completion_tokens, engine.last_total_tokens) == (7, 3, 10)

    engine.on_session_start("s", platform="cli")
    engine.on_session_end("s", MESSAGES)
    engine.on_session_reset()

    assert (engine.last_prompt_tokens, engine.last_total_tokens, engine.compression_count) == (0, 0, 0)


def test_each_conversation_has_its_own(engine: ContextEngine) -> None:
    other = copy_engine(engine)

    assert other is not None and other is not engine
    other.compression_count = 9
    assert engine.compression_count == 0


def test_the_defaults_are_the_contract_s() -> None:
    made = InMemory()
    assert (made.threshold_percent, made.protect_first_n, made.protect_last_n) == (0.75, 3, 6)
    assert made.should_compress_preflight(MESSAGES) is made.should_defer_preflight_to_real_usage(1) is False
    assert (made.has_content_to_compress(MESSAGES), made.get_tool_schemas()) == (True, [])
    assert json.loads(made.handle_tool_call("x", {})) == {"error": "context engine 'memory' has no tool 'x'"}
    made.last_prompt_tokens, made.context_length = 50_000, 200_000
    assert made.get_status()["usage_percent"] == 25
    made.last_prompt_tokens = -1
    assert (made.get_status()["last_prompt_tokens"], made.get_status()["usage_percent"]) == (0, 0)


class OfTheGuide(ContextEngine):
    """The guide's example."""

    @property
    def name(self) -> str:
        return "my-engine"

    def should_compress(self, messages: Any, model: Any) -> bool:  # type: ignore[override]
        return len(messages) > 10 and model == "m"

    def compress(self, messages: Any, model: Any) -> Any:  # type: ignore[override]
        return [messages[0], {"role": "user", "content": model}]


def test_the_guide_s_signatures_are_called_with_what_they_name() -> None:
    made = OfTheGuide()

    assert context_engine.should_compress(made, prompt_tokens=5, messages=MESSAGES, model="m") is True
    shorter = context_engine.compress(made, MESSAGES, current_tokens=5, model="m")
    assert shorter == [MESSAGES[0], {"role": "user", "content": "m"}]


def test_one_that_answers_no_list_is_named() -> None:
    made = type("Odd", (OfTheGuide,), {"compress": lambda self, messages: None})()

    with pytest.raises(TypeError, match=r"'my-engine': compress\(\) returned NoneType, not a list"):
        context_engine.compress(made, MESSAGES, model="m")


def test_one_that_cannot_be_copied_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    made = InMemory()
    made.lock = threading.Lock()  # type: ignore[attr-defined]

    assert copy_engine(made) is None
    assert "context engine 'memory' cannot be copied" in caplog.text


def test_the_config_selects() -> None:
    made = InMemory()

    assert choose_context_engine({"memory": made}, {"context": {"engine": "memory"}})[0] is made
    assert choose_context_engine({"memory": made}, {}) == (None, "context.engine names the built-in engine")
    assert choose_context_engine({}, {"context": {"engine": "gone"}}) == (
        None,
        "context.engine='gone' is set but no plugin registered that name; the built-in engine is used",
    )


ENGINE = """
from agent.context_engine import ContextEngine

class E(ContextEngine):
    def __init__(self, name): self._name = name
    @property
    def name(self): return self._name
    def should_compress(self, prompt_tokens=None): return False
    def compress(self, messages): return messages

def register(ctx):
    for name in {names}:
        ctx.register_context_engine(E(name))
"""


def test_there_is_one_for_the_process(home: Path, served: None, caplog: pytest.LogCaptureFixture) -> None:
    for plugin, names in (("first", ["a", "b"]), ("second", ["c"])):
        place = home / "plugins" / plugin
        place.mkdir()
        (place / "plugin.yaml").write_text(f"name: {plugin}\n")
        (place / "__init__.py").write_text(ENGINE.format(names=names))
    (home / "config.yaml").write_text("plugins:\n  enabled: [first, second]\ncontext:\n  engine: a\n")
    host = Host.build(home)
    host.plugins.discover_and_load()
    host.bridge.close()

    first, second = host.plugins.records
    assert host.providers["context_engine"].names() == ["a"]
    assert host.providers.choose("context_engine", host.config.values).provider.name == "a"
    assert "Plugin 'first' tried to register a context engine that comes second, after its own `a`. Ignoring." in (
        caplog.messages
    )
    assert [p.text for p in second.problems] == ["context engine `a` belongs to plugin `first`"]
    assert (first.enabled, second.enabled) == (True, True)


def test_the_upstream_name_is_this(served: None) -> None:
    from agent.context_engine import ContextEngine as upstream

    assert upstream is ContextEngine
