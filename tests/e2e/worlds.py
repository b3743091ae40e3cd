"""A home with the calculator, and a scripted model that calls it: what every front door is tested in."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peers.scripted import ScriptedModel

__all__ = ["HERMES", "PROMPTS", "Prompt", "environment", "make_home", "power_prompt", "results_seen", "run", "script"]

ROOT = Path(__file__).parents[2]
HERMES = str(Path(sys.executable).with_name("hermes"))
CALCULATOR = ROOT / "examples" / "plugins" / "calculator"


@dataclass(frozen=True)
class Prompt:
    """A question, the call that the model answers it with, and a piece of the result that only the tool knows."""

    question: str
    tool: str
    arguments: dict[str, Any]
    result: str


PROMPTS = (
    Prompt("What's 2 to the power of 16?", "calculate", {"expression": "2**16"}, "65536"),
    Prompt(
        "Convert 100 fahrenheit to celsius",
        "unit_convert",
        {"value": 100, "from_unit": "F", "to_unit": "C"},
        "37.7778 C",
    ),
    Prompt("What's the square root of 2 times pi?", "calculate", {"expression": "sqrt(2 * pi)"}, "2.5066282746310002"),
    Prompt(
        "How many gigabytes is 1.5 terabytes?",
        "unit_convert",
        {"value": 1.5, "from_unit": "TB", "to_unit": "GB"},
        "1536.0 GB",
    ),
)
"""The four prompts of the guide."""


def power_prompt() -> Prompt:
    """Return a question whose answer was not known when the test was written."""
    exponent = random.SystemRandom().randrange(20, 200)
    return Prompt(
        f"What's 2 to the power of {exponent}?", "calculate", {"expression": f"2**{exponent}"}, str(2**exponent)
    )


def script(*prompts: Prompt) -> list[dict[str, Any]]:
    """Return aimock's fixtures: first the tool call, then, when a result is there, a sentence."""
    fixtures: list[dict[str, Any]] = []
    for number, prompt in enumerate(prompts):
        call = {"id": f"call_{number}", "name": prompt.tool, "arguments": json.dumps(prompt.arguments)}
        said = {"userMessage": prompt.question}
        fixtures.append({"match": {**said, "hasToolResult": False}, "response": {"toolCalls": [call]}})
        fixtures.append({"match": {**said, "toolCallId": f"call_{number}"}, "response": {"content": answer(prompt)}})
        fixtures.append({"match": said, "response": {"toolCalls": [call]}})
    return fixtures


def answer(prompt: Prompt) -> str:
    """Return what the model says in the end."""
    return f"That is {prompt.result}, says {prompt.tool}."


def make_home(path: Path, model: ScriptedModel | None, *, plugin: Path = CALCULATOR, sandbox: str = "off") -> Path:
    """Write a home in `path` that asks `model` and has the calculator enabled.

    Args:
        sandbox: `terminal.sandbox`; `off` shows the same on every machine.
    """
    home = path / "home"
    (home / "plugins").mkdir(parents=True)
    (home / "plugins" / "calculator").symlink_to(plugin)
    lines = ["plugins:", "  enabled: [calculator]", "terminal:", f"  sandbox: {sandbox}"]
    if model is not None:
        lines += ["model:", "  provider: custom", f"  base_url: {model.base_url}", "  default: scripted-model"]
    (home / "config.yaml").write_text("\n".join(lines) + "\n")
    if model is not None and model.key:
        (home / ".env").write_text(f"OPENAI_API_KEY={model.key}\n")
        (home / ".env").chmod(0o600)
    return home


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return an environment with nothing of ours but the home."""
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": str(home.parent),
        "HERMES_HOME": str(home),
        "HERMES_BUNDLED_SKILLS": "none",
        "LANG": "C.UTF-8",
        "TERM": os.environ.get("TERM", "xterm"),
        **more,
    }


def run(home: Path, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run `hermes` to its end, without a terminal."""
    more.setdefault("stdin", subprocess.DEVNULL)
    more.setdefault("cwd", home.parent)
    return subprocess.run(
        [HERMES, *arguments],
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **more,
    )


def results_seen(model: ScriptedModel) -> list[str]:
    """Return the tool results that the model was given, in order."""
    last = model.bodies()[-1]["messages"]
    return [m["content"] for m in last if m["role"] == "tool"]
