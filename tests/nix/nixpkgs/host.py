"""Describe a site-packages directory as JSON, for the stand-in package set: host.py PYTHON SITE.

{"python": real path, "version": "3.11", "site": directory, "distributions":
 {canonical name: {"version", "digest" of what is installed, "dependencies": [canonical name, …]}}}
"""

import hashlib
import json
import re
import subprocess
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path

SYSTEM = "/usr/bin/python3"


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def wanted(dist: Distribution, installed: set[str]) -> list[str]:
    """Requirements for no extra. One whose marker does not hold here is not installed here either."""
    names = set()
    for requirement in dist.requires or []:
        specifier, _, marker = requirement.partition(";")
        match = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)", specifier)
        name = canonical(match[1])
        if "extra" in marker or (marker and name not in installed):
            continue
        names.add(name)
    return sorted(names)


def in_view(executable: str, version: str) -> str:
    """A unit with ProtectHome= sees no interpreter below a home: the system's of the same version takes its place."""
    if not executable.startswith(("/root/", "/home/")) or not Path(SYSTEM).exists():
        return executable
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    said = subprocess.run([SYSTEM, "-I", "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
    return str(Path(SYSTEM).resolve()) if said == version else executable


def describe(site: str) -> dict[str, dict]:
    """Return every distribution of `site` by its canonical name."""
    found = {canonical(d.metadata["Name"]): d for d in distributions(path=[site]) if d.metadata["Name"]}
    return {
        name: {
            "version": dist.version,
            "digest": hashlib.sha256((dist.read_text("RECORD") or "").encode()).hexdigest(),
            "dependencies": wanted(dist, set(found)),
        }
        for name, dist in sorted(found.items())
    }


def main(python: str, site: str) -> None:
    ask = "import os, sys; print(os.path.realpath(sys._base_executable)); print('%d.%d' % sys.version_info[:2])"
    answer = subprocess.run([python, "-I", "-c", ask], capture_output=True, text=True, check=True)
    executable, version = answer.stdout.split()
    description = {"python": in_view(executable, version), "version": version, "site": str(Path(site).resolve())}
    json.dump({**description, "distributions": describe(site)}, sys.stdout, indent=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
