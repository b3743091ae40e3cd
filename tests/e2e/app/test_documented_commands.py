"""README and docs/operator, docs/nixos: each command parses, each config is valid, each key and page exists."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from hermes_agent.app.command_line import build_parser
from hermes_agent.app.manifest_cache import declared_schema
from hermes_agent.config.check import check_file
from hermes_agent.config.schema import load_schema

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("docs/operator/**/*.md", "docs/nixos/*.md")
PAGES = [ROOT / "README.md", ROOT / "docs" / "nix.md", *sorted(page for f in FOLDERS for page in ROOT.glob(f))]
INLINE = re.compile(r"`(hermes(?: [^`\n]*)?)`")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:\$ )?((?:\w+=\S+ )*hermes(?: .*)?)$", re.MULTILINE)
PLACEHOLDERS = {"NUMBER": "3", "DAYS": "30", "N": "3", "PORT": "8642", "COMMAND": "doctor"}
"""What stands for a placeholder that does not take any word."""
NAMED = re.compile(r"hermes( [a-z-]+)*( [a-z]+(\|[a-z]+)+)?")
"""A command that prose only names, without its arguments."""
INCOMPLETE = "the following arguments are required"
EXPLAINED = re.compile(r"\s+#.*$|\s{2,}\S.*$")
"""In a fenced block, a comment or a column of explanation: no part of the command."""


class Command(NamedTuple):
    """A command as a page has it."""

    page: str
    line: int
    text: str


def documented() -> Iterator[Command]:
    """Return every command of the pages."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        name = str(page.relative_to(ROOT))
        fences = [(m.start(), m.end()) for m in FENCE.finditer(text)]
        for found in INLINE.finditer(text):
            if not any(start <= found.start() < end for start, end in fences):
                yield Command(name, _line(text, found.start()), found[1].replace("\\|", "|"))
        for block in FENCE.finditer(text):
            if block[1] in ("", "sh", "console"):
                for found in COMMAND.finditer(block[2]):
                    yield Command(name, _line(text, block.start() + found.start()), EXPLAINED.sub("", found[1]))


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def meant(text: str) -> Iterator[list[str]]:
    """Return the command lines that a documented command stands for: each way to read `[…]`, `a|b` and `…`."""
    words = shlex.split(re.sub(r"^(\w+=\S+ )+", "", text).replace("[", " [ ").replace("]", " ] "))[1:]
    for with_optional in (False, True):
        chosen: list[list[str]] = []
        depth = 0
        for word in words:
            if word in "[]":
                depth += 1 if word == "[" else -1
            elif word in ("…", "..."):
                continue
            elif not depth or with_optional:
                chosen.append(_readings(word))
        yield from (list(line) for line in itertools.product(*chosen))
        if "[" not in words:
            return


def _readings(word: str) -> list[str]:
    word = word.removesuffix("…").removesuffix("...")
    parts = word.split("|") if re.fullmatch(r"[\w-]+(\|[\w-]+)+", word) else [word]
    return [PLACEHOLDERS.get(part, part) for part in parts]


COMMANDS = sorted({command.text: command for command in documented()}.values())
CONFIGS = [
    pytest.param(block[2], id=f"{page.relative_to(ROOT)}:{_line(page.read_text(encoding='utf-8'), block.start())}")
    for page in PAGES
    for block in FENCE.finditer(page.read_text(encoding="utf-8"))
    if block[1] == "yaml"
]


