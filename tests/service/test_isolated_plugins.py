"""Isolated plugins in units of their own, in a whole daemon under a real systemd.

One test in every run; all with `HERMES_PUBLISHED_ISOLATED=1`, which `make compat` sets.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import hermes_agent
from run_in_systemd import Interpreter
from service.conftest import HOME, PACKAGING, MakeMachine
from service.test_daemon import KEY, PREPARED, SERVICE

FAULTY = Path(__file__).parents[1] / "e2e" / "plugins" / "isolated" / "faulty"
LONG = pytest.mark.skipif(os.environ.get("HERMES_PUBLISHED_ISOLATED") != "1", reason="`make compat` runs it")
LOOKING = """
import json, os, urllib.request

for name in ("no_proxy", "NO_PROXY"):
    os.environ.pop(name, None)

def look(args, **_):
    found = {}
    for path in args["paths"]:
        try:
            with open(path) as file:
                found[path] = file.read().strip()
        except OSError as exc:
            found[path] = exc.strerror
    for path in args.get("write", ()):
        try:
            with open(path, "w") as file:
                file.write("written")
            found[path] = "written"
        except OSError as exc:
            found[path] = exc.strerror
    for url in args.get("urls", ()):
        try:
            found[url] = urllib.request.urlopen(url, timeout=20).read().decode()[:20].strip()
        except Exception as exc:
            found[url] = "refused"
    for pid in args.get("pids", ()):
        try:
            os.kill(pid, 0)
            found[str(pid)] = "alive"
        except OSError as exc:
            found[str(pid)] = exc.strerror
    found["secrets"] = sorted(name for name in os.environ if name.endswith("_KEY"))
    with open(os.path.expanduser("~/visits"), "a+") as file:
        file.write("x")
        file.seek(0)
        found["visits"] = len(file.read())
    return json.dumps(found)

def register(ctx):
    ctx.register_tool("look", None, {"name": "look", "parameters": {"type": "object", "properties": {
        "paths": {"type": "array"}}}}, look)
"""
CONFIG = """
model: {provider: custom, base_url: BASE_URL, default: scripted-model}
plugins:
  enabled: [faulty, looking]
  isolation: host
  host: {memory_mb: 256, call_timeout_s: 20, stall_s: 3}
  entries:
    looking:
      granted_capabilities: [files.read:/srv/shown, files.write:/srv/changed, network:127.0.0.1:8650, secret:OTHER_KEY]
