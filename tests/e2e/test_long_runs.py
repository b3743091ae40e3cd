"""A daemon that runs for a week: its clock is moved by libfaketime, the clock of timers is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from peers.oauth import oauth_server
from test_http import ask, daemon
from worlds import run

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))


@pytest.mark.skipif(not LIBRARIES, reason="libfaketime is not installed (Debian: faketime)")
def test_a_daemon_keeps_its_login_for_a_week(tmp_path: Path) -> None:
    home, clock = tmp_path / "home", tmp_path / "clock"
    home.mkdir()
    clock.write_text("+0d\n")
    moved = {
        "LD_PRELOAD": str(LIBRARIES[0]),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
    with oauth_server() as server:
        box = {"base_url": f"{server.url}/v1", "oauth": server.settings}
        model = {"provider": "box", "default": "m-1"}
        config = {"model": model, "providers": {"box": box}, "terminal": {"sandbox": "off"}}
        (home / "config.yaml").write_text(json.dumps(config))
        assert run(home, "auth", "login", "box", "--device").returncode == 0
        with daemon(home, **moved) as (client, _):
            for day in range(8):
                clock.write_text(f"+{day}d\n")
                assert ask(client, "Are you there?") == "ok"
                assert ask(client, "And again?") == "ok"
                # a token lives for an hour: each day brings one renewal, and the refresh token works once
                assert server.renewals == day
    assert "sign in again" not in run(home, "auth", "list").stdout
