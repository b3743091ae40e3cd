"""Updates of plugins that the daemon looks up in the background (contract of 0.23 §11.1)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from compat.guides import plugin
from hermes_agent.app.main import main
from hermes_agent.app.plugin_updates import last_check, look_for_updates
from hermes_agent.app.plugins.catalog_commands import UpdateReport
from hermes_agent.config.settings import Settings
from hermes_agent.host.maintenance import FIRST_UPDATE_CHECK_S, UpdateWatch

Capture = pytest.CaptureFixture[str]
START = 1.8e9


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    plugin(folder / "plugins" / "dice", "def register(ctx): pass\n", "name: dice\nversion: 1.0.0\n")
    monkeypatch.setenv("HERMES_HOME", str(folder))
    return folder


def found(state: str, installed: str = "1.0.0") -> UpdateReport:
    text = f"update {installed} -> 2.0.0: `hermes plugins update dice`"
    return UpdateReport("dice", state, installed, "2.0.0", text)


def listed(capsys: Capture) -> tuple[str, str]:
    assert main(["plugins", "list", "--json", "--user"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert main(["plugins", "list", "--user"]) == 0
    return row["update"], capsys.readouterr().err


def test_what_was_found_is_listed_until_it_is_installed(home: Path, capsys: Capture) -> None:
    assert listed(capsys) == ("", "")
    look_for_updates(home, lambda: [found("update")])
    assert listed(capsys) == (found("update").text, f"dice: {found('update').text}\n")
    look_for_updates(home, lambda: [found("unknown")])  # no network: what is known stays
    assert listed(capsys)[0] == found("update").text
    (home / "plugins" / "dice" / "plugin.yaml").write_text("name: dice\nversion: 2.0.0\n")
    assert listed(capsys) == ("", "")
    look_for_updates(home, lambda: [found("current")])
    assert json.loads((home / "cache" / "plugin_updates.json").read_text())["updates"] == {}


def test_the_doctor_names_what_was_found(home: Path, capsys: Capture) -> None:
    look_for_updates(home, lambda: [found("update")])
    main(["doctor", "--offline"])
    assert "hermes plugins update dice" in capsys.readouterr().out


def test_a_check_that_fails_is_logged_and_counts_as_one(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> Any:
        raise OSError("no network")

    look_for_updates(home, fail)
    assert "updates of plugins could not be looked up" in caplog.text
    assert last_check(home) > 0


async def looks(hours: float, last: float, until: float) -> list[float]:
    """Return when a daemon that starts at `START` looks, until a time; its sleep moves the clock."""
    now, at = START, [last]
    done = asyncio.Event()

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        if now > until:
            done.set()
            await asyncio.Event().wait()

    async def run(look: Any) -> None:
        look()

    settings = Settings({"plugins": {"auto_update_check_hours": hours}})
    watch = UpdateWatch(lambda: at.append(now), lambda: at[-1], lambda: settings, run, sleep=sleep, clock=lambda: now)
    await watch.start()
    await done.wait()
    await watch.drain(0)
    return at[1:]


async def test_the_first_look_comes_after_the_start_and_the_next_after_the_hours_of_the_setting() -> None:
    first = START + FIRST_UPDATE_CHECK_S
    assert await looks(24, 0.0, first + 2 * 86400 + 10) == [first, first + 86400, first + 2 * 86400]
    assert await looks(1, START - 100, START + 4000) == [START + 3500]  # a restart looks no more often
    assert await looks(0, 0.0, START + 10 * 86400) == []
