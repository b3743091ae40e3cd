"""Refuse arguments that the daemon would not start with: arguments_check.py OPTION HERMES ARGUMENT ….

The agent's own parser reads them, with one more at the end that it cannot know: it has to complain about
that one alone.
"""

import os
import subprocess
import sys

UNKNOWN = "--argument-of-the-check"


def main(option: str, hermes: str, *arguments: str) -> int:
    command = [hermes, "gateway", "run", *arguments, UNKNOWN]
    home = os.environ.get("TMPDIR", "/tmp")
    environment = {"PATH": os.environ["PATH"], "HOME": home, "HERMES_HOME": home, "LC_ALL": "C.UTF-8"}
    tried = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    complaint = [line for line in tried.stderr.splitlines() if ": error: " in line][-1:]
    if tried.returncode == 2 and complaint and f": error: there is no option {UNKNOWN}" in complaint[0]:
        return 0
    said = "\n".join(complaint).replace(f" {UNKNOWN}", "") or f"it ended with {tried.returncode} and did not start"
    text = f"`hermes gateway run` does not take {' '.join(arguments)}:"
    print(f"error: hermes-agent: {option}.extraArgs: {text}", file=sys.stderr)
    print(f"  {said}", file=sys.stderr)
    print("hint: `hermes gateway run --help` lists what it takes; settings go to settings.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
