"""Look for anything of other agents, from within one; FACTS says who they are. What is found ends it with 1."""

import ctypes
import http.client
import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

FACTS = json.loads(Path("/srv/probes/facts.json").read_text())
PLACES = ("/dev", "/etc", "/home", "/media", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp", "/var")
PROCESS_VM_READV = 310


def files(since):
    """Every file that is newer than the boot, wherever this process may look."""
    for place in PLACES:
        for directory, below, names in os.walk(place, onerror=lambda error: None):
            if directory == "/srv":
                below[:] = [name for name in below if name != "probes"]  # what this program is told
            for name in names:
                path = os.path.join(directory, name)
                try:
                    found = os.lstat(path)
                except OSError:
                    continue
                if stat.S_ISREG(found.st_mode) and found.st_mtime >= since:
                    yield path


def markers_in_files():
    found = {}
    for path in files(FACTS["since"]):
        try:
            content = Path(path).read_bytes()
        except OSError:
            continue
        for name, agent in FACTS["agents"].items():
            if agent["marker"].encode() in content:
                found.setdefault(name, []).append(path)
    return found


def reaches_socket(path):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5)
        try:
            client.connect(path)
        except OSError:
            return False
        return True


def answer_of(port, key):
    """The status that the agent at a port gives to a key; None where there is no way to it."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/v1/models", headers={"Authorization": f"Bearer {key}"})
        return connection.getresponse().status
    except OSError:
        return None


def problems_of_process(pid, is_listed):
    if os.path.exists(f"/proc/{pid}") and not is_listed:
        yield "its process is seen"
    for name in ("environ", "mem", "maps", *(() if is_listed else ("cmdline",))):
        try:
            if Path(f"/proc/{pid}/{name}").read_bytes():
                yield f"its {name} is read"
        except OSError:
            pass
    try:
        os.kill(pid, 0)
        yield "it can be signalled"
    except OSError:
        pass
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(8)
    vector = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 8)
    if libc.syscall(PROCESS_VM_READV, pid, vector, 1, vector, 1, 0) != -1:
        yield "its memory is read"


def own_key(me):
    try:
        return Path(FACTS["agents"][me]["home"], "api_server.key").read_text().strip()
    except OSError:  # a command
        return "no key"


def problems(me, is_listed):
    files_of = markers_in_files()
    key = own_key(me)
    for name, agent in FACTS["agents"].items():
        if name == me:
            continue
        if name in files_of:
            yield f"{name}: in {', '.join(files_of[name])}"
        for path in (agent["home"], agent["workspace"], f"{agent['run']}/control.sock"):
            try:
                os.stat(path)
                os.listdir(path)
                yield f"{name}: {path} is listed"
            except OSError:
                pass
        for path in (f"{agent['run']}/control.sock", agent["exec_socket"]):
            if reaches_socket(path):
                yield f"{name}: {path} answers"
        if (status := answer_of(agent["port"], key)) not in (None, 401):
            yield f"{name}: port {agent['port']} says {status}"
        for problem in problems_of_process(agent["pid"], is_listed):
            yield f"{name}: {problem}"
    shared = Path("/dev/shm", f"of-{me}-{os.getpid()}")
    shared.touch()
    if strangers := [other for other in os.listdir("/dev/shm") if other != shared.name and not is_listed]:
        yield f"shared memory: {', '.join(strangers)}"
    said = subprocess.run(["journalctl", "-q", "--no-pager", "-n", "500"], capture_output=True, text=True, check=False)
    lines = [line for line in said.stdout.splitlines() if "hermes" in line]
    if lines:
        yield f"the log: {lines[0]}"


def main(kind, me):
    """Kinds: `agent` and `command`, which must find nothing; `control`, which must find everything.

    A command of the profile `host` (`command-host`) sees what any user of the machine does: which processes and shared
    memory there are.
    """
    if kind == "control":
        seen = markers_in_files()
        lacking = [name for name in FACTS["agents"] if name not in seen]
        sys.exit(f"not found by root: {lacking}" if lacking else 0)
    found = list(problems(me, kind == "command-host"))
    own = markers_in_files().get(me, [])
    if kind == "agent" and not any("state.db" in path for path in own):
        found.append(f"its own state is not found: {own}")
    if kind == "agent" and answer_of(FACTS["agents"][me]["port"], own_key(me)) != 200:
        found.append("its own port does not answer")
    if kind.startswith("command") and own:
        found.append(f"its daemon's secret is in {own}")
    sys.exit("; ".join(found) if found else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
