"""Refuse declared settings that the agent would not take: config_check.py HERMES FILE.

HERMES is the agent's program; what it has against FILE is said in the words of the option.
"""

import json
import os
import subprocess
import sys
import tempfile

OPTION = "services.hermes-agent.settings"


def main(hermes: str, file: str) -> int:
    with tempfile.TemporaryDirectory() as home:
        checked = subprocess.run(
            [hermes, "config", "check", file, "--strict", "--json", "--label", OPTION],
            env={"PATH": os.environ["PATH"], "HOME": home, "HERMES_HOME": home, "LC_ALL": "C.UTF-8"},
            capture_output=True,
            text=True,
            check=False,
        )
    try:
        findings = json.loads(checked.stdout)["findings"]
    except ValueError:
        print(f"error: hermes-agent: `config check` ended with {checked.returncode}:", file=sys.stderr)
        print(checked.stderr, file=sys.stderr)
        return 1
    problems = [finding["message"] for finding in findings if finding["level"] == "error"]
    for problem in problems:
        print(f"error: hermes-agent: {OPTION}: {problem}", file=sys.stderr)
    if problems:
        print("hint: docs/reference/config.md has every key with its type and default.", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
