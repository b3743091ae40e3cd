"""Docstrings, comments, log lines and error texts keep the terms of the code and name only what exists."""

from __future__ import annotations

import ast
import functools
import importlib
import io
import keyword
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from hermes_agent.config.schema import leaves

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "hermes" / "hermes_agent"
CONVERTED = (
    "app",
    "adapters",
    "agent",
    "builtin_tools",
    "commands",
    "compat",
    "config",
    "console",
    "contracts",
    "core",
    "credentials",
    "cron",
    "delivery",
    "gateway",
    "hooks",
    "host",
    "logs",
    "mcp",
    "media",
    "memory",
    "models",
    "plugins",
    "policy",
    "runtime",
    "server",
    "service",
    "sessions",
    "skills",
    "store",
    "system",
    "testing",
    "tools",
    "workspace",
)
"""Packages and modules of `hermes_agent` that these rules hold for."""
LONGEST_FIRST_LINE = 100
WORDS = (
    "anew",
    "anybody",
    "beforehand",
    "beside",
    "box",
    "boxes",
    "elsewhere",
    "front door",
    "let go of",
    "lets let",
    "nobody",
    "of ours",
    "side by side",
    "somebody",
    "stranger",
    "strangers",
    "talk",
    "told",
    "whoever",
    "whose",
)
"""Words that the terms of the glossary replace."""
NAMES = frozenset(
    {"anew", "beside", "box", "circumstances", "somebody", "nobody", "stranger", "strangers", "talk", "told"}
)
"""Parts of identifiers that the terms of the glossary replace."""
MODULES = frozenset(
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__") for path in SOURCE.rglob("*.py")
)
FOR_MODELS = {
    "agent/subagents.py": {"nobody"},
    "agent/system_prompt.py": {"talk"},
    "agent/tool_step.py": {"told"},
    "builtin_tools/delegate_task.py": {"side by side"},
    "builtin_tools/execute_code.py": {"whose"},
    "gateway/gateway.py": {"told"},
    "gateway/scheduled_jobs.py": {"nobody"},
    "model-providers/local/prompt.py": {"talk"},
}
"""Words in texts for models, by file. A change of these texts is a change of requests."""
BY_CONTRACT = {"compat/plugins.py": {"talk"}}
"""Words in texts that the plugin contract fixes."""
OUTSIDE = frozenset({"AF_VSOCK", "io_uring"})
"""Names in backticks of the kernel and of its libraries."""
EXAMPLES = re.compile(r"\.(example|com|org|net|uk)$|\.(txt|json|py|md|toml|yaml)$")
"""Ends of hosts and files, which look like dotted names."""
TICKS = re.compile(r"`+([A-Za-z_][\w.]*)(?:\(\))?`+")
FORBIDDEN = re.compile(r"\b(" + "|".join(WORDS) + r")\b", re.IGNORECASE)


class Prose(NamedTuple):
    """A text for readers of the code, of the log or of an error, and its line."""

    line: int
    kind: str
    text: str


def converted() -> list[Path]:
    """Return the files of `CONVERTED`."""
    found = [
        path
        for name in CONVERTED
        for path in ((SOURCE / name).rglob("*.py") if name[-3:] != ".py" else [SOURCE / name])
    ]
    return sorted(set(found))


def documented(nodes: Iterable[ast.AST]) -> Iterator[Prose]:
    """Return the docstrings of a module, its classes, functions and constants."""
    for node in nodes:
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        named = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for index, statement in enumerate(body):
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    kind = "docstring" if named and index == 0 else "note"
                    yield Prose(statement.lineno, kind, text.strip())


def messages(nodes: Iterable[ast.AST]) -> Iterator[Prose]:
    """Return the texts of log lines and of raised errors."""
    for node in nodes:
        match node:
            case ast.Raise(exc=ast.expr() as made):
                pass
            case ast.Call(func=ast.Attribute(value=ast.Name(id="logger"))) as made:
                pass
            case _:
                continue
        for part in ast.walk(made):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield Prose(part.lineno, "message", part.value)


def comments(tokens: Iterable[tokenize.TokenInfo]) -> Iterator[Prose]:
    """Return the comments of a module."""
    for token in tokens:
        if token.type == tokenize.COMMENT:
            yield Prose(token.start[0], "comment", token.string.lstrip("# "))


class Module(NamedTuple):
    """What a module has to read."""

    prose: tuple[Prose, ...]
    """Docstrings, comments and messages."""
    texts: tuple[Prose, ...]
    """Every text but docstrings: what users, logs and models read."""
    words: frozenset[str]
    """Every word of the code and of the texts in it, without docstrings and comments."""
    identifiers: tuple[tuple[int, str], ...]
    """Lines and identifiers with a part that a term of the glossary replaces."""


def examine(source: str) -> Module:
    """Parse a module."""
    nodes, tokens = list(ast.walk(ast.parse(source))), list(tokenize.generate_tokens(io.StringIO(source).readline))
    docs = list(documented(nodes))
    places = {(text.line, text.text) for text in docs}
    texts: list[Prose] = []
    words: set[str] = set()
    for node in nodes:
        match node:
            case ast.Constant(value=str(text)):
                if (node.lineno, text.strip()) not in places:
                    texts.append(Prose(node.lineno, "text", text))
                    words.update(re.findall(r"\w+", text))
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                words.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                words.add(name)
            case ast.alias(name=name, asname=other):
                words.update((*name.split("."), *([other] if other else [])))
            case ast.ImportFrom(module=str(name)):
                words.update(name.split("."))
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.ExceptHandler(name=str(name)):
                words.add(name)
    replaced = (t for t in tokens if t.type == tokenize.NAME and NAMES & set(t.string.lower().split("_")))
    return Module(
        (*docs, *comments(tokens), *messages(nodes)),
        tuple(texts),
        frozenset(words),
        tuple((token.start[0], token.string) for token in replaced),
    )


