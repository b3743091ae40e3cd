"""Every command of the command line: examples, JSON of lists, and words that are nearly right."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_agent.app.cli.completion import man_pages
from hermes_agent.app.cli.examples import EXAMPLES, examples_of
from hermes_agent.app.command_line import build_parser

WITHOUT_EXAMPLE: dict[str, str] = {}
"""Commands with arguments that need no example, with the reason."""
LISTS = frozenset(
    {"list", "ls", "status", "search", "runs", "audit", "check", "doctor", "insights", "info", "restore-points"}
    | {"explain", "logs", "show", "inspect"}
)
"""Words of commands that list or report something."""
WORDS = {
    "bundles show": ["nothing"], "proposals show": ["nothing"],
    "cron runs": ["nothing"], "model info": ["nothing"], "plugins info": ["calculator"],
    "plugins explain": ["calculator"],
    "plugins check": ["."], "sessions search": ["word"], "sessions show": ["nothing"], "skills search": ["word"],
    "skills inspect": ["nothing"], "skills show": ["nothing"], "tools explain": ["terminal"],
    "tools info": ["terminal"],
}  # fmt: skip
"""Arguments of lists that need some."""
ONLINE = frozenset({"skills search", "skills inspect", "skills audit", "model list", "model info"})
"""Lists that ask a server."""
FAILS_EMPTY = frozenset(
    {"proposals show", "bundles show"}
    | {
        "import show",
        "sessions show",
        "skills show",
        "plugins info",
        "plugins search",
        "plugins check",
        "cron runs",
        "auth status",
    }
)
"""Reports on something that an empty home does not have; they end with a sentence instead."""


def commands(parser: argparse.ArgumentParser, path: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield each command that runs, with its parser."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    yield path, parser
    for action in below:
        for name, child in action.choices.items():
            yield from commands(child, f"{path} {name}".strip())


def options(parser: argparse.ArgumentParser) -> set[str]:
    return {option for action in parser._actions for option in action.option_strings}


def test_each_command_with_arguments_has_an_example() -> None:
    lacking = []
    for path, parser in commands(build_parser()):
        is_plain = all(isinstance(a, argparse._HelpAction | argparse._SubParsersAction) for a in parser._actions)
        if not is_plain and "hermes" not in (parser.epilog or "") and not examples_of(f"hermes {path}".strip()):
            lacking.append(path)
    assert lacking == list(WITHOUT_EXAMPLE)


@pytest.mark.parametrize("path", EXAMPLES)
def test_each_example_is_a_command_line_that_parses(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    for example in EXAMPLES[path]:
        words = shlex.split(example.rpartition("|")[2].strip())
        assert words[0] == "hermes"
        if words[1:2] == ["-p"]:  # the first thing that is read, before the parser
            words = [words[0], *words[3:]]
        args = build_parser().parse_args(words[1:])
        used = " ".join(words[1:])
        assert used.startswith(path) and callable(args.run)


def test_help_and_man_pages_have_the_examples() -> None:
    parser = build_parser()
    found = dict(commands(parser))
    assert "\nexamples:\n  hermes cron list\n" in found["cron list"].format_help()
    assert found["mcp ls"].format_help().endswith("examples:\n  hermes mcp list --json\n")
    page = man_pages(parser)["hermes-cron"]
    assert ".SH EXAMPLES" in page and "hermes cron runs a1b2c3 \\-\\-limit 5" in page


def test_each_list_has_json() -> None:
    lists = [(path, parser) for path, parser in commands(build_parser()) if path.rpartition(" ")[2] in LISTS]
    assert [path for path, parser in lists if "--json" not in options(parser)] == []
    assert len(lists) > 30


RUN = """
import contextlib, io, json, sys
from hermes_agent.app.main import main
found = []
for line in json.load(sys.stdin):
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            status = main(line)
        except SystemExit as exc:
            status = exc.code
    found.append([line, status, out.getvalue(), errors.getvalue()])
print(json.dumps(found))
"""


def test_the_json_of_each_list_is_valid_in_a_fresh_home(tmp_path: Path) -> None:
    lines = []
    for path, parser in commands(build_parser()):
        if path.rpartition(" ")[2] in LISTS and path not in ONLINE and "--json" in options(parser):
            offline = ["--offline"] if "--offline" in options(parser) else []
            lines.append([*path.split(), *WORDS.get(path, []), *offline, "--json"])
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "HERMES_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input=json.dumps(lines), env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    wrong = {}
    for line, status, out, errors in json.loads(done.stdout):
        path = " ".join(word for word in line if not word.startswith("-"))
        try:
            for each in [out] if line[0] != "logs" else out.splitlines():  # one object a line
                json.loads(each)
        except ValueError:
            is_of_nothing = "show" in line or any(path.startswith(name) for name in FAILS_EMPTY)
            if not (is_of_nothing and status and errors.startswith("hermes: ")):
                wrong[path] = (status, out[:200], errors[:900])
    assert wrong == {}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("sessions lst", "there is no command 'lst' (did you mean `list`?)"),
        ("sessions xyzzy", "(there are: list, show,"),
        ("sessions list --jsn", "hermes sessions list: error: there is no option --jsn (did you mean `--json`?)"),
        ("sessions list --limt=3", "there is no option --limt (did you mean `--limit`?)"),
        ("logs --level warnin", "argument --level: there is no value 'warnin' (did you mean `warning`?)"),
        ("config path here", "hermes config path: error: too many arguments: here"),
        ("--modle=x", "hermes: error: there is no option --modle (did you mean `--model`?)"),
    ],
)
def test_a_word_that_is_nearly_right_is_named(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args(line.split())
    errors = capsys.readouterr().err
    assert ended.value.code == 2
    assert said in errors
    assert errors.endswith(" --help` shows more.\n")
