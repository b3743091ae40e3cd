"""Refuse declared settings with a name that nothing answers to: names_check.py SPEC.json.

The agent's own `hermes config check` does it in a home with these settings, with the plugins of the build: they bring
providers, platforms, tools and toolsets. What may be of a plugin that lacks a variable, which only the machine may
have, is let pass.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

OPTION = "services.hermes-agent.settings"
PLACEHOLDER = "given-when-the-daemon-starts"


def main(spec_file: str) -> int:
    spec = json.loads(Path(spec_file).read_text(encoding="utf-8"))
    home = Path(os.environ["TMPDIR"], "home")
    home.mkdir()
    (home / "config.yaml").write_bytes(Path(spec["file"]).read_bytes())
    environment = {
        "PATH": spec["path"] or os.environ["PATH"],
        "HOME": os.environ["TMPDIR"],
        "HERMES_HOME": str(home),
        "LC_ALL": "C.UTF-8",
        # A store that the builder can write to keeps no bytecode either.
        "PYTHONDONTWRITEBYTECODE": "1",
        **dict.fromkeys(spec["variables"] or [], PLACEHOLDER),
        **spec["environment"],
    }
    command = [spec["hermes"], "config", "check", "--strict", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    try:
        findings = json.loads(done.stdout)["findings"]
    except ValueError:
        print(f"error: hermes-agent: `{' '.join(command[1:])}` ended with {done.returncode}:", file=sys.stderr)
        print(done.stderr[-2000:], file=sys.stderr)
        return 1
    errors = [finding["message"] for finding in findings if finding["level"] == "error"]
    for error in errors:
        print(f"error: hermes-agent: {OPTION}: {error}", file=sys.stderr)
    if errors:
        print(
            "hint: a plugin in extraPlugins or extraPythonPackages may bring it, once it is enabled.", file=sys.stderr
        )
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
