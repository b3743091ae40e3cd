"""Commands of a command line that begins and ends: CPU time against a bare interpreter."""

from __future__ import annotations

import json
import resource
import subprocess
from collections.abc import Sequence
from pathlib import Path

from homes import Installation, environment, make_home, write_plugins
from rows import Row

__all__ = ["measure"]

RUNS = 20
GATE_RUNS = 5
GATE_PLUGINS = 50


def measure(installations: Sequence[Installation], folder: Path) -> list[Row]:
    """Measure the start of the commands of each installation."""
    home = folder / "startup" / "home"
    make_home(home, 100)
    rows = []
    for installation in installations:
        wanted: list[tuple[str, list[str], float | None]] = [
            ("python -c pass", [installation.python, "-c", "pass"], None),
            ("hermes --version", [installation.hermes, "--version"], 3.0),
            ("hermes --help", [installation.hermes, "--help"], 4.0),
            ("hermes config check", [installation.hermes, "config", "check"], 10.0),
            ("hermes plugins list (100 directory plugins)", [installation.hermes, "plugins", "list"], 6.0),
        ]
        spent = _cpu_ms([command for _, command, _ in wanted], environment(home))
        for (name, _, budget), ms in zip(wanted, spent, strict=True):
            limit = budget if installation.is_ours else None
            name = name if installation.is_ours else f"peer: {name}"
            rows.append(Row(f"{name}, in bare interpreters", f"{ms:.1f} ms CPU", ms / spent[0], limit))
        if installation.is_ours:
            rows += _gate(installation, folder / "gate")
    return rows


def _gate(installation: Installation, folder: Path) -> list[Row]:
    """Measure the check of a declared host, as a build for NixOS runs it, with plugins of the package and without.

    The budgets are seconds of this machine: they are what a build may take, and several times what it takes.
    """
    write_plugins(folder / "package" / "plugins", GATE_PLUGINS)
    config = folder / "config.yaml"
    model = {"provider": "custom", "default": "stub", "base_url": "http://127.0.0.1:9/v1"}
    config.write_text(json.dumps({"model": model, "plugins": {"auto_enable": True}}), encoding="utf-8")
    command = [[installation.hermes, "doctor", "--declared", str(config)]]
    env = environment(folder / "home")
    none = _cpu_ms(command, env, GATE_RUNS)[0] / 1000
    all_ = _cpu_ms(command, env | {"HERMES_BUNDLED_PLUGINS": f":{folder / 'package' / 'plugins'}"}, GATE_RUNS)[0] / 1000
    name = f"hermes doctor --declared with {GATE_PLUGINS} plugins"
    return [
        Row(f"{name}, s CPU", f"{all_:.2f} s CPU", all_, 5.0),
        Row(f"{name}, more than with none, s CPU", f"{all_:.2f} s, {none:.2f} s CPU", all_ - none, 0.5),
    ]


def _cpu_ms(commands: Sequence[Sequence[str]], env: dict[str, str], runs: int = RUNS) -> list[float]:
    """Return the least CPU time of each command's process tree over so many runs, in milliseconds.

    The least, not the median: what else the machine does only ever adds. In turns, so that it is added to all of them.
    """
    samples: list[list[float]] = [[] for _ in commands]
    for _ in range(runs):
        for command, spent in zip(commands, samples, strict=True):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000)
    return [min(each) for each in samples]