@functools.cache
def read(path: Path) -> Module:
    """Parse a file, once in a run: it takes most of the time of these tests."""
    return examine(path.read_text(encoding="utf-8"))


@functools.cache
def identifiers() -> frozenset[str]:
    """Return every word of the package and of the bundled plugins, without docstrings and comments."""
    words: set[str] = set()
    for path in [*SOURCE.rglob("*.py"), *(ROOT / "plugins").rglob("*.py")]:
        words |= read(path).words
    for path in SOURCE.rglob("*"):
        if path.suffix in {".txt", ".json", ".toml", ".sql", ".md"}:
            words.update(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    words |= {part for module in MODULES for part in module.split(".")} | sys.stdlib_module_names | {*keyword.kwlist}
    return frozenset(words)


@functools.cache
def config_keys() -> frozenset[str]:
    """Return the keys of the config and of its blocks."""
    keys = {leaf if isinstance(leaf, str) else ".".join(leaf[0]) for leaf in leaves()}
    return frozenset(".".join(key.split(".")[:n]) for key in keys for n in range(1, key.count(".") + 2))


def exists(name: str) -> bool:
    """Is there such a module, name of a module, key of the config or identifier?"""
    parts = name.strip(".").removeprefix("hermes_agent.").split(".")
    if name in config_keys() | OUTSIDE or parts == ["hermes_agent"] or EXAMPLES.search(name):
        return True
    if len(parts) > 1 and parts[0] in sys.stdlib_module_names and parts[0] not in MODULES:
        return _in_library(parts)
    if len(parts) > 1 and parts[0] in MODULES and not (SOURCE / f"{parts[0]}.py").exists():
        held = next(n for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in MODULES)
        if held == len(parts):
            return True
        base = SOURCE.joinpath(*parts[:held])
        text = (base / "__init__.py" if base.is_dir() else base.with_suffix(".py")).read_text(encoding="utf-8")
        return re.search(rf"\b{parts[held]}\b", text) is not None and all(
            part in identifiers() for part in parts[held:]
        )
    return all(part in identifiers() for part in parts)


def _in_library(parts: list[str]) -> bool:
    """Is there such a name in the standard library?"""
    for count in range(len(parts), 0, -1):
        try:
            value: object = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            if not hasattr(value, part):
                return False
            value = getattr(value, part)
        return True
    return False


def problems(module: Module) -> list[str]:
    """Return what breaks the rules in a module, with its lines."""
    found: list[tuple[int, str]] = []
    for line, kind, text in module.prose:
        if kind == "docstring":
            first = text.split("\n", 1)[0]
            if len(first) > LONGEST_FIRST_LINE:
                found.append((line, f"first line has {len(first)} characters: {first}"))
            if not first.endswith((".", "?")):
                found.append((line, f"first line has no period: {first}"))
        bare = re.sub(r"`[^`]*`", "", text)
        found += [(line, f"word {word!r} in: {text[:60]}") for word in FORBIDDEN.findall(bare)]
        if kind != "message":
            found += [(line, f"`{name}` does not exist") for name in TICKS.findall(text) if not exists(name)]
    found += [(line, f"identifier {name}") for line, name in module.identifiers]
    return [f"{line}: {text}" for line, text in sorted(set(found))]


@pytest.mark.parametrize("path", converted(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_prose_of_a_module_uses_the_terms_and_names_what_exists(path: Path) -> None:
    assert problems(read(path)) == []


def test_texts_for_users_have_the_terms_of_the_glossary() -> None:
    found = []
    for base in (SOURCE, ROOT / "plugins"):
        for path in sorted(base.rglob("*.py")):
            name = str(path.relative_to(base))
            if "_bundled" in name:
                continue
            allowed = FOR_MODELS.get(name, set()) | BY_CONTRACT.get(name, set())
            for line, _, text in read(path).texts:
                if " " not in text:
                    continue  # a name or a value
                words = {word.lower() for word in FORBIDDEN.findall(re.sub(r"`[^`]*`", "", text))} - allowed
                found += [f"{name}:{line}: {word!r} in: {text[:80]}" for word in words]
    assert found == []


def test_identifiers_of_bundled_plugins_have_the_terms_of_the_glossary() -> None:
    found = []
    for path in sorted((ROOT / "plugins").rglob("*.py")):
        found += [f"{path.relative_to(ROOT)}:{line}: {name}" for line, name in read(path).identifiers]
    assert found == []


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ('"""Text without a period"""', "1: first line has no period: Text without a period"),
        ('"""Its home is `policy.no_such_module`."""', "1: `policy.no_such_module` does not exist"),
        ('"""See `io.supervise`."""', "1: `io.supervise` does not exist"),
        ('"""See `NoSuchIdentifier`."""', "1: `NoSuchIdentifier` does not exist"),
        ('"""Fine."""\n# somebody waits', "2: word 'somebody' in: somebody waits"),
        ('"""Fine."""\nraise ValueError("nobody there")', "2: word 'nobody' in: nobody there"),
        ('"""Fine."""\ntalk = 1', "2: identifier talk"),
    ],
)
def test_a_breach_of_the_rules_is_found(source: str, problem: str) -> None:
    assert problems(examine(source)) == [problem]


def test_keys_names_and_modules_that_exist_are_found() -> None:
    for name in ("policy.taint", "hermes_agent.policy", "TaintTracker", "approvals.mode", "os.path"):
        assert exists(name), name


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        base = Path(argument)
        for file in sorted(base.rglob("*.py")) if base.is_dir() else [base]:
            for problem in problems(read(file)):
                print(f"{file}:{problem}")
