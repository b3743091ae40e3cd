"""Measure, as ratios in one run: start-up against a bare interpreter, the size of a request, and, on wish, the peer.

make bench                       start-up and request size, with their budgets; exit 1 when one is exceeded
make bench ARGS='--peer DIR'     the same commands of a peer's venv beside ours
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["main"]

BIN = Path(sys.executable).parent
RUNS = 20


@dataclass(frozen=True)
class Row:
    """One measured command: CPU milliseconds, and how many times a bare interpreter that is."""

    name: str
    cpu_ms: float
    ratio: float
    budget: float | None = None

    @property
    def over(self) -> bool:
        return self.budget is not None and self.ratio > self.budget


def cpu_ms(commands: Sequence[Sequence[str]], environment: dict[str, str]) -> list[float]:
    """Return the least CPU time of each command's process tree over `RUNS` runs, in milliseconds.

    The least, not the median: what else the machine does only ever adds. In turns, so that it is added to all of them.
    """
    samples: list[list[float]] = [[] for _ in commands]
    for _ in range(RUNS):
        for command, spent in zip(commands, samples, strict=True):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000)
    return [min(each) for each in samples]


def make_home(home: Path, plugins: int) -> None:
    """Write a home with `plugins` trivial directory plugins, all enabled."""
    names = [f"p{i:03}" for i in range(plugins)]
    for name in names:
        folder = home / "plugins" / name
        folder.mkdir(parents=True)
        (folder / "plugin.yaml").write_text(f"name: {name}\nversion: 1.0.0\ndescription: one of many\n")
        (folder / "__init__.py").write_text(
            "def register(ctx):\n"
            f"    ctx.register_tool('{name}_tool', '{name}', {{'name': '{name}_tool', 'description': 'd',"
            " 'parameters': {'type': 'object', 'properties': {}}}, lambda args, **kw: '{}')\n"
            "    ctx.register_hook('post_tool_call', lambda **kw: None)\n"
        )
    (home / "config.yaml").write_text(f"plugins:\n  enabled: [{', '.join(names)}]\n")


def measure(bin_dir: Path, environment: dict[str, str], budgets: bool) -> list[Row]:
    """Measure the commands of one installation, and its bare interpreter."""
    hermes = str(bin_dir / "hermes")
    wanted: list[tuple[str, list[str], float | None]] = [
        ("python -c pass", [str(bin_dir / "python"), "-c", "pass"], None),
        ("hermes --version", [hermes, "--version"], 3.0),
        ("hermes --help", [hermes, "--help"], None),
        ("hermes config check", [hermes, "config", "check"], None),
        ("hermes plugins list (100 directory plugins)", [hermes, "plugins", "list"], 8.0),
    ]
    spent = cpu_ms([command for _, command, _ in wanted], environment)
    return [
        Row(name, ms, ms / spent[0], budget if budgets else None)
        for (name, _, budget), ms in zip(wanted, spent, strict=True)
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; 1 when a budget is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=Path, metavar="VENV", help="a venv with another hermes-agent")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary) / "home"
        make_home(home, 100)
        environment = {"PATH": os.environ["PATH"], "HOME": temporary, "HERMES_HOME": str(home)}
        rows = measure(BIN, environment, budgets=True)
        if args.peer:
            peers = measure(args.peer / "bin", environment, budgets=False)
            rows += [Row(f"peer: {r.name}", r.cpu_ms, r.ratio) for r in peers]
    for row in rows:
        limit = f"  (budget {row.budget:g})" if row.budget else ""
        print(f"{row.name:<52} {row.cpu_ms:7.1f} ms CPU  {row.ratio:6.2f} x{limit}{'  OVER' if row.over else ''}")
    return 1 if any(r.over for r in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
