"""The pages about the project name what is there, and the ways to check a change run the same commands."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from architecture.test_docstrings import WORDS as DOCSTRING_WORDS

ROOT = Path(__file__).parents[2]
CODE = ROOT / "hermes" / "hermes_agent"
DOCS = ROOT / "docs"
DECISIONS = sorted(page for page in (DOCS / "decisions").glob("*.md") if page.name != "README.md")
ABOUT_THE_PROJECT = (ROOT / "CONTRIBUTING.md", DOCS / "architecture.md", DOCS / "glossary.md")
FENCE = re.compile(r"^( *)(```+)[^`\n]*\n.*?^\1\2$\n?", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| (.+) \|$", re.MULTILINE)
TICKED = re.compile(r"`([^`\n]+)`")
TOP = ("bench", "docs", "examples", "hermes", "modules", "nix", "packaging", "plugins", "requirements", "tests")
PATH = re.compile(r"(?:[\w.@-]+/)+[\w.@-]*")
UNBROKEN = re.compile(r"(?<=\])\([^)]*\)|`[^`]{80,}`")
"""The target of a link, and code that is long."""
TARGET = re.compile(r"(?<=\])\([^)]*\)")
LONGEST_LINE = 120
GENERATED = ("docs/plugins/adapters.md", "docs/reference/")
"""Pages, and folders of pages, that a program writes."""
NOT_CONVERTED: tuple[str, ...] = ()
"""Pages, and folders of pages, that still have longer lines."""


def here(name: str) -> Path:
    """Return the file or folder that a page means: of the package, or of the repository."""
    return CODE / name if (CODE / name).exists() else ROOT / name


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def named_paths(text: str) -> set[str]:
    """Return the paths of the project that a text names between backticks."""
    packages = {path.name for path in CODE.iterdir() if path.is_dir()}
    ticked = {name.removeprefix("hermes_agent/") for name in TICKED.findall(text) if PATH.fullmatch(name)}
    return {name for name in ticked if name.split("/")[0] in packages | set(TOP)}


def named_symbols(page: Path) -> Iterator[tuple[str, str]]:
    """Return each file that a table of a page names, with the name that the file holds."""
    for row in ROW.findall(prose(page)):
        cells = [TICKED.findall(cell) for cell in re.split(r"(?<!\\)\|", row)]
        for index, cell in enumerate(cells[:-1]):
            if len(cell) == 1 and here(cell[0]).is_file():
                yield from ((cell[0], name) for name in cells[index + 1] if "/" not in name)


@pytest.mark.parametrize("page", [*ABOUT_THE_PROJECT, *DECISIONS], ids=lambda page: page.name)
def test_every_file_that_a_page_about_the_project_names_is_there(page: Path) -> None:
    paths = named_paths(prose(page))
    assert len(paths) > 20 or page in DECISIONS
    assert [name for name in sorted(paths) if not here(name).exists()] == []


def test_every_file_of_an_example_or_an_answer_holds_the_name_beside_it() -> None:
    found = list(named_symbols(ROOT / "CONTRIBUTING.md"))
    assert len(found) > 60
    assert [(file, name) for file, name in found if name not in here(file).read_text(encoding="utf-8")] == []


def test_twenty_questions_of_a_new_reader_have_one_file_and_name_each() -> None:
    text = (
        (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("\n## Where is it?\n")[2].partition("\n## ")[0]
    )
    rows = [[cell.strip() for cell in row.split(" | ")] for row in ROW.findall(text)]
    questions = [row for row in rows if row[0].endswith("?")]
    assert len({question for question, *_ in questions}) >= 20
    wrong = [row for row in questions if len(row) != 3 or not here(row[1].strip("`")).is_file()]
    assert wrong == []


def test_every_module_of_the_glossary_holds_what_stands_beside_it() -> None:
    parts = re.findall(r"`([\w/]+\.py)`: ((?:`\w+`(?:, )?)+)", (DOCS / "glossary.md").read_text(encoding="utf-8"))
    found = [(file, name) for file, names in parts for name in TICKED.findall(names)]
    assert len(found) > 50
    wrong = [row for row in found if not re.search(rf"^(?:class |(?:async )?def )?{row[1]}\b", _text(row[0]), re.M)]
    assert wrong == []


def _text(module: str) -> str:
    return (CODE / module).read_text(encoding="utf-8")


def test_the_pictures_of_the_architecture_are_drawn_from_the_code_as_it_is() -> None:
    code = "import pictures, sys; t = pictures.PAGE.read_text('utf-8'); sys.exit(pictures.drawn(t) != t)"
    done = subprocess.run([sys.executable, "-c", code], cwd=DOCS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"`make docs` draws them again. {done.stderr}"


def test_each_decision_has_a_number_of_its_own_and_a_line_in_the_index() -> None:
    numbers = [path.name.partition("-")[0] for path in DECISIONS]
    assert numbers == [f"{number:04}" for number in range(1, len(DECISIONS) + 1)]
    for path, number in zip(DECISIONS, numbers, strict=True):
        assert path.read_text(encoding="utf-8").startswith(f"# {number}: "), path.name
    index = (DOCS / "decisions" / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| \[(\d+)\]\((.+?)\) \| .+ \|$", index, re.MULTILINE) == [
        (number, path.name) for path, number in zip(DECISIONS, numbers, strict=True)
    ]


def markdown() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z", "*.md"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.split("\0") if name and not name.startswith("tests/data/")]


def long_lines(page: Path) -> list[str]:
    """Return the lines of prose that are too long; a table, a fenced block and what cannot be broken may be longer."""
    lines = [line for line in prose(page).splitlines() if line[:1] != "|"]
    return [line for line in lines if len(UNBROKEN.sub("", line)) > LONGEST_LINE]


def test_no_line_of_a_page_is_too_long() -> None:
    long = {str(page.relative_to(ROOT)): lines for page in markdown() if page.exists() and (lines := long_lines(page))}
    assert [name for name in long if not name.startswith((*GENERATED, *NOT_CONVERTED))] == []


WORDS = (*(word for word in DOCSTRING_WORDS if word not in ("beside", "talk", "whose")), r"talk(?!s? to\b)")
"""Words of docstrings that no page has either; in prose, *beside it*, *whose* and *talk to* are plain English."""
WORDED_BY_UPSTREAM = ("docs/plugins/contract.md",)


def test_pages_have_the_terms_of_the_glossary() -> None:
    words = re.compile(r"\b(" + "|".join(WORDS) + r")\b", re.IGNORECASE)
    pages = [str(page.relative_to(ROOT)) for page in markdown() if page.is_file() and not page.is_symlink()]
    assert len(pages) > 100
    found = {
        name: {word.lower() for word in words.findall(TARGET.sub("", TICKED.sub("", prose(ROOT / name))))}
        for name in pages
        if not name.startswith((*WORDED_BY_UPSTREAM, "hermes/hermes_agent/skills/"))
    }
    assert {name: uses for name, uses in found.items() if uses} == {}


def recipe(target: str) -> list[str]:
    """Return the commands of a target of the Makefile."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", text, re.MULTILINE)
    assert found is not None, target
    return [line.strip().removeprefix("@").replace("$(BIN)", ".venv/bin") for line in found[1].splitlines()]


