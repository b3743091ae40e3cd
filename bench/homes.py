"""What is measured (an installation), and the homes that it is given."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["KEY", "TOOL", "Installation", "environment", "make_home", "write_plugins"]

TOOL = "p000_tool"
"""The tool of the first plugin of a home: it answers at once."""
KEY = "bench-0123456789abcdef0123456789abcdef"
"""The key of a daemon's HTTP server."""

PLUGIN = """\
SCHEMA = {{
    "name": "{name}_tool",
    "description": "Says that all is well.",
    "parameters": {{"type": "object", "properties": {{"text": {{"type": "string"}}, "count": {{"type": "integer"}}}}}},
}}


def register(ctx):
    ctx.register_tool("{name}_tool", "{name}", SCHEMA, lambda args, **kw: '{{"ok": true}}')
"""


class Installation(NamedTuple):
    """An agent in a venv."""

    name: str
    """`ours` or `peer`."""
    bin: Path

    @property
    def python(self) -> str:
        return str(self.bin / "python")

    @property
    def hermes(self) -> str:
        return str(self.bin / "hermes")

    @property
    def is_ours(self) -> bool:
        return self.name == "ours"


def make_home(
    home: Path,
    plugins: int,
    model_port: int | None = None,
    hooks: Sequence[str] = ("post_tool_call",),
    window: int = 10_000_000,
) -> None:
    """Write a home with so many trivial directory plugins (a tool and hooks each), all enabled.

    Args:
        model_port: of the stub model that it talks to; None: no model is configured.
        window: tokens that the model can see.
    """
    names = write_plugins(home / "plugins", plugins, hooks)
    home.mkdir(parents=True, exist_ok=True)
    config = f"plugins:\n  enabled: [{', '.join(names)}]\n"
    if model_port is not None:
        config += (
            f"model:\n  default: stub\n  provider: custom\n  context_length: {window}\n"
            f"  base_url: http://127.0.0.1:{model_port}/v1\n  api_key: sk-stub\n"
            "memory:\n  memory_enabled: false\n  user_profile_enabled: false\n"
        )
        (home / ".env").write_text("OPENAI_API_KEY=sk-stub\n")
    (home / "config.yaml").write_text(config)


def write_plugins(folder: Path, count: int, hooks: Sequence[str] = ("post_tool_call",)) -> list[str]:
    """Write so many trivial directory plugins, a tool and hooks each, and return their names."""
    names = [f"p{i:03}" for i in range(count)]
    for name in names:
        plugin = folder / name
        plugin.mkdir(parents=True)
        (plugin / "plugin.yaml").write_text(f"name: {name}\nversion: 1.0.0\ndescription: one of many\n")
        added = "".join(f"    ctx.register_hook('{hook}', lambda **kw: None)\n" for hook in hooks)
        (plugin / "__init__.py").write_text(PLUGIN.format(name=name) + added)
    return names


def environment(home: Path) -> dict[str, str]:
    """Return the environment of a process of that home: nothing else of this machine's settings."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home.parent),
        "HERMES_HOME": str(home),
        "HERMES_DISABLE_LAZY_INSTALLS": "1",  # the peer would otherwise install packages while it is measured
    }
