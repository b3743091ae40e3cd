"""`hermes doctor`: everything that an answer needs, looked at, with what to do about it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from worlds import PROMPTS, make_home, run, script

PLUGINS = Path(__file__).parents[1] / "plugins" / "examples"
SCRIPT = script(PROMPTS[0])


def findings(home: Path, *options: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    """Return the exit status, and the findings by subject."""
    done = run(home, "doctor", "--json", *options)
    by_subject: dict[str, list[dict[str, Any]]] = {}
    for line in json.loads(done.stdout):
        by_subject.setdefault(line["subject"], []).append(line)
    return done.returncode, by_subject


def levels(found: dict[str, list[dict[str, Any]]]) -> dict[str, set[str]]:
    return {subject: {line["level"] for line in lines} for subject, lines in found.items()}


def test_where_all_is_well_every_line_says_so_and_the_model_was_asked(tmp_path: Path, scripted) -> None:
    with scripted(SCRIPT) as model:
        home = make_home(tmp_path, model, sandbox="auto" if shutil.which("bwrap") else "off")
        status, found = findings(home)
        assert (status, "wrong" in set().union(*levels(found).values())) == (0, False), found
        assert list(found) == ["config", "plugins", "state", "secrets", "terminal", "model", "daemon"]
        assert found["model"][0]["text"] == "custom does not list scripted-model"
        assert run(home, "config", "set", "model.default", "gpt-4").returncode == 0

        said = run(home, "doctor").stdout
    assert re.search(r"^✓ model +.*answers\)$", said, re.MULTILINE)
    assert re.search(r"^○ daemon +does not run — `hermes gateway run` starts it\.$", said, re.MULTILINE)


def test_a_server_that_is_gone_is_found_and_offline_it_is_not_asked(tmp_path: Path, scripted) -> None:
    with scripted(SCRIPT) as model:
        home = make_home(tmp_path, model)
    status, found = findings(home)
    assert (status, levels(found)["model"]) == (1, {"wrong"})
    status, found = findings(home, "--offline")
    assert (status, levels(found)["model"]) == (0, {"ok"})


def test_a_broken_config_a_damaged_store_and_a_broken_plugin_are_all_named(tmp_path: Path, scripted) -> None:
    with scripted(SCRIPT) as model:
        home = make_home(tmp_path, model)
        with (home / "config.yaml").open("a") as file:
            file.write("\nserver:\n  prot: 1\n")
        (home / "state.db").write_bytes(b"no database" * 1000)
        folder = home / "plugins" / "empty"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("")
        status, found = findings(home)
    assert status == 1
    assert {subject: "wrong" in them for subject, them in levels(found).items()} == {
        "config": True,
        "plugins": True,
        "state": True,
    }
    assert "server.prot" in found["config"][0]["text"]
    assert any("empty" in line["text"] and "plugin.yaml" in line["text"] for line in found["plugins"])


def test_without_a_model_the_way_to_one_is_short(tmp_path: Path) -> None:
    home = make_home(tmp_path, None)
    line = findings(home)[1]["model"][0]
    assert (line["level"], line["text"]) == ("wrong", "There is no model.")
    assert "\n" not in line["remedy"]


@pytest.mark.parametrize(
    ("broken", "expected"), [("", "ok"), ("    def doctor_checks(self):\n        1 / 0\n", "wrong")]
)
def test_a_terminal_backend_of_a_plugin_is_asked_for_its_own_checks(
    tmp_path: Path, scripted, broken: str, expected: str
) -> None:
    with scripted(SCRIPT) as model:
        home = make_home(tmp_path, model)
        folder = home / "plugins" / "terminal_env"
        shutil.copytree(PLUGINS / "terminal_env", folder)
        source = (folder / "__init__.py").read_text()
        (folder / "__init__.py").write_text(
            source.replace("    is_remote = False\n", f"    is_remote = False\n{broken}")
        )
        for key, value in (("terminal.backend", "example-elsewhere"), ("plugins.enabled", "[example-terminal-env]")):
            assert run(home, "config", "set", key, value).returncode == 0
        status, found = findings(home)
    lines = found["terminal"]
    assert {line["level"] for line in lines[:-1]} == {expected}, lines
    assert status == (0 if expected == "ok" else 1)
    assert "commands run (example-elsewhere" in lines[-1]["text"]
