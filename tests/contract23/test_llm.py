"""Acceptance list of the plugin contract of 0.23, part E: `ctx.llm`. One test a sentence, with its number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compat.guides import plugin
from hermes_agent.plugins.llm_types import PluginLlmTrustError
from hermes_agent.testing import plugin_host

KEEPS = "def register(ctx):\n    global context\n    context = ctx\n"
MESSAGES = [{"role": "user", "content": "hello"}]


def test_e6_a_task_of_its_own_uses_its_settings_and_a_built_in_one_needs_a_permission(tmp_path: Path) -> None:
    with plugin_host(plugin(tmp_path / "p", KEEPS), model=["main", "own", "seen"]) as host:
        ctx: Any = host.host.plugins.find("p").module.context
        ctx.register_auxiliary_task("own", display_name="Own", description="x", defaults={"model": "other-model"})
        assert ctx.llm.complete(MESSAGES, task="auto").text == "main"
        answer = ctx.llm.complete(MESSAGES, task="own")
        assert answer.text == "own"
        assert host.model.requests[-1]["model"] == "other-model"
        with pytest.raises(
            PluginLlmTrustError, match=r"'p' cannot route through auxiliary task 'vision' — a plugin may"
        ):
            ctx.llm.complete(MESSAGES, task="vision")
        with pytest.raises(PluginLlmTrustError):
            ctx.llm.complete(MESSAGES, task="nonsense")
        config = host.home / "config.yaml"
        text = config.read_text(encoding="utf-8").replace(
            '"enabled": [', '"entries": {"p": {"llm": {"allow_task_override": true}}}, "enabled": ['
        )
        config.write_text(text, encoding="utf-8")
        assert ctx.llm.complete(MESSAGES, task="vision").text == "seen"
        with pytest.raises(PluginLlmTrustError):
            ctx.llm.complete(MESSAGES, task="nonsense")


def test_a_task_inherits_the_present_settings_of_another_one(tmp_path: Path) -> None:
    with plugin_host(plugin(tmp_path / "p", KEEPS), model=["one", "two"]) as host:
        ctx: Any = host.host.plugins.find("p").module.context
        texts = {"display_name": "x", "description": "x"}
        ctx.register_auxiliary_task("base", defaults={"model": "base-model"}, **texts)
        ctx.register_auxiliary_task("child", inherit_from="base", **texts)
        ctx.register_auxiliary_task("own", inherit_from="base", defaults={"model": "own-model"}, **texts)
        ctx.register_auxiliary_task("lost", inherit_from="nonsense", **texts)
        assert [line.text for line in host.log if "cannot inherit from 'nonsense'" in line.text]
        ctx.llm.complete(MESSAGES, task="child")
        assert host.model.requests[-1]["model"] == "base-model"
        ctx.llm.complete(MESSAGES, task="own")
        assert host.model.requests[-1]["model"] == "own-model"
