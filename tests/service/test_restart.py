"""The packaged unit with the real daemon: while it restarts, nobody who comes is refused."""

from __future__ import annotations

import json

from service.conftest import UNIT, MakeMachine

KEY = "key-of-this-test-0123456789"
PORT = 8642
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


SERVICE = f"Environment=API_SERVER_KEY={KEY} API_SERVER_PORT={PORT}"


def test_nobody_is_refused_while_systemctl_or_hermes_gateway_restart_begins_it_anew(machine: MakeMachine) -> None:
    outcome = machine(SERVICE).run(
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
