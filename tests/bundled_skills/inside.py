"""Runs in the container: the steps of a skill, in order, and what changed between the first and the last.

`inside.py PLAN` prints JSON: for each step its status and output, and what of the machine differs afterwards.
"""

import json
import os
import re
import shutil
import subprocess
import sys

NAME = re.compile(r"\b[A-Z_]{3,}[12]?\b")
PASSING = ("/proc", "/sys", "/dev", "/run", "/opt", "/nix")
STATE = (
    ["systemctl", "list-units", "--no-legend", "--plain", "--no-pager"],
    ["ip", "-brief", "address"],
    ["ip", "route"],
    ["ss", "-Htuln"],
    ["cat", "/proc/self/mounts"],
)


def files(roots, restless):
    """Every file below the roots, with what changes when it is written, replaced or handed to another owner."""
    found = {}
    for root in roots:
        for folder, folders, names in os.walk(root):
            inner = [name for name in folders if os.path.join(folder, name) not in PASSING]
            folders[:] = [n for n in inner if not restless(os.path.join(folder, n))]
            for path in [os.path.join(folder, name) for name in (*folders, *names)]:
                if not restless(path):
                    try:
                        s = os.lstat(path)
                    except OSError:
                        continue
                    found[path] = [s.st_mode, s.st_uid, s.st_gid, s.st_size, s.st_mtime_ns, s.st_ctime_ns]
    return found


def state(plan):
    """What is to be the same before and after."""
    skipped = re.compile("|".join(plan["restless"]) or r"(?!)")
    found_state = files(plan["watched"], lambda path: skipped.search(path))
    for line in [each for each in (*STATE, *plan["state"]) if shutil.which(each[0])]:
        done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
        for each in (" ".join(row.split()) for row in done.stdout.splitlines()):  # columns are as wide as needed
            if not skipped.search(each):
                found_state[" ".join(line) + ": " + each] = True
    return found_state


def main():
    with open(sys.argv[1]) as file:
        plan = json.load(file)
    names = dict(plan["names"])
    if os.path.exists("/run/names"):
        with open("/run/names") as file:
            names.update(line.strip().split("=", 1) for line in file if "=" in line)
    as_user = ["runuser", "-u", plan["user"], "--"] if plan["user"] != "root" else []
    environ = {**os.environ, **plan["environ"], "HOME": os.path.expanduser("~" + plan["user"])}
    before, ran = state(plan), []
    for command in plan["commands"]:
        filled = NAME.sub(lambda found: names.get(found[0], found[0]), command)
        try:
            done = subprocess.run(
                [*as_user, "bash", "-c", filled],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=60,
                cwd=plan["cwd"],
                env=environ,
            )
            ran.append({"ran": filled, "status": done.returncode, "output": done.stdout})
        except subprocess.TimeoutExpired as late:
            ran.append({"ran": filled, "status": -1, "output": (late.stdout or b"").decode("utf-8", "replace")})
    after = state(plan)
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    print(json.dumps({"ran": ran, "changed": changed}))


main()
