"""Code that nobody can read: it runs unasked where it reaches no network and what it changes can be undone."""

from __future__ import annotations

import shutil
import subprocess

import pytest

pytestmark = pytest.mark.attack("dangerous commands", at="bubblewrap")

SETTINGS = "terminal: {{sandbox: bwrap, network: {network}}}\ncheckpoints: {{enabled: {enabled}}}\n"
UNKNOWN = "perl -e 'eval $ARGV[0]' 'unlink \"kept\"'"


@pytest.fixture
def workplace_with(place_with):
    """Makes a workplace whose person says no, with these settings."""

    def make(network: str = "off", enabled: str = "true"):
        made = place_with(SETTINGS.format(network=network, enabled=enabled))
        sandbox = made.registry.get("terminal").handler.loaded.shells.backend.sandbox
        if not sandbox.works or not shutil.which("git"):
            pytest.skip(f"no sandbox, or no git: {sandbox.problem}")
        made.person.answer = "deny"
        (made.cwd / "kept").write_text("x")
        return made

    return make


def test_it_runs_where_the_network_is_off_and_a_checkpoint_has_all_files(workplace_with):
    place = workplace_with()
    assert place.call("terminal", command=UNKNOWN)["exit_code"] == 0
    assert place.person.asked == [] and not (place.cwd / "kept").exists()
    checkpoint, *_ = place.registry.get("terminal").handler.loaded.context.checkpoints.all()
    assert checkpoint.folder == str(place.cwd)


@pytest.mark.parametrize("network", ["ask", "hosts", "on"])
def test_it_asks_where_there_is_a_network(workplace_with, network):
    place = workplace_with(network=network)
    assert place.outcome("terminal", {"command": UNKNOWN}).status == "blocked"
    (asked,) = place.person.asked
    assert "code that is not analysed" in asked.summary and asked.answers == ("once", "deny")


def test_it_asks_without_checkpoints(workplace_with):
    place = workplace_with(enabled="false")
    assert place.outcome("terminal", {"command": UNKNOWN}).status == "blocked"
    assert (place.cwd / "kept").exists()


@pytest.mark.parametrize("name", [".env", "node_modules/x/index.js", "ignored.txt", ".git"])
def test_it_asks_where_a_file_is_in_no_checkpoint(workplace_with, name):
    place = workplace_with()
    (place.cwd / ".gitignore").write_text("ignored.txt\n")
    if name == ".git":
        subprocess.run(["git", "init", "-q"], cwd=place.cwd, check=True)
    else:
        (place.cwd / name).parent.mkdir(parents=True, exist_ok=True)
        (place.cwd / name).write_text("x")
    assert place.outcome("terminal", {"command": UNKNOWN}).status == "blocked"
    assert len(place.person.asked) == 1


@pytest.mark.parametrize("command", ["rm -r x", "perl -e 'eval $ARGV[0]' y; rm -r x", "echo $(("])
def test_what_is_dangerous_or_cannot_be_analysed_asks_all_the_same(workplace_with, command):
    place = workplace_with()
    assert place.outcome("terminal", {"command": command}).status == "blocked"
