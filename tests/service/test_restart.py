"""The packaged unit with the real daemon: while it restarts, nobody who comes is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hermes_agent
from run_in_systemd import Container, Interpreter
from service.conftest import PACKAGING, UNIT

KEY = "key-of-this-test-0123456789"
PORT = 8642
PEERS = Path(__file__).resolve().parent.parent / "peers"
SETUP = f"""
systemd-sysusers; systemd-tmpfiles --create /etc/tmpfiles.d/hermes-agent.conf
systemctl enable -q --now hermes-agent || exit 1
mkfifo /run/over
python=$(head -2 /opt/hermes-agent/bin/hermes | sed -n 's/^exec \\([^ ]*\\) .*/\\1/p')
$python /opt/peers/knocking.py {KEY} /run/hermes-agent/control.sock {PORT} < /run/over > /run/knocked & knocker=$!
exec 9> /run/over
for _ in $(seq 300); do grep -q knocking /run/knocked && break; sleep 0.1; done
"""
END = """
exec 9>&-
wait $knocker
tail -1 /run/knocked
"""


@pytest.fixture
def machine() -> Container:
    sources = Path(hermes_agent.__file__).resolve().parent.parent
    python = Interpreter.of_this_process(sources)
    plugins = (sources / "hermes_agent" / "_bundled").resolve()
    return Container(
        units={UNIT: PACKAGING / UNIT},
        files={
            "/opt/hermes-agent/bin/hermes": f'#!/bin/sh\nexec {python.executable} -m hermes_agent "$@"\n',
            f"/etc/systemd/system/{UNIT}.d/test.conf": (
                f"[Service]\nEnvironment=API_SERVER_KEY={KEY} API_SERVER_PORT={PORT}\n{python.unit_environment()}\n"
            ),
            "/etc/sysusers.d/hermes-agent.conf": (PACKAGING / "hermes-agent.sysusers.conf").read_text(),
            "/etc/tmpfiles.d/hermes-agent.conf": (PACKAGING / "hermes-agent.tmpfiles.conf").read_text(),
        },
        binds={**python.binds, str(plugins): "/opt/sources/plugins", str(PEERS): "/opt/peers"},
        environment={
            "HERMES_HOME": "/var/lib/hermes/.hermes",
            "PATH": "/opt/hermes-agent/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            **python.environment,
        },
    )


def test_nobody_is_refused_while_systemctl_or_hermes_gateway_restart_begins_it_anew(machine: Container) -> None:
    outcome = machine.run(
        SETUP
        + """
        pid() { systemctl show -P MainPID hermes-agent; }
        first=$(pid)
        systemctl restart hermes-agent || exit 2
        second=$(pid); [ "$second" != "$first" ] || exit 3
        hermes gateway restart || exit 4
        [ "$(pid)" = "$second" ] || exit 5
        hermes gateway status > /dev/null || exit 6
        """
        + END
        + """
        systemctl stop hermes-agent
        [ -e /run/hermes-agent ] || echo gone
        """,
        timeout_s=240,
    )

    restarted, knocked, left = outcome.succeeded().stdout.splitlines()
    found = json.loads(knocked)
    assert restarted.startswith("restarted (pid ")
    assert set(found["counts"]) == {"control", "http"}, outcome.entries(_SYSTEMD_UNIT=UNIT)[-40:]
    assert found["pids"] == 2
    assert left == "gone"
