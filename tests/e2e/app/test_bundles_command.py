"""`hermes bundles` and `/bundles`: bundles of skills, made, shown, used and deleted."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_agent.app.main import main
from hermes_agent.testing import plugin_host

Cli = Callable[..., tuple[int, str]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "home"
    for name in ("one", "Two Words"):
        (place / "skills" / name).mkdir(parents=True)
        (place / "skills" / name / "SKILL.md").write_text(f"Text of {name}.\n")
    monkeypatch.setattr(os, "environ", {**os.environ, "HERMES_HOME": str(place)})
    return place


@pytest.fixture
def cli(home: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    def run(*argv: str) -> tuple[int, str]:
        status = main(["bundles", *argv])
        captured = capsys.readouterr()
        return status, captured.out + captured.err

    return run


def test_a_bundle_is_made_listed_shown_and_deleted(home: Path, cli: Cli) -> None:
    assert cli() == (0, "No bundles. `hermes bundles create NAME --skill SKILL` makes one.\n")
    about = ("-d", "Mornings: both", "--instruction", "Five lines.")
    status, said = cli("create", "Morning Round", "--skill", "one", "--skill", "two-words", *about, "--json")
    file = home / "skill-bundles" / "morning-round.yaml"
    row = {
        "name": "morning-round",
        "description": "Mornings: both",
        "skills": ["one", "two-words"],
        "instruction": "Five lines.",
        "file": str(file),
    }
    assert (status, json.loads(said)) == (0, {**row, "missing": []})
    assert [json.loads(cli(*words)[1]) for words in (["list", "--json"], ["--json"])] == [[row], [row]]
    assert cli("list") == (0, "/morning-round  one, two-words  Mornings: both\n")
    assert "\nFive lines.\n" in cli("show", "morning-round")[1]
    assert cli("delete", "morning-round")[0] == 1 and file.exists()
    assert cli("delete", "morning-round", "--yes") == (0, f"Deleted {file}; the skills stay.\n")
    assert not file.exists() and (home / "skills" / "one" / "SKILL.md").exists()


def test_what_cannot_be_a_bundle_is_refused_and_writes_nothing(home: Path, cli: Cli) -> None:
    assert cli("create", "help", "--skill", "one")[1].startswith("hermes: 'help' cannot be the name of a bundle: /help")
    assert cli("create", "///", "--skill", "one")[1].startswith("hermes: '///' cannot be the name of a bundle")
    assert cli("create", "none") == (
        2,
        "hermes: the bundle none names no skill\n`--skill NAME`, once for each skill.\n",
    )
    assert not (home / "skill-bundles").exists()
    assert cli("create", "round", "--skill", "gone") == (
        0,
        f"Wrote {home}/skill-bundles/round.yaml. `/round TASK` uses it.\n"
        "round: not there yet: gone; `hermes skills list` lists skills\n",
    )
    status, said = cli("create", "round", "--skill", "one")
    assert (status, "exists already" in said, "--force" in said) == (1, True, True)
    assert cli("create", "round", "--skill", "one", "--force")[0] == 0
    assert json.loads(cli("show", "round", "--json")[1])["skills"] == ["one"]
    assert cli("show", "roundd") == (1, "hermes: there is no bundle 'roundd'\nDid you mean round? There are: round.\n")


def test_a_file_that_is_left_out_is_named_with_its_reason(home: Path, cli: Cli) -> None:
    folder = home / "skill-bundles"
    folder.mkdir()
    (folder / "a.yaml").write_text("skills: [one]\n")
    (folder / "b.yaml").write_text("name: a\nskills: [one]\n")
    (folder / "c.yaml").write_text("skills: 3\n")
    (folder / "d.yaml").write_text("skills: [one\n")
    status, said = cli("reload")
    assert status == 1 and "1 bundles, 3 files left out." in said
    assert f"{folder}/b.yaml: left out: {folder}/a.yaml has the name a, too" in said
    assert f"{folder}/c.yaml: left out: `skills` names none" in said and f"{folder}/d.yaml: left out: line" in said


def test_a_bundle_loads_all_of_its_skills_in_a_chat(home: Path, cli: Cli) -> None:
    assert cli("create", "both", "--skill", "one", "--skill", "two-words", "--instruction", "Five lines.")[0] == 0
    bundles = (home / "skill-bundles" / "both.yaml").read_text()
    with plugin_host() as host:
        for name in ("one", "Two Words"):
            (host.host.home / "skills" / name).mkdir(parents=True)
            (host.host.home / "skills" / name / "SKILL.md").write_text(f"Text of {name}.\n")
        assert host.run_command("/bundles").startswith("There are no bundles.")
        (host.host.home / "skill-bundles").mkdir()
        (host.host.home / "skill-bundles" / "both.yaml").write_text(bundles)
        assert host.run_command("/bundles") == "/both: the skills one, two-words (one, two-words)"
        assert host.run_command("/bundles both").startswith(
            "/both: the skills one, two-words\n  one\n  two-words\nFive"
        )
        assert host.run_command("/bundles tea") == "There is no bundle `tea`; there are: both."
        sent = host.host.slash.skills.message("both", "the round", session_id="s", platform="cli") or ""
    assert sent.index("Text of one.") < sent.index("Text of Two Words.") < sent.index("Five lines.")
    assert sent.endswith("\nthe round")
