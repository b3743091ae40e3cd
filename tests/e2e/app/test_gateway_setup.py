"""`hermes gateway setup`, at a terminal of its own."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from pathlib import Path

PLUGIN = """
import os

def setup():
    from hermes_cli.setup import prompt
    with open(os.path.join(os.environ["HERMES_HOME"], "asked"), "w") as out:
        out.write(prompt("Which colour"))

def register(ctx):
    common = dict(adapter_factory=lambda config: None, check_fn=lambda: True)
    ctx.register_platform(
        "mychat", "My chat", required_env=["MYCHAT_TOKEN"], allowed_users_env="MYCHAT_FRIENDS",
        is_connected=lambda config: bool(os.environ.get("MYCHAT_TOKEN")), **common,
    )
    ctx.register_platform("own", "Own", setup_fn=setup, **common)
"""
MANIFEST = """
name: mychat
kind: platform
"""


def home(tmp_path: Path, config: str = "") -> Path:
    folder = tmp_path / "home" / "plugins" / "mychat"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(PLUGIN)
    (folder / "plugin.yaml").write_text(MANIFEST)
    (tmp_path / "home" / "config.yaml").write_text(f"plugins: {{enabled: [mychat]}}\n{config}")
    return tmp_path / "home"


def run(place: Path, *arguments: str, answers: dict[str, str] | None = None) -> tuple[int, str]:
    """Run the command; with `answers`, at a terminal at which each prompt is answered once."""
    environment = {"PATH": os.environ["PATH"], "HERMES_HOME": str(place), "HOME": str(place.parent), "NO_COLOR": "1"}
    command = [str(Path(sys.executable).with_name("hermes")), "gateway", "setup", *arguments]
    if answers is None:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
        )
        return done.returncode, done.stdout + done.stderr
    outer, inner = pty.openpty()
    process = subprocess.Popen(command, env=environment, stdin=inner, stdout=inner, stderr=inner, close_fds=True)
    os.close(inner)
    shown, waiting = "", dict(answers)
    while select.select([outer], [], [], 30)[0]:
        try:
            shown += os.read(outer, 4096).decode()
        except OSError:  # the other side has closed it
            break
        for prompt in [prompt for prompt in waiting if prompt in shown]:
            os.write(outer, f"{waiting.pop(prompt)}\n".encode())
    else:
        process.kill()  # it waits for an answer that nobody has
    os.close(outer)
    return process.wait(60), shown


def test_variables_and_people_are_asked_and_stored_and_the_platform_is_enabled(tmp_path: Path) -> None:
    place = home(tmp_path)

    status, shown = run(
        place, answers={"Platform (number": "mychat", "MYCHAT_TOKEN (": "s3cret", "allow_from (": "ann,bob"}
    )

    assert status == 0, shown
    assert "My chat (mychat): not enabled, it is not configured (it needs MYCHAT_TOKEN)" in shown
    assert (place / ".env").read_text() == "MYCHAT_TOKEN=s3cret\n"
    assert "allow_from:" in (place / "config.yaml").read_text()
    assert "ann" in (place / "config.yaml").read_text()
    assert "Enabled: it is configured." in shown


def test_a_platform_that_was_switched_off_is_switched_on(tmp_path: Path) -> None:
    place = home(tmp_path, "platforms: {mychat: {enabled: false}}\n")

    status, shown = run(place, "mychat", answers={"TOKEN (": "s3cret", "allow_from (": "", "Enable it?": ""})

    assert status == 0, shown
    assert "Enabled: platforms.mychat.enabled is true." in shown


def test_a_plugin_asks_its_own_questions(tmp_path: Path) -> None:
    place = home(tmp_path)

    status, shown = run(place, "own", answers={"Which colour": "blue", "own.allow_from (": ""})

    assert status == 0, shown
    assert (place / "asked").read_text() == "blue"


def test_without_a_terminal_it_lists_and_says_what_to_do(tmp_path: Path) -> None:
    place = home(tmp_path)

    assert run(place)[0] == 0
    status, said = run(place, "mychat")
    assert (status, "Set MYCHAT_TOKEN with `hermes config set" in said) == (1, True)
    status, said = run(place, "nochat")
    assert (status, "there is no platform 'nochat'" in said) == (1, True)
