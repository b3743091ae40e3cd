"""Which directory a host works in."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_agent import config
from hermes_agent.core.errors import UserError
from hermes_agent.host import Host, settings
from hermes_agent.service.daemon_state import SystemdUnit


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of the agent in the user's; the process stands in a project."""
    for folder in (tmp_path / "user" / ".hermes", tmp_path / "project"):
        folder.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.delenv("TERMINAL_CWD", raising=False)
    monkeypatch.delenv("INVOCATION_ID", raising=False)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "user" / ".hermes"


def directory(home: Path, *, of_daemon: bool = True) -> Path:
    return settings.working_directory(config.load(home), home, of_daemon=of_daemon)


def test_a_daemon_has_one_of_its_own_and_a_terminal_works_where_it_was_started(home: Path, tmp_path: Path) -> None:
    assert directory(home) == home / "workspace"
    assert directory(home, of_daemon=False) == tmp_path / "project"


def test_what_is_named_wins_for_both(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERMINAL_CWD", str(tmp_path))
    assert directory(home) == directory(home, of_daemon=False) == tmp_path
    (home / "config.yaml").write_text("terminal: {cwd: ~/named}\n")
    assert directory(home) == directory(home, of_daemon=False) == home.parent / "named"


def test_a_service_works_in_the_directory_of_its_unit_unless_that_is_a_home(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def directory_of_service() -> Path:
        return settings.working_directory(
            config.load(home), home, of_daemon=True, find_unit=lambda: SystemdUnit("hermes.service", "user")
        )

    assert directory_of_service() == tmp_path / "project"
    for none in (home.parent, home, tmp_path, Path("/")):  # systemd's defaults are the home and the root
        monkeypatch.chdir(none)
        assert directory_of_service() == home / "workspace"


async def test_it_is_made_by_the_daemon_alone(home: Path) -> None:
    await Host.build(home).aclose()
    assert not (home / "workspace").exists()
    host = Host.build(home, is_daemon=True)
    await host.aclose()
    assert host.working_directory.is_dir() and host.working_directory.stat().st_mode & 0o777 == 0o700


def test_each_profile_has_its_own(home: Path) -> None:
    profile = home / "profiles" / "work"
    profile.mkdir(parents=True)
    assert directory(profile) == profile / "workspace"


def test_what_is_no_directory_is_told(home: Path) -> None:
    (home / "workspace").write_text("")
    with pytest.raises(UserError, match="cannot create the working directory"):
        Host.build(home, is_daemon=True)


async def test_a_link_in_its_place_leads_to_the_directory_of_the_work(home: Path, tmp_path: Path) -> None:
    (home / "workspace").symlink_to(tmp_path / "project")
    host = Host.build(home, is_daemon=True)
    await host.aclose()
    assert host.working_directory == tmp_path / "project"
