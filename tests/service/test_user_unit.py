"""The service of a user, as `hermes setup` installs it, under a real user manager, and at the start of the machine."""

from __future__ import annotations

from service.conftest import MakeMachine

MANAGER = """\
[Service]
Type=notify
User=ann
Environment=XDG_RUNTIME_DIR=/run/user/ann HOME=/home/ann SHELL=/bin/sh
Environment=PATH=/opt/hermes-agent/bin:/usr/sbin:/usr/bin:/sbin:/bin
{environment}
ExecStartPre=+/usr/bin/install -d -m 700 -o ann /run/user/ann /home/ann
ExecStart=/lib/systemd/systemd --user
Delegate=yes
KillMode=mixed
TimeoutStopSec=30
"""
"""The manager that logind starts at boot for a user who lingers; there is no logind in the container."""
PREPARED = """
set -u
systemd-sysusers && systemctl start user-manager || exit 1
as_ann() {
  runuser -u ann -- env -u HERMES_HOME XDG_RUNTIME_DIR=/run/user/ann HOME=/home/ann "$@"
}
until_() { for _ in $(seq 600); do eval "$1" && return 0; sleep 0.1; done; echo "never: $1" >&2; exit 1; }
model-server /run/model-url & until_ '[ -s /run/model-url ]'
set_up() {
  set -- --base-url "$(cat /run/model-url)" --model scripted-model --no-platform --no-question
  as_ann hermes setup "$@" --service user
}
"""


def run(machine: MakeMachine, script: str) -> list[str]:
    """Run a script on a machine with a user `ann` and her manager; return the lines of its output."""
    container = machine()
    environment = "\n".join(f'Environment="{name}={value}"' for name, value in container.environment.items())
    container.units["user-manager.service"] = MANAGER.format(environment=environment.replace("HERMES_HOME=", "UNUSED="))
    container.files["/etc/sysusers.d/ann.conf"] = 'u ann - "Ann" /home/ann /bin/sh\n'
    return container.run(PREPARED + script, timeout_s=200).succeeded().stdout.splitlines()


def test_the_user_service_starts_with_the_manager_of_the_user_and_is_removed_whole(machine: MakeMachine) -> None:
    lines = run(
        machine,
        """
        set_up >/run/setup.log 2>&1 || { cat /run/setup.log; exit 1; }
        as_ann systemctl --user is-active hermes-agent
        as_ann systemctl --user is-enabled hermes-agent
        before=$(as_ann systemctl --user show -P MainPID hermes-agent)
        systemctl restart user-manager || exit 1     # as at the next boot
        until_ 'as_ann systemctl --user is-active -q hermes-agent'
        [ "$before" != "$(as_ann systemctl --user show -P MainPID hermes-agent)" ] && echo another process
        as_ann systemctl --user show -P LimitNOFILESoft -P LimitNOFILE hermes-agent | sort -n
        as_ann hermes gateway status | grep -o 'http: http://127.0.0.1:[0-9]* ok'
        as_ann hermes self check | grep '^✓ unit '
        as_ann hermes setup --remove-service
        ls /home/ann/.config/systemd/user 2>/dev/null
        as_ann systemctl --user is-active hermes-agent
        true
        """,
    )
    path = "/home/ann/.config/systemd/user/hermes-agent.service"
    assert lines[:5] == ["active", "enabled", "another process", "1024", "65536"]
    assert lines[5] == "http: http://127.0.0.1:8642 ok"
    assert lines[6].split() == ["✓", "unit", path]
    assert lines[7] == f"The service is stopped; {path} is removed."
    assert lines[-1] == "inactive"


def test_a_daemon_of_the_user_that_crashes_is_started_again(machine: MakeMachine) -> None:
    lines = run(
        machine,
        """
        set_up >/run/setup.log 2>&1 || { cat /run/setup.log; exit 1; }
        kill -SEGV "$(as_ann systemctl --user show -P MainPID hermes-agent)"
        until_ '[ "$(as_ann systemctl --user show -P NRestarts hermes-agent)" = 1 ]'
        until_ 'as_ann systemctl --user is-active -q hermes-agent'
        as_ann hermes gateway status | grep -o 'http: http://127.0.0.1:[0-9]* ok'
        """,
    )
    assert lines == ["http: http://127.0.0.1:8642 ok"]
