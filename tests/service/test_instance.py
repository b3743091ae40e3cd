"""A second agent on a machine without NixOS: `packaging/systemd/instance`, under a real systemd."""

from __future__ import annotations

import json

from run_in_systemd import Interpreter
from service.conftest import PACKAGING, MakeMachine
from service.test_daemon import KEY, MODEL_KEY, PREPARED, SERVICE

ALICE = "/etc/systemd/system/hermes-agent-alice.service.d/test.conf"
COMMANDS = "/etc/systemd/system/hermes-exec-alice@.service.d/test.conf"
CONFIG = """
model: {provider: custom, base_url: BASE_URL, default: scripted-model}
plugins: {enabled: [probe]}
"""
HELPERS = f"""
PATH=/usr/local/bin:$PATH
ask_at() {{  # port, question: the answer
  curl -s --max-time 60 -H 'Authorization: Bearer {KEY}' -H 'Content-Type: application/json' \\
    http://127.0.0.1:$1/v1/chat/completions -d "$2"
}}
health() {{ curl -s -o /dev/null -w '%{{http_code}}\\n' http://127.0.0.1:$1/health; }}
instance() {{ bash /opt/packaging/instance "$@"; }}
"""
LOOK = 'use terminal {"command": "pwd; ls -A /var/lib; ls -A /run"}'
QUESTION = json.dumps({"model": "hermes-agent", "messages": [{"role": "user", "content": LOOK}]})


def on_machine(machine: MakeMachine, script: str) -> list[str]:
    """Run a script where the files of the packaging are in /opt/packaging; return its lines."""
    python = Interpreter.of_this_process()
    environment = f"[Service]\nEnvironment=API_SERVER_KEY={KEY} OPENAI_API_KEY={MODEL_KEY}\n"
    start = f"[Service]\nExecStart=\nExecStart={python.executable} -m hermes_agent.system.exec_unit\n"
    made = machine(SERVICE, files={"/opt/config.yaml": CONFIG, "/opt/question.json": QUESTION})
    unit = made.files["/etc/systemd/system/hermes-agent.service.d/test.conf"].partition("Environment=API")[2]
    paths = "\n".join(line for line in unit.splitlines()[1:] if line.startswith("Environment"))
    files = {
        **{f"/opt/packaging/{file.name}": file.read_text() for file in PACKAGING.iterdir()},
        ALICE: environment + paths,
        COMMANDS: start + paths,
    }
    made.files.update(files)
    return made.run(PREPARED + HELPERS + script, timeout_s=110).succeeded().stdout.splitlines()


def test_a_second_agent_runs_beside_the_first_with_everything_of_its_own(machine: MakeMachine) -> None:
    lines = on_machine(
        machine,
        """
        instance alice --port 8650 > /run/said || exit 1
        tail -n 1 /run/said
        systemd-analyze verify --man=no /etc/systemd/system/hermes-{agent-alice.service,exec-alice.socket} 2>&1
        hermes-alice config set model.provider custom > /dev/null
        hermes-alice config set model.base_url "$(cat /run/model-url)" > /dev/null
        hermes-alice config set model.default scripted-model > /dev/null
        systemctl start hermes-agent hermes-exec-alice.socket hermes-agent-alice || exit 2
        health 8642; health 8650
        systemctl show -P User hermes-agent-alice
        hermes --instance alice gateway status | grep '^works in'
        stat -c '%a %U' /run/hermes-exec-alice.sock /var/lib/hermes-alice/.hermes{,/config.yaml}
        runuser -u hermes -- ls /var/lib/hermes-alice 2>&1 | grep -o 'Permission denied'
        runuser -u hermes-alice -- ls /var/lib/hermes 2>&1 | grep -o 'Permission denied'
        ask_at 8650 @/opt/question.json
        """,
    )
    *facts, answer = lines
    assert facts == [
        "  systemctl enable --now hermes-exec-alice.socket hermes-agent-alice",
        "200",
        "200",
        "hermes-alice",
        "works in /var/lib/hermes-alice/workspace",
        "600 hermes-alice",
        "750 hermes-alice",
        "600 hermes-alice",
        "Permission denied",
        "Permission denied",
    ]
    answered = json.loads(answer)
    assert "choices" in answered, answer
    said = answered["choices"][0]["message"]["content"]
    # The command sees the workspace of its agent, and no home, socket or state of either.
    output = json.loads(said.partition("The tool said: ")[2])["output"].splitlines()
    assert output[-4:] == ["/var/lib/hermes-alice/workspace", "dpkg", "hermes-alice", "systemd"], said


def test_an_agent_is_added_once_and_removed_without_its_home(machine: MakeMachine) -> None:
    lines = on_machine(
        machine,
        """
        instance exec-alice 2>&1; echo $?
        instance alice --port 80 2>&1; echo $?
        touch /var/lib/hermes-alice && instance alice 2>&1 | tail -n 1
        find /etc /usr/local -name '*alice*' -not -name '*.d'
        rm /var/lib/hermes-alice
        instance alice > /dev/null || exit 1
        hermes-alice config get server.enabled
        instance alice 2>&1; echo $?
        instance alice --remove
        find /etc /usr/local -name '*alice*' -not -name '*.d'
        test -d /var/lib/hermes-alice/.hermes && echo home
        """,
    )
    assert lines == [
        "instance: `exec-alice` is a name of the agent's own users and units",
        "hint: Choose another.",
        "2",
        "instance: --port: `80` is no port that the agent may listen on",
        "hint: A number from 1024 to 65535.",
        "2",
        "instance: nothing was added; the line above says why",
        "false",
        "instance: there is an agent `alice` already: /etc/systemd/system/hermes-agent-alice.service",
        "hint: Change it with: systemctl edit hermes-agent-alice",
        "1",
        "The units of `alice` are gone. Its home is still there: "
        "rm -r /var/lib/hermes-alice; userdel hermes-alice; groupdel hermes-work-alice",
        "home",
    ]
