"""`hermes plugins` alone: a checklist at a terminal, the list elsewhere."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest

HERMES = str(Path(sys.executable).with_name("hermes"))
LIMIT_S = 30
TAB, DOWN = b"\t", b"\x1b[B"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with the plugins `one`, which is enabled, and `two`, which is not; no bundled ones."""
    for name in ("one", "two"):
        folder = tmp_path / "home" / "plugins" / name
        folder.mkdir(parents=True)
        (folder / "plugin.yaml").write_text(f"name: {name}\ndescription: The {name}\n")
        (folder / "__init__.py").write_text("def register(ctx):\n    pass\n")
    (tmp_path / "home" / "config.yaml").write_text("plugins:\n  enabled: [one]\n")
    (tmp_path / "none").mkdir()
    return tmp_path / "home"


def environment(home: Path) -> dict[str, str]:
    bundled = str(home.parent / "none")
    return {"PATH": "/usr/bin:/bin", "HERMES_HOME": str(home), "HERMES_BUNDLED_PLUGINS": bundled, "TERM": "xterm"}


def at_a_terminal(home: Path, keys: bytes) -> str:
    """Press the keys when the checklist is there, and return all that was shown."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [HERMES, "plugins"], stdin=theirs, stdout=theirs, stderr=theirs, env=environment(home), start_new_session=True
    )
    os.close(theirs)
    shown, pressed = b"", False
    try:
        while select.select([ours], [], [], LIMIT_S)[0]:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            shown += piece
            if not pressed and b"Cancel" in shown:
                pressed = True
                os.write(ours, keys)
        assert process.wait(LIMIT_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    return shown.decode(errors="replace")


def states(home: Path) -> dict[str, str]:
    done = subprocess.run(
        [HERMES, "plugins", "list", "--plain"], env=environment(home), capture_output=True, text=True, check=True
    )
    return {line.rsplit(maxsplit=1)[-1]: line[:12].strip() for line in done.stdout.splitlines()}


def test_what_is_ticked_runs_from_the_next_start_on(home: Path) -> None:
    shown = at_a_terminal(home, b" " + DOWN + b" " + TAB + b"\r")

    assert "one is disabled from the next start on" in shown
    assert "two is enabled from the next start on" in shown
    assert states(home) == {"one": "disabled", "two": "enabled"}


def test_who_cancels_changes_nothing(home: Path) -> None:
    before = (home / "config.yaml").read_text()

    assert "Nothing is changed." in at_a_terminal(home, b" " + TAB + TAB + b"\r")
    assert (home / "config.yaml").read_text() == before


def test_without_a_terminal_it_is_the_list(home: Path) -> None:
    listed = [
        subprocess.run([HERMES, *words], env=environment(home), capture_output=True, text=True, check=True).stdout
        for words in (["plugins"], ["plugins", "list"])
    ]
    assert listed[0] == listed[1]
    assert "The one" in listed[0]
