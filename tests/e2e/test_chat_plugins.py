"""Plugins that speak into the conversation at a terminal, and commands beside a busy agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from test_chat import opened
from worlds import make_home

PLUGIN = '''
import threading

def register(ctx):
    def later(raw_args):
        """From a thread of the plugin's own, when nobody waits for it."""
        done = threading.Event()
        threading.Thread(target=lambda: (ctx.inject_message(raw_args), done.set())).start()
        done.wait(5)
        return "thread said it"

    def system(raw_args):
        return str(ctx.inject_message(raw_args, role="system"))

    async def broken(raw_args):
        raise ValueError("no " + raw_args)

    ctx.register_command("/Say Later", later, description="Say it later", args_hint="<text>")
    ctx.register_command("sys", system)
    ctx.register_command("broken", broken)
    ctx.register_command("help", system)
'''


def home_with_plugin(path: Path, model: Any) -> Path:
    home = make_home(path, model)
    place = home / "plugins" / "speaker"
    place.mkdir()
    (place / "plugin.yaml").write_text("name: speaker\n")
    (place / "__init__.py").write_text(PLUGIN)
    text = (home / "config.yaml").read_text().replace("[calculator]", "[calculator, speaker]")
    (home / "config.yaml").write_text(text)
    (home / "skills" / "kitchen" / "tea").mkdir(parents=True)
    (home / "skills" / "kitchen" / "tea" / "SKILL.md").write_text("---\ndescription: Brew tea\n---\nWarm the pot.\n")
    return home


def said(question: str, answer: str, **more: Any) -> dict[str, Any]:
    return {"match": {"userMessage": question}, "response": {"content": answer}, **more}


def users(model: Any) -> list[str]:
    return [m["content"] for m in model.bodies()[-1]["messages"] if m["role"] == "user"]


def test_a_plugin_speaks_while_nothing_runs(tmp_path: Path, scripted) -> None:
    fixtures = [said("the bell rings", "Open the door."), said("[system] be brief", "Yes.")]
    with scripted(fixtures) as model:
        terminal = opened(home_with_plugin(tmp_path, model))
        terminal.say("/say-later the bell rings")
        terminal.wait("thread said it")
        terminal.wait("Open the door.")
        assert users(model) == ["the bell rings"]
        terminal.idle()
        terminal.say("/sys be brief")
        terminal.wait("Yes.")
        assert users(model)[-1] == "[system] be brief"
        terminal.idle()
        assert terminal.leave() == 0


def test_a_plugin_interrupts_the_turn_from_a_command_that_runs_beside_it(tmp_path: Path, scripted) -> None:
    slow = said("tell me a long story", "word " * 600, latency=200)
    with scripted([slow, said("the bell rings", "Open the door."), said("and then", "Close it.")]) as model:
        terminal = opened(home_with_plugin(tmp_path, model))
        terminal.say("tell me a long story")
        terminal.wait("word word")
        terminal.say("/plugins")
        terminal.wait("Plugins (2):")
        terminal.say("and then")
        terminal.say("/say-later the bell rings")
        terminal.wait("Open the door.")
        terminal.wait("Close it.")
        assert users(model) == ["tell me a long story", "the bell rings", "and then"]
        terminal.idle()
        assert terminal.leave() == 0


def test_stop_and_quit_work_while_the_agent_does(tmp_path: Path, scripted) -> None:
    with scripted([said("tell me a long story", "word " * 600, latency=200)]) as model:
        terminal = opened(home_with_plugin(tmp_path, model))
        for command in ("/stop", "/quit"):
            terminal.say("tell me a long story")
            terminal.wait("word word")
            terminal.say(command)
            if command == "/stop":
                terminal.idle()
                terminal.say("/clear")
                terminal.gone("word word")
        assert terminal.end() == 0


def test_errors_are_told_and_hints_and_skills_are_listed(tmp_path: Path, scripted) -> None:
    with scripted([{"match": {}, "response": {"content": "Tea is ready."}}]) as model:
        terminal = opened(home_with_plugin(tmp_path, model))
        terminal.say("/broken luck")
        terminal.wait("Plugin command error: no luck")
        terminal.say("/help")
        terminal.wait("/say-later <text>")
        terminal.wait("Say it later")
        terminal.wait("Brew tea")
        terminal.say("/tea two cups")
        terminal.wait("Tea is ready.")
        assert "Warm the pot." in users(model)[0]
        assert users(model)[0].endswith("\ntwo cups")
        system = model.bodies()[-1]["messages"][0]["content"]
        assert "  kitchen:\n    - tea: Brew tea\n" in system
        terminal.idle()
        assert terminal.leave() == 0
