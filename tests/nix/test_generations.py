"""A host lives through generations under a real systemd: settings, documents, a broken file, a rollback."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from pathlib import Path
from typing import Any

import pytest

from peers import install
from peers.scripted import KEY, command, write_fixtures
from run_in_systemd import Container, Interpreter, Process
from worlds import answer, power_prompt, script

pytestmark = [pytest.mark.nix, pytest.mark.service, pytest.mark.xdist_group("systemd")]

HERE = Path(__file__).parent
MODEL_PORT = 8643
FULL = bool(os.environ.get("HERMES_NIX_FULL"))


def newer_release(nix, tree: Path, clone: Path) -> Path:
    """Build the last generation from a release whose tables of sessions are one step further."""
    shutil.copytree(tree, clone, symlinks=True)
    file = clone / "hermes" / "hermes_agent" / "sessions" / "transcript.py"
    step = '        "ALTER TABLE sessions ADD COLUMN of_the_next_release TEXT;",\n'
    text = re.sub(r"(SCHEMA = Schema\(.*?\n)(    \),\n)", rf"\1{step}\2", file.read_text(), count=1, flags=re.DOTALL)
    assert step in text
    file.write_text(text)
    return nix.in_tree(clone).build("generations.less.toplevel").path


@pytest.fixture(scope="module")
def seen(nix, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, Any]:
    try:
        install.aimock(), install.node()
    except install.NotInstalled as exc:
        pytest.skip(f"a test server could not be installed: {exc}")
    place = tmp_path_factory.mktemp("generations")
    systems = {name: nix.build(f"generations.{name}.toplevel").path for name in ("first", "other-model", "less")}
    if FULL:
        systems["newer"] = newer_release(nix, request.getfixturevalue("tree"), place / "clone")
    prompt = power_prompt()
    key = secrets.token_urlsafe(24)
    fixtures = write_fixtures(place / "fixtures.json", script(prompt))
    python = Interpreter.of_this_process()
    system = systems["first"]
    container = Container(
        binds={path: path for path in ("/nix/store", str(place), str(install.CACHE))} | python.binds,
        files={
            "/etc/hermes-agent/environment": f"OPENAI_API_KEY={KEY}\nAPI_SERVER_KEY={key}\n",
            "/etc/hermes-agent/auth.json": '{"seeded": true}',
            "/etc/sysusers.d/hermes.conf": (system / "sysusers.conf").read_text(),
            "/etc/tmpfiles.d/hermes.conf": (system / "tmpfiles.conf").read_text(),
            "/srv/probe": f"#!{python.executable}\n{(HERE / 'generations_probe.py').read_text()}",
        },
        processes=[
            Process("model", command(fixtures, port=MODEL_PORT), {"AIMOCK_API_KEYS": KEY}, port=MODEL_PORT),
        ],
        environment=python.environment,
    )
    paths = json.dumps({name: str(path) for name, path in systems.items()})
    outcome = container.run(["/srv/probe", paths, key, prompt.question], timeout_s=550).succeeded()
    return json.loads(outcome.stdout) | {"expected": answer(prompt)}


def test_both_kinds_of_plugin_documents_and_tokens_are_there_at_the_first_start(seen) -> None:
    assert seen["start"] == "start"
    found = {row["name"]: row["status"] for row in json.loads(seen["plugins"])}
    assert (found["calculator"], found["weather"]) == ("enabled", "enabled")
    assert seen["documents"] == ["first.md", "second.md"]
    assert seen["auth"] == ['{"seeded": true}', "0o600"]
    assert seen["answer"] == seen["expected"]


def test_a_key_of_ones_own_is_set_and_a_declared_one_is_refused_with_its_option(seen) -> None:
    assert seen["own key"] == 0
    status, text = seen["declared key"]
    assert status != 0
    assert "`agent.max_turns` is declared by Nix and cannot be set here" in text
    assert "change services.hermes-agent.settings.agent.max_turns and rebuild" in text


def test_a_change_that_can_be_taken_in_reloads_and_no_change_does_nothing(seen) -> None:
    assert (seen["reload"], seen["reloaded"], seen["same process"]) == ("reload", True, True)
    assert (seen["again"], seen["still the same process"]) == ("nothing", True)


def test_what_is_not_declared_any_more_is_gone_and_what_people_added_stays(seen) -> None:
    assert (seen["less"], seen["another process"]) == ("restart", True)
    has_declared, has_own = seen["config"]
    assert (has_declared, has_own) == (False, True)
    assert seen["documents left"] == ["second.md"], "the one that was changed stays"
    assert seen["auth left"] == '{"refreshed": true}'


def test_a_broken_local_file_stops_the_start_with_its_line_and_is_left_alone(seen) -> None:
    assert seen["broken"] == ["78", True]
    assert any(re.search(r"config\.local\.yaml:\d+: ", line) for line in seen["broken lines"]), seen["broken lines"]


@pytest.mark.skipif(not FULL, reason="run by `make test-nix` (HERMES_NIX_FULL=1)")
def test_a_newer_state_and_a_rollback_lose_nothing(seen) -> None:
    assert (seen["newer"], seen["rollback"]) == ("restart", "restart")
    assert seen["newer answer"] == seen["rollback answer"] == seen["expected"]
    assert all(name in seen["sessions"] for name in ("before", "newer", "after")), seen["sessions"]