"""
UNITS = f"""
plugin() {{ bash /opt/packaging/plugin "$@"; }}
mkdir -p {HOME}/plugins /srv/shown /srv/changed /srv/hidden
for name in shown changed hidden; do echo $name > /srv/$name/letter; done
chgrp -R hermes-work /srv/changed; chmod -R g+w /srv/changed
cp -r /opt/faulty /opt/looking {HOME}/plugins/
chown -R hermes:hermes {HOME}; chmod -R go= {HOME}
runuser -u hermes -- env PATH=$PATH hermes plugins list | grep -E '^(faulty|looking)' >&2
call() {{ ask "use $1 $2" s1 | grep -o '"content":"The tool said: .*","refusal'; }}
faults() {{
  before=$(show MainPID)
  for fault in "leave exit status 3" "crash SIGSEGV" "hold no sign of life" "leak used more memory"; do
    call ${{fault%% *}} '{{}}'
    until_ "hermes plugins list | grep -q 'last end: .*${{fault#* }}'"
    hermes gateway status | grep '^plugin faulty'
    hermes plugins list | grep -o 'in a process of its own, started.*'
    call add '{{\\"a\\": 20, \\"b\\": 22}}'
  done
  [ "$(show MainPID)" = "$before" ] && [ "$(show NRestarts)" = 0 ] && echo the same daemon
}}
"""


def on_machine(machine: MakeMachine, script: str, *, service: str = "", config: str = CONFIG) -> Any:
    """Run a script where the daemon can be started with the plugins `faulty` and `looking`."""
    python = Interpreter.of_this_process(Path(hermes_agent.__file__).resolve().parent.parent)
    made = machine(f"{SERVICE}\n{service}", files={"/opt/config.yaml": config})
    program = f"ExecStart=\nExecStart={python.executable} -m hermes_agent.system.plugin_unit"
    start = f"[Service]\n{program}\n{python.unit_environment()}\n"
    made.files.update(
        {
            **{f"/opt/packaging/{file.name}": file.read_text() for file in PACKAGING.iterdir()},
            "/opt/hermes-agent/bin/python": f'#!/bin/sh\nexec {python.executable} "$@"\n',
            **{
                f"/etc/systemd/system/hermes-plugin-{name}@.service.d/test.conf": start
                for name in ("faulty", "looking")
            },
            "/opt/looking/plugin.yaml": "name: looking\nversion: '1'\ndescription: looks\n",
            "/opt/looking/__init__.py": LOOKING,
            **{f"/opt/faulty/{file.name}": file.read_text() for file in FAULTY.glob("*.*")},
        }
    )
    return made.run(PREPARED + UNITS + script, timeout_s=170)


CAUSES = {
    "leave": "exit status 3",
    "crash": "segmentation fault (SIGSEGV)",
    "hold": "it gave no sign of life for 3 s",
    "leak": "it used more memory than `plugins.host.memory_mb` allows",
}
"""Faults of the plugin `faulty`, and how the daemon names each."""


def check_faults(lines: list[str]) -> None:
    """Check what the daemon says of the four faults."""
    for fault, cause in CAUSES.items():
        answer, status, listed, later = (lines.pop(0) for _ in range(4))
        assert cause in answer or (fault == "leak" and "out of memory" in answer), (fault, answer)
        assert status.startswith("plugin faulty: ended: its process was started again") and cause in status
        assert "time(s), last end: " in listed and cause in listed
        assert "The tool said: 42" in later
    assert lines.pop(0) == "the same daemon"


@LONG
@pytest.mark.attack("isolated plugins", at="systemd")
def test_a_fault_of_a_plugin_ends_its_unit_alone_and_the_daemon_names_it(machine: MakeMachine) -> None:
    outcome = on_machine(
        machine,
        """
        plugin faulty > /run/said && plugin looking >> /run/said || exit 1
        systemd-analyze verify --man=no /etc/systemd/system/hermes-plugin-{faulty,looking}.socket 2>&1
        systemctl start hermes-agent || exit 2
        other=$(systemctl show -P MainPID 'hermes-plugin-looking@*')
        faults
        [ "$(systemctl show -P MainPID 'hermes-plugin-looking@*')" = "$other" ] && echo the same neighbour
        hermes plugins doctor | grep -o 'in a process of its own: running, pid [0-9]*, [1-9][0-9]* MiB (systemd unit)'
        systemctl show -P MemoryMax 'hermes-plugin-looking@*'
        systemctl show -P Result 'hermes-plugin-*.socket' | sort -u | grep .
        systemctl stop hermes-agent
        until_ '! systemctl list-units --plain -q "hermes-plugin-*@*.service" | grep -q .'
        plugin faulty --remove | tail -n 1
        find /etc /run/hermes-plugin -name '*faulty*' -path '*plugin*' -not -name '*.d'
        """,
    )
    lines = outcome.succeeded().stdout.splitlines()
    check_faults(lines)
    assert lines.pop(0) == "the same neighbour"
    assert len([line for line in lines if line.startswith("in a process of its own: running")]) == 2
    assert lines[2:] == [
        str(256 << 20),  # `plugins.host.memory_mb` of the config
        "success",
        "The unit of `faulty` is gone. Its home is still there: rm -r /var/lib/private/hermes-plugin/faulty",
    ]


LOOK = {
    "paths": ["/srv/shown/letter", "/srv/changed/letter", "/srv/hidden/letter", f"{HOME}/config.yaml"],
    "write": ["/srv/changed/new", "/srv/shown/new"],
    "urls": ["http://127.0.0.1:8650/letter", "http://127.0.0.1:8642/health"],
    "pids": [111111, 222222],
}
ASK = """
look() {  # what the plugin sees; the two pids are those of the daemon and of the other plugin
  sed "s/111111/$(show MainPID)/; s/222222/$(systemctl show -P MainPID 'hermes-plugin-faulty@*')/" /opt/look > /run/look
  curl -s --max-time 60 -H 'Authorization: Bearer KEY' -H 'Content-Type: application/json' \\
    http://127.0.0.1:8642/v1/chat/completions -d @/run/look
  echo
}
""".replace("KEY", KEY)


def seen(answer: str) -> dict[str, Any]:
    """Return what the tool `look` said in an answer of the agent."""
    text = json.loads(answer)["choices"][0]["message"]["content"]
    found: dict[str, Any] = json.loads(text.partition("The tool said: ")[2])
    return found


@pytest.mark.attack("isolated plugins", at="systemd")
def test_a_plugin_in_a_unit_has_what_is_granted_and_nothing_else(machine: MakeMachine) -> None:
    question = {"model": "hermes-agent", "messages": [{"role": "user", "content": f"use look {json.dumps(LOOK)}"}]}
    outcome = on_machine(
        machine,
        f"""
        cat > /opt/look << 'TEXT'
{json.dumps(question)}
TEXT
        {ASK}
        plugin faulty > /run/said; plugin looking
        (cd /srv/shown && exec python3 -m http.server 8650 --bind 127.0.0.1 > /dev/null 2>&1) &
        systemctl start hermes-agent || exit 2
        look
        hermes config set plugins.entries.looking.granted_capabilities '["files.write:/srv/changed"]' > /dev/null
        chown hermes: {HOME}/config.yaml
        systemctl restart hermes-agent; look
        hermes plugins list | grep -o 'its unit shows .*again'
        plugin looking > /dev/null && systemctl restart hermes-agent && look
        """,
        service="Environment=OTHER_KEY=other-0123456789 THIRD_KEY=third-0123456789",
    )
    *said, first, refused, reason, last = outcome.succeeded().stdout.splitlines()
    assert said == [
        "Plugin `looking` has the unit hermes-plugin-looking@.service: 1 path(s) to read, 1 to write, MemoryMax=256M.",
        "  reads  /srv/shown",
        "  writes /srv/changed",
        "It runs there from the next start on: systemctl restart hermes-agent",
    ]
    assert seen(first) == {
        "/srv/shown/letter": "shown",
        "/srv/shown/new": "Read-only file system",
        "/srv/changed/letter": "changed",
        "/srv/changed/new": "written",
        "/srv/hidden/letter": "No such file or directory",
        f"{HOME}/config.yaml": "No such file or directory",
        "http://127.0.0.1:8650/letter": "shown",
        "http://127.0.0.1:8642/health": "refused",
        **{pid: "Operation not permitted" for pid in seen(first) if pid.isdigit()},
        "secrets": ["OTHER_KEY"],
        "visits": 1,
    }
    assert "look" in refused and "not" in refused
    assert reason.startswith("its unit shows /srv/shown, which is not granted any more")
    after = seen(last)
    assert (after["/srv/shown/letter"], after["/srv/changed/letter"]) == ("No such file or directory", "changed")
    assert (after["http://127.0.0.1:8650/letter"], after["secrets"], after["visits"]) == ("refused", [], 2)


@LONG
def test_a_plugin_of_an_added_agent_has_a_unit_of_its_own(machine: MakeMachine) -> None:
    outcome = on_machine(
        machine,
        f"""
        PATH=/usr/local/bin:$PATH
        bash /opt/packaging/instance alice --port 8650 > /dev/null || exit 1
        mkdir /var/lib/hermes-alice/.hermes/plugins && cp -r /opt/faulty /var/lib/hermes-alice/.hermes/plugins/
        cp {HOME}/config.yaml /var/lib/hermes-alice/.hermes/ && chown -R hermes-alice: /var/lib/hermes-alice/.hermes
        cp -r /etc/systemd/system/hermes-agent.service.d /etc/systemd/system/hermes-agent-alice.service.d
        plugins=/etc/systemd/system/hermes-plugin
        cp -r $plugins-faulty@.service.d $plugins-alice.faulty@.service.d
        plugin faulty --agent alice
        systemd-analyze verify --man=no $plugins-alice.faulty.socket 2>&1
        systemctl start hermes-agent-alice || exit 2
        hermes-alice plugins doctor | grep -o 'process of its own: running.*(systemd unit)' | grep -o '(.*)'
        systemctl show -P User 'hermes-plugin-alice.faulty@*' | grep -o '^hermes-p-'
        stat -c '%U %a' /run/hermes-plugin-alice/faulty.sock
        """,
    )
    assert outcome.succeeded().stdout.splitlines() == [
        "Plugin `faulty` has the unit hermes-plugin-alice.faulty@.service: 0 path(s) to read, 0 to write,"
        " MemoryMax=256M.",
        "It runs there from the next start on: systemctl restart hermes-agent-alice",
        "(systemd unit)",
        "hermes-p-",
        "hermes-alice 600",
    ]


@LONG
def test_without_a_unit_the_daemon_goes_on_and_says_what_the_plugin_needs(machine: MakeMachine) -> None:
    outcome = on_machine(
        machine,
        """
        systemctl start hermes-agent || exit 2
        hermes plugins list | grep -o '`plugins.isolation: host` needs a sandbox.*(NixOS'
        ask hello s1 | grep -o 'Nothing to do'
        plugin nothing 2>&1 | tail -n 2
        """,
    )
    first, second, answer, *unknown = outcome.succeeded().stdout.splitlines()
    for line, name in ((first, "faulty"), (second, "looking")):
        assert f"run `packaging/systemd/plugin {name}` as root" in line
    assert answer == "Nothing to do"
    assert unknown == ["plugin: the agent does not know `nothing`", "hint: `hermes plugins list` lists its plugins."]
