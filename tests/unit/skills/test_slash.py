"""Skills as slash commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_agent.hooks import HookBus
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.skills import PluginSkills, SkillLibrary
from hermes_agent.skills.library import SkillSettings
from hermes_agent.skills.skill_commands import SkillCommands, instruction_of, slug


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[SkillCommands]:
    for name in ("Tea Time", "b", "c", "d", "e", "f"):
        (tmp_path / "skills" / name).mkdir(parents=True)
        (tmp_path / "skills" / name / "SKILL.md").write_text(f"Text of {name}.\n")
    bridge = Bridge()
    plugins = PluginSkills()
    plugins.register("Brew", tmp_path / "skills" / "b" / "SKILL.md", plugin="pot", owner="pot")
    library = SkillLibrary(
        tmp_path,
        SkillSettings(disabled=frozenset({"f"})),
        plugins=plugins,
        hooks=HookBus(bridge.wait_plugin),
        has_value=lambda name: True,
        disabled_plugins=list,
    )
    yield SkillCommands(library)
    bridge.close()


def message(commands: SkillCommands, name: str, arguments: str = "") -> str | None:
    return commands.message(name, arguments, session_id="s", platform="cli")


def test_names_become_slugs() -> None:
    names = ("Tea Time", "a_b", "Ünder", "--x--", "日本")
    assert [slug(name) for name in names] == ["tea-time", "a-b", "nder", "x", ""]


def test_a_skill_is_its_text_and_what_is_to_be_done(commands: SkillCommands, tmp_path: Path) -> None:
    text = message(commands, "tea-time", " two cups ")

    assert text is not None
    assert "Text of Tea Time.\n" in text
    assert str(tmp_path / "skills" / "Tea Time") in text
    assert text.endswith("\ntwo cups")
    assert instruction_of(text) == "two cups"
    assert instruction_of([{"type": "text", "text": text}, {"type": "image_url"}]) == "two cups"


def test_without_more_there_is_no_instruction(commands: SkillCommands) -> None:
    assert instruction_of(message(commands, "b")) is None
    assert instruction_of("what else") is None
    assert instruction_of(None) is None


def test_five_skills_may_be_stacked(commands: SkillCommands) -> None:
    text = message(commands, "tea-time", "/b /c /b /d /e /pot:brew now") or ""

    assert [n for n in ("Tea Time", "b", "c", "d", "e") if text.count(f"Text of {n}.") == 1] == [
        "Tea Time", "b", "c", "d", "e",
    ]  # fmt: skip
    assert instruction_of(text) == "/pot:brew now"
    assert instruction_of(message(commands, "b", "/etc/hosts is what I mean")) == "/etc/hosts is what I mean"
    assert instruction_of(message(commands, "b", "/nothing there")) == "/nothing there"


def test_a_plugin_s_skill_is_used_by_its_qualified_name(commands: SkillCommands) -> None:
    text = message(commands, "pot:brew", "now") or ""

    assert "[Bundle context: This skill is part of the 'pot' plugin.]" in text
    assert "pot" not in str(sorted(commands.offered("cli")))


def test_what_is_not_offered_is_no_command(commands: SkillCommands) -> None:
    assert sorted(commands.offered("cli")) == ["b", "c", "d", "e", "tea-time"]
    assert message(commands, "f") is None
    assert message(commands, "nothing") is None
