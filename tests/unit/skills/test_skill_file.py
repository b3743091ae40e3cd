"""The top of a SKILL.md."""

from __future__ import annotations

import itertools
import os
import shutil
import time
from pathlib import Path

import pytest

from attack.racing import exchanging
from hermes_agent.skills.skill_file import (
    SETTLED_NS,
    SkillFolder,
    fits_platform,
    is_plain_path,
    open_inside,
    parse_document,
    required_commands,
    required_variables,
)


def test_fields_and_text_are_told_apart() -> None:
    document = parse_document("---\nname: tea\ndescription: |\n  two\n  lines\n---\n# Tea\n---\nmore\n")

    assert (document.name, document.description, document.body) == ("tea", "two lines", "# Tea\n---\nmore\n")


@pytest.mark.parametrize("text", ["# Tea\nis good", "---\nno end", "", "----\nname: x\n----\n"])
def test_a_text_without_fields_is_all_text(text: str) -> None:
    document = parse_document(text)

    assert (document.body, document.name, dict(document.fields)) == (text, "", {})


def test_without_a_description_the_first_line_tells() -> None:
    assert parse_document("---\nname: tea\n---\n\n## How  to brew\nmore").description == "How to brew"


def test_long_names_are_cut() -> None:
    document = parse_document(f"---\nname: {'n' * 99}\ndescription: {'d' * 2000}\n---\n")

    assert (len(document.name), len(document.description)) == (64, 1024)


@pytest.mark.parametrize("fields", ["a: [", "- a list", "a: &x [*x]", "[" * 20_000])
def test_fields_that_are_no_yaml_are_a_problem_and_no_end(fields: str) -> None:
    document = parse_document(f"---\n{fields}\n---\ntext")

    assert document.problem
    assert document.body == "text"


def test_a_word_may_stand_for_a_list() -> None:
    assert fits_platform(parse_document("---\nplatforms: linux, macos\n---\n"), "darwin")
    assert not fits_platform(parse_document("---\nplatforms: [windows]\n---\n"), "linux")
    assert fits_platform(parse_document("x"), "linux")


def test_variables_are_named_in_three_places() -> None:
    document = parse_document(
        "---\nprerequisites: {env_vars: [A]}\nrequired_environment_variables: [B, {name: C}, {}]\n"
        "setup: {collect_secrets: [{env_var: D}, {env_var: A}]}\n---\n"
    )

    assert required_variables(document) == ["A", "B", "C", "D"]


def test_paths_that_lead_elsewhere_are_known() -> None:
    assert [p for p in ("a", "a/b.md", ".x") if not is_plain_path(p)] == []
    assert [p for p in ("", "/a", "..", "a/../b", "a\\..\\b", "C:\\x", "~/a", "\\\\x", "a\0") if is_plain_path(p)] == []


@pytest.mark.attack("races")
def test_a_file_of_a_skill_that_is_a_link_at_times_is_never_read_elsewhere(tmp_path, attempt):
    skill = tmp_path / "skill"
    (skill / "references").mkdir(parents=True)
    (skill / "references" / "a.md").write_text("the skill's")
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "a.md").write_text("private")
    (skill / "link").symlink_to(tmp_path / "private")
    read = 0
    with exchanging(skill / "references", skill / "link") as exchanged:
        while exchanged[0] < 3_000 or not read:
            try:
                data = open_inside(skill, "references/a.md")
            except OSError:
                data = b""
            read += data == b"the skill's"
            attempt(data != b"private", repr(data))


CLAUDE = (
    "---\nname: pdf\ndescription: Fill in PDF forms\nallowed-tools: Read, Bash(python:*)\nlicense: MIT\n---\n# PDF\n"
)
OPENCLAW = """---
name: weather
description: Show the weather
homepage: https://wttr.example/
metadata:
  { "openclaw": { "os": ["linux"], "requires": { "bins": ["curl", "no-such-bin"], "env": ["KEY"] } } }
---
Ask.
"""


def test_skills_of_claude_and_of_openclaw_load_as_they_are() -> None:
    claude, openclaw = parse_document(CLAUDE), parse_document(OPENCLAW)
    assert (claude.name, claude.description, claude.problem) == ("pdf", "Fill in PDF forms", "")
    assert (openclaw.name, openclaw.description, openclaw.problem) == ("weather", "Show the weather", "")
    assert required_commands(openclaw) == ["curl", "no-such-bin"]
    assert required_variables(openclaw) == ["KEY"]
    assert fits_platform(openclaw, "linux") and not fits_platform(openclaw, "darwin")
    assert fits_platform(claude, "darwin")


def test_a_skill_knows_its_path_without_links(tmp_path: Path) -> None:
    root, other = tmp_path / "skills", tmp_path / "other"
    (root / "plain").mkdir(parents=True)
    (root / "plain" / "SKILL.md").write_text("plain")
    (root / "single.md").write_text("single")
    (other / "far").mkdir(parents=True)
    (other / "far" / "SKILL.md").write_text("far")
    (root / "linked").symlink_to(other)
    (root / "file").mkdir()
    (root / "file" / "SKILL.md").symlink_to(other / "far" / "SKILL.md")
    (tmp_path / "entry").symlink_to(root)

    found = {skill.place: skill.real for skill in SkillFolder([tmp_path / "entry"]).find()}

    assert found == {
        "file": str(other / "far" / "SKILL.md"),
        "linked/far": str(other / "far" / "SKILL.md"),
        "plain": str(root / "plain" / "SKILL.md"),
        "single": str(root / "single.md"),
    }


def test_what_changes_below_a_root_is_seen_by_the_next_search(tmp_path: Path) -> None:
    root, other = tmp_path / "skills", tmp_path / "other"
    for made in (root / "one", root / "group" / "two", other):
        made.mkdir(parents=True)
    (root / "linked").symlink_to(other)
    (root / "one" / "SKILL.md").write_text("one")
    (root / "group" / "two" / "SKILL.md").write_text("two")
    folder = SkillFolder([root], now_ns=lambda: time.time_ns() + 2 * SETTLED_NS)
    times = itertools.count(1)

    def search(*changed: Path) -> dict[str, str]:
        for each in changed:
            os.utime(each, (at := next(times), at))  # two changes may be in one tick of the clock here
        return {skill.place: skill.document.text for skill in folder.find()}

    assert search() == search() == {"one": "one", "group/two": "two"}
    assert [id(skill) for skill in folder.find()] == [id(skill) for skill in folder.find()], "it is read again"
    (root / "group" / "three.md").write_text("three")
    (root / "group" / "two" / "SKILL.md").write_text("changed")
    assert search(root / "group") == {"one": "one", "group/three": "three", "group/two": "changed"}
    shutil.rmtree(root / "one")
    (other / "SKILL.md").write_text("behind a link")
    assert search(root) == {"linked": "behind a link", "group/three": "three", "group/two": "changed"}
    assert not folder.is_empty()


def test_changes_in_one_tick_of_the_clock_are_seen(tmp_path: Path) -> None:
    folder = SkillFolder([tmp_path])
    for number in range(100):
        (tmp_path / f"{number:02}.md").write_text("text")
        assert len(folder.find()) == number + 1


def test_words_of_a_field_are_found_once() -> None:
    document = parse_document("---\nplatforms: linux, macos\n---\n")

    words = document.names("platforms")

    assert words == ("linux", "macos")
    assert document.names("platforms") is words, "each new session asks again"