def test_the_hooks_of_a_commit_run_what_make_check_runs_and_fetch_nothing() -> None:
    repositories = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    assert [repository["repo"] for repository in repositories] == ["local"]
    hooks = repositories[0]["hooks"]
    assert {hook["language"] for hook in hooks} == {"system"}
    assert [hook["entry"] for hook in hooks] == [line.removesuffix(" .") for line in recipe("check")]


def test_public_integration_runs_the_script_of_the_project_on_debian_12() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]
    for job in jobs.values():
        assert job["container"] == "debian:12"
        assert [step["uses"] for step in job["steps"] if "uses" in step] == ["actions/checkout@v4"]
    assert any(".ci/run" in step.get("run", "").split() for job in jobs.values() for step in job["steps"])
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.findall(r"^make (\S+)", script, re.MULTILINE) == ["run", "test", "test-light", "check"]


def test_make_help_names_every_target() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: ((?:.*\\\n)*.*)", text, re.MULTILINE)
    assert phony is not None
    targets = set(phony[1].replace("\\\n", " ").split()) - {"help"}
    assert targets == set(re.findall(r"^#   make (\S+)", text, re.MULTILINE))


def dry_run(*arguments: str) -> str:
    """Return the commands that make would run for every suite."""
    done = subprocess.run(["make", "-n", "test-all", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def test_every_suite_is_run_by_one_target_or_said_to_be_skipped() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = re.search(r"^# Test more than.*?\n(.+?)^SHELL", text, re.MULTILINE | re.DOTALL)
    taken = re.search(r"^test-all: ((?:.*\\\n)*.*)", text, re.MULTILINE)
    assert named is not None and taken is not None
    suites = set(re.findall(r"^#   make (\S+)", named[1], re.MULTILINE)) - {"test-light", "test-all", "chaos-turns"}
    assert suites - set(re.findall(r"[a-z-]+", taken[1])) == set()
    assert "$(SITE)" in taken[1], "tests/architecture/test_site.py skips without it"

    commands = dry_run("NIXOS=", "DIR=")
    assert "test-nixos-modules: skipped" in commands and "upstream-tests: skipped" in commands
    assert "test_nixos_modules.py" not in commands and "compat.peer_suite" not in commands
    commands = dry_run("NIXOS=/n", "NIXPKGS_LIB=/l", "DIR=/d")
    assert 'NIXOS="/n"' in commands and 'compat.peer_suite "/d"' in commands
    assert "test-nixos-modules: skipped" not in commands and "upstream-tests: skipped" not in commands


def test_the_shell_of_nix_brings_what_a_machine_without_nix_has_to_bring() -> None:
    shell = re.search(r"mkShell \{\s+packages = \[(.+?)\]", (ROOT / "flake.nix").read_text(encoding="utf-8"), re.DOTALL)
    assert shell is not None and shell[1].split() == ["pkgs.git", "pkgs.gnumake", "pkgs.python3"]
    tools = {Path(line.split()[0]).name for line in recipe("check")} | {"pre-commit", "pytest"}
    packages = (ROOT / "requirements" / "dev.in").read_text(encoding="utf-8").split()
    assert {"import-linter" if tool == "lint-imports" else tool for tool in tools} <= set(packages)


def test_the_form_of_files_that_editors_are_told_is_the_one_that_is_checked() -> None:
    form = (ROOT / ".editorconfig").read_text(encoding="utf-8")
    assert f"max_line_length = {LONGEST_LINE}" in form
    assert f"line-length = {LONGEST_LINE}" in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
