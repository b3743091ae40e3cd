"""Hosts that must build: nothing of what a gate refuses is in them, however close it looks.

Their assertions are evaluated at once, and the check of the start is run for all of them in one derivation.
HERMES_NIX_FULL=1 builds each whole.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.nix

HERE = Path(__file__).parent
NAMES = re.findall(r"^  ([a-z-]+) =\s", (HERE / "accepted.nix").read_text().split("\nin\n")[-1], re.MULTILINE)
WARNED = {
    "nothing-but-enabled": "no model is configured, so the daemon refuses requests",
    "section-of-a-plugin": "not ours, kept for plugins: `my_plugin`",
    "entry-of-a-plugin": "not ours, kept for plugins: `plugins.entries.hello.level`",
    "memory-of-a-plugin": "not ours, kept for plugins: `memory.holographic`",
    "time-zone": "not ours, kept for plugins: `timezone`",
    "program-of-the-machine": "mcp_servers.everything.command: /run/current-system/sw/bin/npx is not here",
    "variable-of-a-file": "mcp_servers.wiki.env.TOKEN needs ${WIKI_TOKEN}, which nothing gives",
    "key-in-a-file": "OpenRouter (openrouter.ai) needs OPENROUTER_API_KEY, which nothing gives",
    "key-in-a-login": "OpenRouter (openrouter.ai) needs OPENROUTER_API_KEY, which nothing gives",
    "tolerated-problems": "plugin `odd-schema`: the schema of its tool `odd` is none",
    "hook-of-the-shell": "Shell hooks that do not run",
}
"""What the check says of a host that it lets pass; of any other it says nothing."""


@pytest.fixture(scope="module")
def starts(nix) -> Path:
    """What the check of the start says of each host, from one derivation."""
    return nix.build("acceptedStarts").path


def test_there_are_enough_of_them() -> None:
    assert len(NAMES) >= 40
    assert WARNED.keys() <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_host_that_would_run_passes(name: str, starts: Path, nix) -> None:
    assert nix.evaluate("acceptedMessages")[name]["failed"] == []
    said = (starts / f"{name}.text").read_text()
    assert (starts / f"{name}.status").read_text() == "0\n", said
    if name not in WARNED:
        assert said == ""
    else:
        assert said.startswith("warning: hermes-agent: services.hermes-agent.") and WARNED[name] in said


@pytest.mark.skipif(not os.environ.get("HERMES_NIX_FULL"), reason="HERMES_NIX_FULL is not set: takes minutes")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_it_is_built_whole(name: str, nix) -> None:
    assert (nix.build(f"accepted.{name}").path / "hermes-agent.service").is_file()


def test_a_section_that_is_not_the_agents_is_a_warning_of_the_evaluation(nix) -> None:
    (warning,) = nix.evaluate("acceptedMessages")["section-of-a-plugin"]["warnings"]
    assert warning == "services.hermes-agent.settings: `my_plugin` is no setting of the agent; it is kept for plugins."


def test_a_switch_shows_what_the_checks_let_pass(nix) -> None:
    """The script that NixOS runs at a switch prints it."""
    import subprocess

    script = (nix.build("systems.compiling.toplevel").path / "activate").read_text()
    shown = subprocess.run(["bash", "-eu", "-c", script], capture_output=True, text=True, timeout=60, check=True)
    lines = shown.stderr.splitlines()
    assert lines[0] == "hermes-agent: the checks of the build let this pass:"
    assert "npx is not here; the machine has to have it" in shown.stderr
