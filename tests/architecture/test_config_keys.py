"""Every key of the config is read by code of ours, or its schema says why it has no effect; and such a mark is true.

A key counts as read where its whole path is an attribute of the settings (`settings.agent.max_turns`), or its block and
its name stand in one module. Blocks that are handed on as a mapping are read in the modules of `READERS`.

Code that knows its key reads it as an attribute of `Settings`, of which mypy knows the keys and types. A key is a text
only in the files of `BY_TEXT`.
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
    "logging": ("logs/setup.py",),
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


def _settings_path(node: ast.Attribute) -> str:
    """Return the key that an attribute of the settings reads, or "" for another attribute."""
    parts = [node.attr]
    below: ast.expr = node.value
    while True:
        match below:
            case ast.Name(id=("settings" | "Settings" | "config")):
                return ".".join(parts)
            case ast.Attribute(attr=("settings" | "_settings" | "_current")):
                return ".".join(parts)
            case ast.Attribute(value=value, attr=name):
                parts.insert(0, name)
                below = value
            case ast.Call(func=ast.Name() | ast.Attribute() as func):
                below = func
            case _:
                return ""


@functools.cache
def _words(file: Path) -> tuple[frozenset[str], tuple[re.Pattern[str], ...]]:
    """Return the names and texts in a module without its docstrings, and its f-strings as patterns."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    silent = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    words: set[str] = set()
    patterns: list[re.Pattern[str]] = []
    reads_settings = any(isinstance(node, ast.Attribute) and _settings_path(node) for node in nodes)
    for node in nodes:
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
            case ast.Attribute(attr=name):
                words |= {name} if reads_settings else set()
                words |= {path} if (path := _settings_path(node)) else set()
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


DECLARED = {".".join(map(str, path[:end])) for path, _ in leaves() for end in range(1, len(path) + 1)}
BY_TEXT = {
    "app/cli/config.py": "`hermes config get` takes the key from the command line",
}
"""Files that read a key of which they learn at run time, with the reason."""
READ = re.compile(r"_?(get|read|setting|value|look_up)\w*")
"""Names of functions that return the value of a key."""


def _texts_of_keys(tree: ast.AST) -> list[str]:
    """Return the expressions that read a declared key by its name: `config.get("a.b")`, `config.values["a"]`."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called), args=[argument, *_]):
                if (READ.fullmatch(called) and _is_key(argument)) or (called == "get" and _is_config(node.func)):
                    found.append(ast.unparse(node))
            case ast.Attribute(attr="get") | ast.Subscript() if _is_config(node):
                found.append(ast.unparse(node))
    return [text for text in dict.fromkeys(found) if not any(text != other and text in other for other in found)]


def _is_key(node: ast.expr) -> bool:
    """Return whether a text is the dotted path of a declared key."""
    match node:
        case ast.Constant(value=str(text)):
            return "." in text and text in DECLARED
        case ast.JoinedStr(values=parts):
            texts = [re.escape(str(part.value)) if isinstance(part, ast.Constant) else "[^.]+" for part in parts]
            return r"\." in "".join(texts) and any(re.fullmatch("".join(texts), path) for path in DECLARED)
        case _:
            return False


def _is_config(node: ast.expr) -> bool:
    """Return whether a node reads a key of the whole config: `config.get`, `load(home).values["model"]`."""
    below = node.value if isinstance(node, ast.Attribute | ast.Subscript) else node
    match below:
        case ast.Attribute(attr="config") | ast.Name(id="config"):
            return isinstance(node, ast.Attribute)
        case ast.Attribute(
            attr="values",
            value=ast.Attribute(attr="config") | ast.Name(id="config") | ast.Call(func=ast.Name(id="load")),
        ):
            return True
        case ast.Call(func=ast.Name(id="load") | ast.Attribute(attr="load"), args=[_, *_]):
            return isinstance(node, ast.Attribute) and "home" in ast.unparse(below)
        case _:
            return False


def test_a_key_that_the_code_knows_is_read_as_an_attribute() -> None:
    files = [file for file in _modules() if file.relative_to(SOURCE).parts[0] != "config"]
    files += [SOURCE / "compat" / name for name in ("environment.py", "advisors.py", "models.py")]
    found = {
        str(file.relative_to(SOURCE)): places
        for file in files
        if (places := _texts_of_keys(ast.parse(file.read_text())))
    }
    read_by_text = {name: places for name, places in found.items() if name in BY_TEXT}
    assert {name: places for name, places in found.items() if name not in BY_TEXT} == {}, "read `config.settings`"
    assert read_by_text.keys() == BY_TEXT.keys(), "a reason is left over"


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ('config.get("agent.max_turns")', 1),
        ('deps.config.get("people")', 1),
        ('self._get(f"nothing.{name}.model")', 0),
        ('get(f"auxiliary.{task}.model")', 1),
        ('load(hermes_home()).get("model")', 1),
        ('host.config.values["model"]', 1),
        ("Search.of(deps.config.get)", 1),
        ("settings.agent.max_turns", 0),
        ('values.get("m.relates_to")', 0),
    ],
)
def test_what_the_check_of_texts_finds(code: str, count: int) -> None:
    assert len(_texts_of_keys(ast.parse(code))) == count
