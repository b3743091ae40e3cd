"""A bundled skill, tried on a machine that has the fault which the skill is about.

A `Subject` is a fault: a script of `subjects/` plants it in a container with a systemd of its own. Then the commands
that the skill documents under "Look first" run there, in their order, as they are written. `shown` says for each of
them what a reader finds, and with which status it ends. Nothing in the container may have changed afterwards.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hermes_agent.skills.library import BUNDLED_SKILLS
from hermes_agent.skills.skill_file import SkillFolder
from run_in_systemd import Container

__all__ = [
    *("SKILLS", "WHOLE", "Shown", "Subject", "commands", "files_of", "has", "planting_of"),
    *("problems", "run_steps", "script_of"),
]

HERE = Path(__file__).parent
SKILLS = {skill.folder: skill for skill in SkillFolder((BUNDLED_SKILLS,)).find()}
BLOCK = re.compile(r"^## Look first\n.*?^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WHOLE, OWN = ("/",), ("/srv", "/tmp")
"""What is compared: everything in an image, what is a subject's own on the machine of the tests, which goes on."""


@dataclass(frozen=True)
class Shown:
    """What a command prints, as patterns that are all found, and how it ends."""

    patterns: tuple[str, ...]
    status: int | tuple[int, ...] = 0
    """Several where it depends on what else runs."""
    lacks: tuple[str, ...] = ()


def has(*patterns: str, status: int | tuple[int, ...] = 0, lacks: tuple[str, ...] = ()) -> Shown:
    """Return a `Shown`."""
    return Shown(patterns, status, lacks)


@dataclass(frozen=True)
class Subject:
    """A machine with a fault, and what each command of a skill shows of it.

    Args:
        skill: the folder of the skill.
        script: a file of `subjects/` that plants the fault, as root.
        shown: every documented command, in the order of the skill; None for one that cannot run here.
        names: what the words in capitals stand for; the script adds to them in `/run/names`.
        units: for the container, from a file of the image when it is a `Path`.
        restless: patterns of files and lines that change by themselves.
        state: commands that print what else is to be the same.
        quick: the machine of the tests has all that it needs.
        without: why commands of `shown` that are None cannot run.
    """

    skill: str
    script: str
    shown: Mapping[str, Shown | None]
    names: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str | Path] = field(default_factory=dict)
    enable: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "/"
    user: str = "root"
    restless: tuple[str, ...] = ()
    state: tuple[tuple[str, ...], ...] = ()
    quick: bool = False
    without: str = ""


def commands(name: str) -> list[str]:
    """Return what a skill documents under "Look first"."""
    found = BLOCK.search(SKILLS[name].document.text)
    assert found is not None, f"{name} has no commands under `Look first`"
    return found[1].strip().splitlines()


def planting_of(subject: Subject) -> str:
    """Return a script for bash that plants the fault, with `files_of` in its machine."""
    planting = (HERE / "subjects" / subject.script).read_text()
    lines = ["set -eu", (HERE / "subjects" / "common.sh").read_text(), f"plant() {{\n{planting}\n}}", "plant >&2"]
    return "\n".join(lines)


def script_of(subject: Subject) -> str:
    """Return `planting_of`, and then the run of `inside.py`."""
    return f"{planting_of(subject)}\nexec python3 /opt/inside.py /opt/plan.json"


def files_of(subject: Subject, watched: Sequence[str]) -> dict[str, str]:
    """Return the files that `script_of` needs; of the machine, what is below `watched` is to stay as it is."""
    plan = {
        "commands": [line for line in commands(subject.skill) if subject.shown.get(line, has()) is not None],
        "names": dict(subject.names),
        "environ": {"LC_ALL": "C.UTF-8", **subject.environ},
        "cwd": subject.cwd,
        "user": subject.user,
        "watched": watched,
        # systemd notices mounts late; /proc/self/mounts is compared, too
        "restless": [r"script\.service", r"\.mount loaded ", r"/\.cache(/|$)", "^/tmp$", *subject.restless],
        "state": subject.state,
    }
    files = {f"/opt/{name}": (HERE / name).read_text() for name in ("inside.py", "logins.py")}
    files |= {f"/opt/{name}": (HERE / "subjects" / name).read_text() for name in ("authority.sh", "nix.sh")}
    return {**files, "/opt/plan.json": json.dumps(plan)}


def run_steps(subject: Subject, root: Path) -> dict[str, Any]:
    """Plant the fault in a container above `root`, run the skill's commands there, and return what `inside.py` says."""
    units = {name: root / unit if isinstance(unit, Path) else unit for name, unit in subject.units.items()}
    files = files_of(subject, OWN if root == Path("/") else WHOLE)
    container = Container(units=units, enable=subject.enable, files=files, root=str(root))
    outcome = container.run(script_of(subject), timeout_s=300)
    told: dict[str, Any] = json.loads(outcome.succeeded().stdout)
    return told


def problems(subject: Subject, told: Mapping[str, Any]) -> list[str]:
    """Return what differs from what the subject promises; empty when nothing does."""
    found = []
    for (command, shown), ran in zip(
        ((line, each) for line, each in subject.shown.items() if each is not None), told["ran"], strict=True
    ):
        missing = [pattern for pattern in shown.patterns if not re.search(pattern, ran["output"], re.MULTILINE)]
        unwanted = [pattern for pattern in shown.lacks if re.search(pattern, ran["output"], re.MULTILINE)]
        allowed = (shown.status,) if isinstance(shown.status, int) else shown.status
        if ran["status"] not in allowed or missing or unwanted:
            found.append(
                f"{command}\n  ran: {ran['ran']}\n  status {ran['status']}, expected {allowed}\n"
                f"  missing {missing}, unwanted {unwanted}\n{ran['output'][-3000:]}"
            )
    if told["changed"]:
        found.append(f"changed by looking: {told['changed']}")
    return found
