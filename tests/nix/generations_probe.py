"""Run in the container as root: live through generations as NixOS switches to them, and report what was seen."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import openai

SYSTEMS = json.loads(sys.argv[1])
KEY, QUESTION = sys.argv[2:4]
HOME = Path("/var/lib/hermes/.hermes")
UNITS = Path("/etc/systemd/system")
DECLARED = "/etc/hermes-agent/settings.json"
seen = {}


def systemctl(*words, check=True):
    return subprocess.run(["systemctl", *words], capture_output=True, text=True, check=check)


def show(name):
    return systemctl("show", "-P", name, "hermes-agent").stdout.strip()


def switch(name):
    """What switch-to-configuration does with the units of a generation; return what it did to the daemon's."""
    system = Path(SYSTEMS[name])
    new = (system / "hermes-agent.service").read_text()
    there = UNITS / "hermes-agent.service"
    old = there.read_text() if there.exists() else None
    for file in (*system.glob("*.service"), *system.glob("*.socket")):
        shutil.copyfile(file, UNITS / file.name)
    shutil.copyfile(system / "etc/hermes-agent/settings.json", DECLARED)
    systemctl("daemon-reload")
    changed = (
        set() if old is None else {line.partition("=")[0] for line in set(old.splitlines()) ^ set(new.splitlines())}
    )
    if old is None:
        systemctl("start", "hermes-exec.socket")
        done = systemctl("start", "hermes-agent", check=False)
        return "start" if done.returncode == 0 else done.stderr
    if not changed:
        return "nothing"
    action = "reload" if changed == {"X-Reload-Triggers"} else "restart"
    systemctl(action, "hermes-agent")
    return action


def hermes(*words):
    package = show("ExecStart").split("argv[]=")[1].split("/bin/hermes")[0].strip()
    as_hermes = ("setpriv", "--reuid", "hermes", "--regid", "hermes", "--init-groups")
    there = ("env", "-C", "/var/lib/hermes/workspace", f"HERMES_HOME={HOME}", f"HERMES_DECLARED_CONFIG={DECLARED}")
    return subprocess.run(
        [*as_hermes, *there, f"{package}/bin/hermes", *words],
        capture_output=True,
        text=True,
        check=False,
    )


def ask(session):
    client = openai.OpenAI(api_key=KEY, base_url="http://127.0.0.1:8642/v1", max_retries=0, timeout=30)
    done = client.chat.completions.create(
        model="hermes-agent",
        messages=[{"role": "user", "content": QUESTION}],
        extra_headers={"X-Hermes-Session-Id": session},
    )
    return done.choices[0].message.content


def wait_for(what):
    end = time.monotonic() + 30
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def journal():
    return subprocess.run(
        ["journalctl", "-q", "-o", "cat", "-u", "hermes-agent"], capture_output=True, text=True
    ).stdout


seen["start"] = switch("first")
seen["plugins"] = hermes("plugins", "list", "--json").stdout
seen["documents"] = sorted(p.name for p in (HOME.parent / "workspace/notes").iterdir())
seen["auth"] = [(HOME / "auth.json").read_text(), oct((HOME / "auth.json").stat().st_mode & 0o777)]
(HOME / "auth.json").write_text('{"refreshed": true}')
seen["answer"] = ask("before")

seen["own key"] = hermes("config", "set", "display.compact", "true").returncode
refused = hermes("config", "set", "agent.max_turns", "5")
seen["declared key"] = [refused.returncode, refused.stderr]

pid = show("MainPID")
seen["reload"] = switch("other-model")
seen["reloaded"] = wait_for(lambda: "\nreloaded: " in journal())
seen["same process"] = show("MainPID") == pid
seen["again"] = switch("other-model")
seen["still the same process"] = show("MainPID") == pid

(HOME.parent / "workspace/notes/second.md").write_text("Changed by somebody.\n")
seen["less"] = switch("less")
seen["another process"] = show("MainPID") != pid
config = (HOME / "config.yaml").read_text()
seen["config"] = ["max_turns" in config, "compact: true" in config]
seen["documents left"] = sorted(p.name for p in (HOME.parent / "workspace/notes").iterdir())
seen["auth left"] = (HOME / "auth.json").read_text()

local = HOME / "config.local.yaml"
good = local.read_text()
local.write_text(good + "agent: {max_turns: [\n")
systemctl("restart", "hermes-agent", check=False)
wait_for(lambda: show("ActiveState") == "failed")
seen["broken"] = [show("ExecMainStatus"), local.read_text() == good + "agent: {max_turns: [\n"]
seen["broken lines"] = [line for line in journal().splitlines() if "config.local.yaml" in line]
local.write_text(good)
systemctl("reset-failed", "hermes-agent")
systemctl("start", "hermes-agent")

if "newer" in SYSTEMS:
    seen["newer"] = switch("newer")
    seen["newer answer"] = ask("newer")
    seen["rollback"] = switch("less")
    seen["rollback answer"] = ask("after")
    seen["sessions"] = hermes("sessions", "list").stdout
systemctl("stop", "hermes-agent")
print(json.dumps(seen))
