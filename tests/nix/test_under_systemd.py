"""The unit that the module rendered and nix-build built, started by a real systemd, asked over HTTP."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

import pytest

from peers import install
from peers.scripted import KEY, command, write_fixtures
from run_in_systemd import Container, Interpreter, Process
from worlds import Prompt, answer, power_prompt, script

pytestmark = [pytest.mark.nix, pytest.mark.service, pytest.mark.xdist_group("systemd")]

UNIT = "hermes-agent.service"
MODEL_PORT = 8643
"""As in tests/nix/systems.nix, host `calculator`."""

PROBE = """
import json, os, signal, subprocess, sys, time, urllib.request
import openai

QUESTION, KEY, COMMAND, MODEL, MODEL_KEY = sys.argv[1:]
out = {}

def show(name):
    done = subprocess.run(["systemctl", "show", "-P", name, "hermes-agent"], capture_output=True, text=True)
    return done.stdout.strip()

def wait(what, limit=40):
    end = time.monotonic() + limit
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True

started = subprocess.run(["systemctl", "start", "hermes-agent"], capture_output=True, text=True)
out["start"] = started.stderr
out["active"] = show("ActiveState")
out["status"] = subprocess.run(
    ["systemctl", "status", "--no-pager", "-n0", "hermes-agent"], capture_output=True, text=True
).stdout
client = openai.OpenAI(api_key=KEY, base_url="http://127.0.0.1:8642/v1", max_retries=0, timeout=30)

def ask(question=QUESTION, session="probe"):
    done = client.chat.completions.create(
        model="hermes-agent",
        messages=[{"role": "user", "content": question}],
        extra_headers={"X-Hermes-Session-Id": session},
    )
    return done.choices[0].message.content

def last_request():
    asked = urllib.request.Request(f"{MODEL}/__aimock/journal", headers={"Authorization": f"Bearer {MODEL_KEY}"})
    return json.load(urllib.request.urlopen(asked, timeout=10))[-1]["body"]

out["answer"] = ask()
out["commands"] = []
for session in ("first", "second"):
    ask(COMMAND, session)
    out["commands"].append(last_request()["messages"][-1])
pid, restarts = int(show("MainPID")), int(show("NRestarts"))
out["environ"] = open(f"/proc/{pid}/environ").read()
os.kill(pid, signal.SIGSTOP)
out["restarted"] = wait(lambda: int(show("NRestarts")) > restarts and show("ActiveState") == "active")
out["new_pid"] = int(show("MainPID")) != pid
out["answer_after_restart"] = ask()
began = time.monotonic()
subprocess.run(["systemctl", "stop", "hermes-agent"], check=True)
out["stop_s"] = time.monotonic() - began
out["result"] = show("Result")
out["exit"] = [show("ExecMainCode"), show("ExecMainStatus")]
out["home"] = sorted(os.listdir("/var/lib/hermes/.hermes"))
out["home_mode"] = oct(os.stat("/var/lib/hermes").st_mode & 0o777)
print(json.dumps(out))
"""


def test_the_built_unit_answers_is_watched_and_stops_in_order(nix, tmp_path: Path) -> None:
    try:
        install.aimock(), install.node()
    except install.NotInstalled as exc:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"a test server could not be installed: {exc}")
    system = nix.build("systems.calculator.toplevel").path
    prompt = power_prompt()
    key = secrets.token_urlsafe(24)
    command_prompt = Prompt("Greet me from the shell", "terminal", {"command": "echo hello"}, "hello")
    fixtures = write_fixtures(tmp_path / "fixtures.json", script(prompt, command_prompt))
    python = Interpreter.of_this_process()
    probe = f"#!{python.executable}\n{PROBE}"
    container = Container(
        units={path.name: path for path in system.iterdir() if path.suffix in (".service", ".socket")},
        enable=[UNIT, "hermes-exec.socket"],
        # the container has a /tmp of its own, where this checkout may lie
        binds={path: path for path in ("/nix/store", str(tmp_path), str(install.CACHE))} | python.binds,
        files={
            "/etc/hermes-agent/environment": f"OPENAI_API_KEY={KEY}\nAPI_SERVER_KEY={key}\n",
            "/etc/hermes-agent/settings.json": (system / "etc/hermes-agent/settings.json").read_text(),
            "/etc/sysusers.d/hermes.conf": (system / "sysusers.conf").read_text(),
            "/etc/tmpfiles.d/hermes.conf": (system / "tmpfiles.conf").read_text()
            + "z /etc/hermes-agent/environment 0600 root root\n",
            "/srv/probe": probe,
        },
        processes=[
            Process("model", command(fixtures, port=MODEL_PORT), {"AIMOCK_API_KEYS": KEY}, port=MODEL_PORT),
        ],
        environment=python.environment,
    )
    words = ["/srv/probe", prompt.question, key, command_prompt.question, f"http://127.0.0.1:{MODEL_PORT}", KEY]
    outcome = container.run(words, timeout_s=550).succeeded()
    seen = json.loads(outcome.stdout)
    assert seen["active"] == "active", seen
    assert seen["answer"] == answer(prompt)
    assert 'Status: "ready' in seen["status"], seen["status"]
    assert "plugin" in seen["status"], seen["status"]
    assert seen["restarted"] and seen["new_pid"]
    assert seen["answer_after_restart"] == answer(prompt)
    assert seen["stop_s"] < 30
    assert (seen["result"], seen["exit"]) == ("success", ["1", "0"])
    # Each in a unit of its own.
    for result in seen["commands"]:
        assert result["role"] == "tool" and "hello" in result["content"], result
    assert KEY not in seen["environ"] and key not in seen["environ"]
    assert {"config.yaml", "state.db"} <= set(seen["home"])
    assert seen["home_mode"] == "0o750"
    entries = outcome.entries(_SYSTEMD_UNIT=UNIT)
    assert entries
    for entry in entries:
        assert KEY not in str(entry.get("MESSAGE")) and key not in str(entry.get("MESSAGE"))
    assert [e for e in outcome.journal if str(e.get("UNIT", "")).startswith("hermes-exec@")]
    assert [e for e in entries if "HERMES_SESSION" in e], "structured entries name their session"
    assert [e for e in entries if "HERMES_TURN" in e]
