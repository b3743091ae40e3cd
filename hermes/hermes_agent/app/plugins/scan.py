"""Static scan of a plugin before it is installed: code that no honest plugin has. Nothing is run.

The scan knows a few certain signs and misses everything else; pins, the sandbox and grants are the protection. What
only may be harmful is a caution. Findings in tests are cautions at most. Source: plugin contract of 0.23 §11.3.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from hermes_agent.core.lazy_types import LazyNamedTuple

MAX_FILES, MAX_BYTES = 5_000, 2**20
TEST_FOLDERS = frozenset({"test", "tests", "testing", "fixtures"})
SHELL_FILES = (".sh", ".bash", ".zsh")

Level = Literal["caution", "dangerous"]
Verdict = Literal["safe", "caution", "dangerous"]

_RUNNERS = frozenset({"system", "popen", "run", "call", "check_call", "check_output", "Popen", "getoutput", "exec"})
_DECODERS = frozenset({"b64decode", "b32decode", "a85decode", "b85decode", "unhexlify", "decompress", "fromhex"})
_DOWNLOADS = frozenset({"urlopen", "get", "post", "request"})
_REMOTE_CODE = re.compile(r"\b(?:curl|wget)\b[^|;&\n]*\|\s*(?:sudo\s+)?(?:\S*/)?(?:ba|z|da)?sh\b")
_DESTRUCTION = re.compile(
    r"\brm\s+-\w*[rf]\w*\s+(?:--no-preserve-root\s+)?(?:/|~/?|\$HOME/?)(?:\s|\*|[\"']?$)|\bmkfs\.\w+\s+/dev/"
    r"|\bdd\s[^\n]{0,100}\bof=/dev/(?:sd|nvme|vd)|:\(\)\s*\{\s*:\|:&\s*\};:",
    re.MULTILINE,
)
_REVERSE_SHELL = re.compile(r"/dev/tcp/[\w.$-]+/\d+|\bnc\s+(?:-\w+\s+)*-e\s")
_KEY_FILES = re.compile(r"\.ssh/id_(?:rsa|ed25519|ecdsa)\b|/etc/shadow\b|\.aws/credentials\b|\.gnupg/")


class CodeFinding(LazyNamedTuple):
    """One thing that the scan found."""

    level: Level
    place: str
    """`file:line`."""
    what: str

    def __str__(self) -> str:
        return f"{self.level}: {self.place}: {self.what}"


def scan_plugin(folder: Path) -> list[CodeFinding]:
    """Return what is found in the Python and shell files of a plugin, the worst first."""
    found: list[CodeFinding] = []
    for file in sorted(_files(folder))[:MAX_FILES]:
        name = str(file.relative_to(folder))
        in_tests = not TEST_FOLDERS.isdisjoint(Path(name).parts[:-1]) or Path(name).name.startswith("test_")
        for level, line, what in _scan_file(file):
            found.append(CodeFinding("caution" if in_tests else level, f"{name}:{line}", what))
    return sorted(dict.fromkeys(found), key=lambda each: (each.level != "dangerous", each.place))


def verdict_of(findings: list[CodeFinding]) -> Verdict:
    """Return the worst level among the findings."""
    levels = {finding.level for finding in findings}
    return "dangerous" if "dangerous" in levels else "caution" if levels else "safe"


def _files(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = [each for each in folders if each not in (".git", "__pycache__", "node_modules")]
        for name in names:
            if name.endswith((".py", *SHELL_FILES)) and not (file := Path(place, name)).is_symlink():
                yield file


def _scan_file(file: Path) -> Iterator[tuple[Level, int, str]]:
    try:
        if file.stat().st_size > MAX_BYTES:
            return
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    if file.suffix in SHELL_FILES:
        for number, line in enumerate(text.splitlines(), 1):
            if not re.match(r"\s*(?:#|echo\b|printf\b|cat\b)", line):
                yield from ((level, number, what) for level, what in _about_command(line))
        return
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from ((level, node.lineno, what) for level, what in _about_call(node))
    if re.search(r"\bdup2\s*\(\s*\w+\.fileno\(\)", text) and re.search(r"[\"'](?:/bin/)?(?:ba)?sh[\"']", text):
        yield "dangerous", 1, "it connects a shell to a network connection"
    for found in _KEY_FILES.finditer(text):
        yield "caution", text.count("\n", 0, found.start()) + 1, f"it names private keys ({found[0]})"


def _about_call(node: ast.Call) -> Iterator[tuple[Level, str]]:
    name = _name(node.func)
    if name in ("exec", "eval") and isinstance(node.func, ast.Name) and node.args:
        inner = {_name(each.func) for each in ast.walk(node.args[0]) if isinstance(each, ast.Call)}
        if inner & _DECODERS:
            yield "dangerous", f"{name}() runs code that is hidden by an encoding"
        elif "urlopen" in inner or (inner & _DOWNLOADS and _from_web(node.args[0])):
            yield "dangerous", f"{name}() runs code that it downloads"
    if name in _RUNNERS and node.args:
        yield from _about_command(_text(node.args[0]))


def _about_command(command: str) -> Iterator[tuple[Level, str]]:
    if found := _DESTRUCTION.search(command):
        yield "dangerous", f"it destroys files or disks ({found[0].strip()[:60]!r})"
    if found := _REVERSE_SHELL.search(command):
        yield "dangerous", f"it connects a shell to a network connection ({found[0].strip()[:60]!r})"
    if found := _REMOTE_CODE.search(command):
        yield "caution", f"it runs a program that it downloads ({found[0].strip()[:80]!r})"


def _from_web(node: ast.AST) -> bool:
    """Return whether an expression calls a method of a library for HTTP."""
    roots = {each.func.value.id for each in ast.walk(node)
             if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)
             and isinstance(each.func.value, ast.Name)}  # fmt: skip
    return bool(roots & {"requests", "httpx", "urllib3"})


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _text(node: ast.expr) -> str:
    """Return the constant text of a command, with its words joined; "" if it has none."""
    words = node.elts if isinstance(node, ast.List | ast.Tuple) else [node]
    parts = []
    for word in words:
        pieces = word.values if isinstance(word, ast.JoinedStr) else [word]
        parts.append(
            "".join(p.value if isinstance(p, ast.Constant) and isinstance(p.value, str) else "…" for p in pieces)
        )
    return " ".join(parts)
