"""Every `auxiliary.<task>` is asked for, or says that it has no effect."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import hermes_agent
from hermes_agent.config.check import check_file
from hermes_agent.config.schema import load_schema, resolve
from hermes_agent.testing import call, plugin_host

SOURCES = Path(hermes_agent.__file__).parent
ASKS = re.compile(
    r"(?:side_answer, |side_answer\(|AuxiliaryCall\(|side_request, |side_request\(|^\w*TASK = )\"(\w+)\"", re.MULTILINE
)


def tasks() -> dict[str, Any]:
    """Return the schemas of the side tasks by name."""
    found = load_schema()["properties"]["auxiliary"]["properties"]
    return {name: resolve(node) for name, node in found.items() if node.get("$ref") == "#/$defs/auxiliary_task"}


def test_the_tasks_that_have_an_effect_are_those_that_the_agent_asks_for() -> None:
    texts = (path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py"))
    asked = {name for text in texts for name in ASKS.findall(text)}
    used = {name for name, node in tasks().items() if node.get("x-effect", "used") == "used"}
    assert (
        used
        == asked & set(tasks())
        == {
            *("approval", "compression", "mcp", "session_search", "title_generation", "vision", "web_extract"),
            *("embeddings", "learning_review", "web_client"),
        }
    )


def test_the_others_say_why_nothing_asks_for_them_and_so_does_a_switch_that_switches_nothing(tmp_path: Path) -> None:
    lines = [f"  {name}: {{model: small, enabled: true}}\n" for name in tasks()]
    (tmp_path / "config.yaml").write_text("auxiliary:\n" + "".join(lines))
    report = check_file(tmp_path / "config.yaml")
    said = {note.key_path: note.message for note in report.notes}
    assert report.is_valid
    assert set(said) == {
        *(f"auxiliary.{name}" for name, node in tasks().items() if node.get("x-effect", "used") != "used"),
        *(f"auxiliary.{name}.enabled" for name in ("approval", "compression", "mcp", "session_search", "vision")),
        *(f"auxiliary.{name}.enabled" for name in ("embeddings", "learning_review", "web_client")),
    }
    assert "no effect: `auxiliary.curator`. Nothing revises skills by itself" in said["auxiliary.curator"]
    assert len({text.partition("`. ")[2] for key, text in said.items() if key.count(".") == 1}) >= 6


def test_the_model_of_session_search_summarises_what_was_found() -> None:
    def answer(request: dict[str, Any]) -> Any:
        if request["model"] == "small":
            return "a summary"
        if str(request["messages"][-1]["content"]).startswith("look up"):
            return call("session_search", query="otter", summarize=True)
        return "fine"

    config = {"auxiliary": {"session_search": {"model": "small"}}}
    with plugin_host(lambda ctx: None, model=[answer] * 8, config=config) as host:
        host.ask("my otter is called Ottilie")
        host.new_session()
        host.ask("look up the otter")
        assert [r["model"] for r in host.model.requests].count("small") == 1