def refusal(arguments: list[str]) -> str:
    """Return what the parser says against a command line; empty for nothing."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            build_parser().parse_args(arguments)
        except SystemExit as end:
            return said.getvalue() if end.code else ""
    return ""


def test_the_pages_have_commands() -> None:
    assert len(COMMANDS) > 80 and len(CONFIGS) > 15


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: f"{c.page}:{c.line} {c.text}")
def test_every_documented_command_is_understood(command: Command) -> None:
    refused = {" ".join(line): said for line in meant(command.text) if (said := refusal(line))}
    if NAMED.fullmatch(command.text):
        refused = {line: said for line, said in refused.items() if INCOMPLETE not in said}
    assert refused == {}


def test_a_command_that_is_not_there_would_be_found() -> None:
    assert all(refusal(line) for line in meant("hermes sessions shwo ID"))
    assert all(refusal(line) for line in meant("hermes gateway status [--jsn]") if "--jsn" in line)


@pytest.mark.parametrize("text", CONFIGS)
def test_every_documented_config_is_valid(text: str, tmp_path: Path) -> None:
    value = yaml.safe_load(text)
    if isinstance(value, list):
        assert all(isinstance(step, dict) and step.keys() <= {"run", "uses", "name", "with"} for step in value), "steps"
        return
    if not set(value) & set(load_schema()["properties"]):
        assert "events" in value, "it is neither a config nor the manifest of a gateway hook"
        return
    (tmp_path / "config.yaml").write_text(text, encoding="utf-8")

    found = check_file(tmp_path / "config.yaml", strict=True, schema=declared_schema(tmp_path))

    assert found.errors == []


def test_every_key_that_config_set_and_get_are_shown_with_exists() -> None:
    keys = [
        (command, line[2])
        for command in COMMANDS
        for line in meant(command.text)
        if line[:1] == ["config"] and line[1:2] and line[1] in ("set", "get", "unset") and len(line) > 2
    ]
    known = load_schema()["properties"]
    assert [command for command, key in keys if "." in key and key.split(".")[0] not in known] == []
    assert len(keys) > 4


def test_every_page_that_a_page_names_is_there() -> None:
    missing = []
    for page in PAGES:
        text = FENCE.sub("", page.read_text(encoding="utf-8"))
        for target in re.findall(r"\]\(([^)#\s]+?)(?:#[^)]*)?\)", text):
            if "://" not in target and not (page.parent / target).exists():
                missing.append(f"{page.relative_to(ROOT)}: {target}")
    assert missing == []


ELSEWHERE = {
    "": "asks for a conversation",
    "auth login": "asks for a key, or opens a browser",
    "gateway run": "serves until it is stopped",
    "gateway setup": "asks",
    "logs": "follows the log with -f",
    "mcp login": "opens a browser",
    "mcp test": "starts the server",
    "memory setup": "asks",
    "model pull": "fetches the weights",
    "plugins install": "fetches a plugin",
    "plugins update": "fetches a plugin",
    "uninstall": "removes the program",
    "update": "installs the program",
}
"""Commands that a test of their own runs, and why not this one."""
RUN = """
import contextlib, io, json, sys, traceback
from hermes_agent.app.main import main

for line in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(line)
        except SystemExit as end:
            status = end.code or 0
        except BaseException:
            status = traceback.format_exc()
    print(json.dumps([line, status, out.getvalue() + err.getvalue()]))
"""


def test_documented_commands_end_with_a_status_and_say_something_in_a_home_of_their_own(tmp_path: Path) -> None:
    lines = [line for command in COMMANDS for line in meant(command.text) if not refusal(line)]
    lines = [line for line in lines if not any(_begins(line, name) for name in ELSEWHERE)]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "HERMES_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input=json.dumps(lines),
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ended = [json.loads(line) for line in done.stdout.splitlines()]
    assert [
        (line, status, said) for line, status, said in ended if status not in (0, 1, 2, 78) or not said.strip()
    ] == []
    assert len(ended) == len(lines) > 60


def _begins(line: list[str], name: str) -> bool:
    words = name.split()
    return line[: len(words)] == words if words else not line or line[0].startswith("-")


def test_the_recording_of_the_readme_has_the_questions_of_its_script_with_an_answer_each() -> None:
    script = runpy.run_path(str(ROOT / "packaging" / "record_readme.py"))
    found = script["BLOCK"].findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(found) == 1
    block = found[0][1]
    assert block.startswith("```console\n$ ") and block.endswith("\n```\n") and max(map(len, block.splitlines())) <= 120

    commands = [f"$ hermes -z {script['quoted'](question)}" for question in script["QUESTIONS"]]
    assert [line for line in block.splitlines() if line.startswith("$ ")] == commands
    answers = [part.strip() for part in re.split(r"^\$ .*$", block, flags=re.MULTILINE)[1:]]
    assert all(answers)
