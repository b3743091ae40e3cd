"""Record homes of the published program as text, for tests without a package index: `python -m compat.homes`."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from pathlib import Path

from compat.homes.published import LATEST, make_home

DATA = Path(__file__).parents[2] / "data" / "homes"
PARTS = ("memory", "jobs", "users", "config", "plugin", "skill", "rest")


def record(version: str) -> None:
    """Record one version: files as they are, `state.db` as SQL without its index."""
    with tempfile.TemporaryDirectory() as place:
        home = Path(place) / "home"
        make_home(home, version, sessions=4, turns=2, parts=PARTS)
        target = DATA / version
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(home, target, ignore=shutil.ignore_patterns("state.db*", "*.lock", ".env", ".[a-z]*lock"))
        shutil.copyfile(home / ".env", target / "env.txt")
        config = (home / "config.yaml").read_text(encoding="utf-8").splitlines()
        kept = [line for line in config if line and not line.lstrip().startswith("#")]
        (target / "config.yaml").write_text("\n".join(kept) + "\n", encoding="utf-8")
        lines = []
        with contextlib.closing(sqlite3.connect(home / "state.db")) as db:
            for name in [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE name = 'messages_fts'")]:
                db.execute(f"DROP TABLE {name}")
            for (sql,) in db.execute("SELECT sql FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE '%fts%'"):
                if "sqlite_sequence" not in sql:
                    lines.append(f"{sql};")
            for table in [row.partition("(")[0].split()[-1] for row in lines]:
                for row in db.execute(f"SELECT * FROM {table}"):
                    lines.append(f"INSERT INTO {table} VALUES ({', '.join(map(_literal, row))});")
        (target / "state.sql").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _literal(value: object) -> str:
    """Return a value as SQL; a text with a NUL, which SQL has no form for, as its bytes."""
    if isinstance(value, str):
        return f"CAST(x'{value.encode().hex()}' AS TEXT)" if "\0" in value else "'" + value.replace("'", "''") + "'"
    return "NULL" if value is None else repr(value)


RECORDED = ("0.13.0", "0.17.0", LATEST)

if __name__ == "__main__":
    for each in RECORDED:
        record(each)
