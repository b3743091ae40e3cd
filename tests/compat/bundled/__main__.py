"""`python -m compat.bundled [NAME …]`: the plugins of upstream's wheel, compared with what upstream registers."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from compat.bundled.run import DECLINED, ORACLE, compared, load
from compat.bundled.wheel import bundled_plugins
from compat.corpus.install import CannotInstall
from compat.corpus.table import AT_A_TIME, Row, show


def main(argv: Sequence[str]) -> int:
    """Print a row for each plugin; return 1 when one differs and is not declined, or is declined and does not."""
    parser = argparse.ArgumentParser(prog="python -m compat.bundled", description="Run upstream's bundled plugins.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="these plugins alone; a part of the name will do")
    parser.add_argument("--record", metavar="PYTHON", help="write the record with upstream's interpreter instead")
    options = parser.parse_args(argv)
    expected: dict[str, Any] = json.loads(ORACLE.read_text(encoding="utf-8"))
    declined = tomllib.loads(DECLINED.read_text(encoding="utf-8"))
    names = [name for name in expected if not options.names or any(part in name for part in options.names)]
    try:
        plugins = bundled_plugins()
    except CannotInstall as exc:
        print(f"upstream's bundled plugins are skipped: its wheel cannot be downloaded: {exc}", file=sys.stderr)
        return 1
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        if options.record:
            found = zip(names, pool.map(partial(load, plugins=plugins, interpreter=options.record), names), strict=True)
            records = expected | dict(found)
            lines = [f"{json.dumps(name)}: {json.dumps(records[name], ensure_ascii=False)}" for name in sorted(records)]
            ORACLE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
            return 0
        rows = list(pool.map(lambda name: _row(name, plugins, expected[name], declined), names))
    for row in rows:
        print(show(row))
    green = sum(row.green for row in rows)
    refused = [name for name in names if name in declined]
    print(f"bundled with upstream: {green} of {len(rows)} plugins green, {len(refused)} of them declined with a reason")
    return 0 if green == len(rows) else 1


def _row(name: str, plugins: Any, peer: dict[str, Any], declined: dict[str, str]) -> Row:
    try:
        lines = compared(peer, load(name, plugins))
    except (RuntimeError, OSError, subprocess.TimeoutExpired) as exc:
        return Row(name, "user", "broken", (str(exc),))
    if name not in declined:
        return Row(name, "user", "differs" if lines else "same", tuple(lines))
    if lines:
        return Row(name, "user", "same", (f"declined: {declined[name]}",))
    return Row(name, "user", "differs", (f"it is the same as with upstream: remove it from {DECLINED.name}",))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
