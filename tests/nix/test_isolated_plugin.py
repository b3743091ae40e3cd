"""An isolated plugin of a NixOS host in its unit, under a real systemd."""

from __future__ import annotations

import pytest

from nix.booting import container

pytestmark = [pytest.mark.nix, pytest.mark.service, pytest.mark.xdist_group("systemd"), pytest.mark.timeout(600)]
SCRIPT = """
set -u
until_() { for _ in $(seq 300); do eval "$1" && return 0; sleep 0.1; done; echo "never: $1" >&2; exit 1; }
shown() { hermes-service plugins doctor | grep -o 'process of its own: .*'; }
mkdir -p /srv/tables /srv/results
systemctl start hermes-agent || exit 2
shown
systemctl show -P BindReadOnlyPaths -P BindPaths 'hermes-plugin-calculator@*' | grep -o '/srv/[a-z]*:' | sort -u
systemctl kill -s SEGV --kill-who=all 'hermes-plugin-calculator@*.service'
until_ 'shown | grep -q "1 restart"'
hermes-service gateway status | grep -o 'plugin calculator: ended'
stat -c '%a' /var/lib/private/hermes-plugin/calculator
systemctl show -P NRestarts hermes-agent
"""


def test_a_plugin_runs_in_its_unit_and_is_started_again(nix) -> None:
    files = {"/etc/hermes-agent/environment": "OPENAI_API_KEY=sk-of-these-tests-0123456789\n"}
    machine = container(nix, "systems.isolated", enable=["hermes-plugin-calculator.socket"], files=files)
    outcome = machine.run(SCRIPT, timeout_s=240).succeeded()
    first, written, read, ended, mode, restarts = outcome.stdout.splitlines()
    assert first.startswith("process of its own: running, pid ") and "(systemd unit), 0 restart(s)" in first
    assert (written, read) == ("/srv/results:", "/srv/tables:")
    assert (ended, mode, restarts) == ("plugin calculator: ended", "700", "0")
