"""Every key of the config is read by code of ours, or its schema says why it has no effect; and such a mark is true.

A key counts as read where its whole path stands in the code (`config.get("agent.max_turns")`), or its block and its
name in one module. Blocks that are handed on as a mapping are read in the modules of `READERS`.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

from hermes_agent.config.schema import USED, effect, leaves

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "hermes" / "hermes_agent"
READERS = {
    "agent": ("host", "agent", "gateway/dependencies.py", "tools", "plugins", "models", "builtin_tools"),
    "auxiliary": ("plugins", "host", "builtin_tools", "agent"),
    "compression": ("agent/settings.py", "agent/compressor.py"),
    "hooks": ("host/settings.py", "hooks"),
    "limits": ("agent/settings.py",),
    "mcp_servers": ("mcp",),
    "model.local": ("_bundled/model-providers/local", "config/schema.py"),
    "platforms": ("adapters", "gateway"),
    "plugins.entries": ("plugins", "hooks", "host"),
    "providers": ("models/providers.py", "credentials", "models"),
    "security.foreign_text": ("host/settings.py", "policy"),
    "session_reset": ("gateway/chat_routes.py",),
    "terminal": ("workspace", "_bundled/terminal"),
    "tools.tool_search": ("tools",),
}
"""Modules or packages that read a block, by its path; the longest one counts."""
FIXED = 5
"""Letters that an f-string has besides what it fills in, so that it counts as the name of a key."""
HANDED_ON = {
    "plugins.entries.settings": "the plugin's own",
    "plugins.entries.config": "the plugin's own",
    "platforms.extra": "the plugin's own",
}


@functools.cache
def _words(file: Path) -> tuple[frozenset[str], tuple[re.Pattern[str], ...]]:
    """Return the names and texts in a module without its docstrings, and its f-strings as patterns."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    silent = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    words: set[str] = set()
    patterns: list[re.Pattern[str]] = []
    for node in ast.walk(tree):
        match node:
            case ast.JoinedStr(values=parts):
                silent |= {id(part) for part in parts}
                texts = [str(part.value) if isinstance(part, ast.Constant) else None for part in parts]
                fixed = "".join(filter(None, texts))
                if " " not in fixed and sum(map(str.isalpha, fixed)) >= FIXED:
                    patterns.append(re.compile("".join(r"\w*" if t is None else re.escape(t) for t in texts)))
            case ast.Constant(value=str(text)) if id(node) not in silent and " " not in text:
                words.add(text)
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                words.add(name)
    return frozenset(words), tuple(patterns)


def _has(file: Path, text: str) -> bool:
    words, patterns = _words(file)
    return text in words or any(pattern.fullmatch(text) for pattern in patterns)


@functools.cache
def _modules(place: str = "") -> tuple[Path, ...]:
    start = SOURCE / place
    assert start.exists(), f"{place}: there is no such module"
    files = [start] if start.is_file() else sorted(start.rglob("*.py"))
    left_out = {"compat", "_bundled"} - {place.partition("/")[0]}
    return tuple(file for file in files if file.relative_to(SOURCE).parts[0] not in left_out)


def _readers(dotted: str) -> tuple[str, ...]:
    fitting = [block for block in READERS if dotted == block or dotted.startswith(f"{block}.")]
    return READERS[max(fitting, key=len)] if fitting else ()


def _read_in(path: tuple[str | int, ...]) -> Path | None:
    """Return a module that reads the key at `path`."""
    named = [str(part) for part in path if part != "<name>"]
    dotted = ".".join(named)
    for file in _modules():
        if _has(file, dotted):
            return file
        for cut in range(1, len(named)):
            if _has(file, ".".join(named[:cut])) and all(_has(file, name) for name in named[cut:]):
                return file
    files = [file for place in _readers(dotted) for file in _modules(place)]
    return next((file for file in files if _has(file, named[-1])), None)


LEAVES = [(path, ".".join(str(part) for part in path if part != "<name>")) for path, _ in leaves()]


def test_every_key_of_the_config_is_read_or_says_why_it_has_no_effect() -> None:
    unread = [dotted for path, dotted in LEAVES if effect(path) == USED and dotted not in HANDED_ON]
    unread = [dotted for path, dotted in LEAVES if dotted in unread and _read_in(path) is None]
    assert unread == [], "have them read, or say with x-effect in config/schema.json why they have no effect"


def test_no_key_that_is_read_is_marked_as_without_effect() -> None:
    kinds = _modules("contracts")  # a kind names the key that selects its provider; its consumer may come later
    stale = [
        f"{dotted} ({file.relative_to(ROOT)})"
        for path, dotted in LEAVES
        if effect(path) != USED and "." in dotted
        for file in _modules()
        if file not in kinds and dotted in _words(file)[0]
    ]
    assert stale == [], "take the mark x-effect out of config/schema.json"


@pytest.mark.parametrize("block", [*READERS, *HANDED_ON])
def test_the_tables_of_this_test_name_keys_and_modules_that_are_there(block: str) -> None:
    assert any(dotted == block or dotted.startswith(f"{block}.") for _, dotted in LEAVES)
    assert all(_modules(place) for place in READERS.get(block, ()))
