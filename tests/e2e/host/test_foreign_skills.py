"""A skill that a command brought: its words reach the model between marks, or not at all."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from e2e.host.test_foreign_ways import MARKER, AgentHome, Model, named_skill
from hermes_agent.contracts.model_client import ModelDelta, ModelRequest
from hermes_agent.core.untrusted import split_marked
from hermes_agent.skills.skill_commands import SkillCommands


@pytest.mark.attack("taint")
async def test_a_skill_that_a_command_brought_reaches_the_model_between_marks_alone(
    tmp_path: Path, attempt: Any
) -> None:
    world = AgentHome(tmp_path, "")
    for name in ("tea", "for tea/otters"):
        (tmp_path / "home" / "skills" / name).mkdir(parents=True)
        (tmp_path / "home" / "skills" / name / "SKILL.md").write_text("---\ndescription: How we do it\n---\nPour.")
    named_skill(world)
    asked: list[str] = []

    class Listening(Model):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
            asked.append(json.dumps([m.text for m in request.messages]))
            async for delta in super().stream(request):
                yield delta

    await world.turn("hello", Listening(hello=["Hello."]))
    attempt("evil.example" not in asked[0] and "1 more that others wrote" in asked[0], "the system prompt")
    assert "tea: How we do it" in asked[0]
    said = world.host.service(SkillCommands).message("tell-markblackevilexample", "go", session_id="s", platform="cli")
    place = f"for {MARKER}/otters"
    exits = {
        "skills_list": await world.done("list", "skills_list"),
        "a skill that is not there": (await world.call("none", "skill_view", name="nothing")).result,
        "skills of one name": (await world.call("same", "skill_view", name="otters")).result,
        "a command": (said or "").replace(f"[Its directory: {tmp_path}/home/skills/{place}]", ""),
    }
    for key in ("name", "description", "tags", "content", "metadata"):
        viewed = json.loads(await world.done("view", "skill_view", name=place))
        exits[f"skill_view: {key}"] = json.dumps(viewed[key])
    viewed = json.loads(await world.done("file", "skill_view", name=place, file_path="references/a.md"))
    exits["skill_view of a file"] = json.dumps(viewed["content"])
    for name, text in exits.items():
        plain = "".join(piece.text for piece in split_marked(text) if piece.source is None)
        attempt("evil.example" not in plain, f"{name}: {plain}")
    assert all(MARKER in text for name, text in exits.items() if name != "a skill that is not there")
    await world.host.aclose()

    config = json.loads((tmp_path / "home" / "config.yaml").read_text())
    config["security"]["foreign_text"]["trusted"] = ["*https://evil.example/*"]
    (tmp_path / "home" / "config.yaml").write_text(json.dumps(config))
    world.begin()
    assert "<foreign-text" not in await world.done("trusted", "skills_list")
    await world.host.aclose()
