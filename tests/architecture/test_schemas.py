"""Every owner's tables come from each earlier version to the present one, and the release before can read them."""

from __future__ import annotations

import importlib
import pkgutil
import re

import pytest

import hermes_agent
from hermes_agent.core.errors import UserError
from hermes_agent.store import Database, Schema

REMOVES = re.compile(r"\b(DROP|RENAME)\b", re.IGNORECASE)
OWNERS = ("agent", "compat", "cron", "delivery", "gateway", "memory", "sessions")


def schemas():
    found = {}
    for package in OWNERS:
        if importlib.util.find_spec(f"hermes_agent.{package}") is None:
            continue
        path = [f"{hermes_agent.__path__[0]}/{package}"]
        for module in pkgutil.iter_modules(path):
            for value in vars(importlib.import_module(f"hermes_agent.{package}.{module.name}")).values():
                if isinstance(value, Schema):
                    found[value.owner] = value
    return found


FOUND = schemas()


def shape(path):
    db = Database(path, [])
    tables = {row["name"] for row in db.read("SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite%'")}
    columns = {name: [tuple(row)[1:] for row in db.read(f"PRAGMA table_info({name})")] for name in tables}
    db.close()
    return columns


def opened(path, owner, version):
    """Open a file with the tables of an owner at a version, and those of the others as they are."""
    mine = FOUND[owner]
    kept = Schema(owner, mine.steps[:version], min_reader=0)
    Database(path, [*(one for one in FOUND.values() if one.owner == "sessions" != owner), kept]).close()


def test_the_owners_that_are_known_are_found():
    assert {"delivery", "sessions"} <= set(FOUND)


def tables(db):
    """Return the tables that hold rows of their own, with their columns."""
    names = [
        row[0] for row in db.read("SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE '%VIRTUAL%'")
    ]
    kept = [name for name in names if not name.startswith(("sqlite", "schema_", "messages_fts"))]
    return {name: db.read(f"PRAGMA table_info({name})") for name in kept}


def value(db, table, column, number):
    """Return what row `number` has in a column: of its type, and what a foreign key asks for."""
    for key in db.read(f"PRAGMA foreign_key_list({table})"):
        if key["from"] == column["name"]:
            of = next(c for c in db.read(f"PRAGMA table_info({key['table']})") if c["name"] == key["to"])
            return value(db, key["table"], of, number)
    kinds = {"TEXT": f"{column['name']} of row {number}, ä\u2028水獭", "INTEGER": number, "REAL": number + 0.25}
    return kinds[column["type"]]


def filled(path, columns_of=None):
    """Put three more rows into every table, with the columns that a release knows; return all rows."""
    db = Database(path, [])
    with db.write() as writing:
        writing.execute("PRAGMA defer_foreign_keys = ON")
        for table, columns in (columns_of or tables(db)).items():
            if table == "delivery_owner":  # it has its one row
                continue
            first = writing.execute(f"SELECT count(*) FROM {table}").fetchone()[0] + 1
            for number in range(first, first + 3):
                names = ", ".join(column["name"] for column in columns)
                row = [value(db, table, column, number) for column in columns]
                writing.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(row))})", row)
    db.close()
    return rows(path)


def rows(path):
    db = Database(path, [])
    found = {t: sorted((dict(row) for row in db.read(f"SELECT * FROM {t}")), key=str) for t in tables(db)}
    assert db.read("PRAGMA foreign_key_check") == []
    assert [row[0] for row in db.read("PRAGMA integrity_check")] == ["ok"]
    db.close()
    return found


def opened_with_all(path, owner, version):
    """Open a file with the tables of an owner at a version (0: none yet), and those of all others as they are."""
    mine = Schema(owner, FOUND[owner].steps[:version], min_reader=0)
    all_of_them = [mine if one.owner == owner else one for one in FOUND.values()]
    Database(path, sorted((one for one in all_of_them if one.steps), key=lambda one: one.owner != "sessions")).close()


STEPS = [
    (owner, version)
    for owner, one in FOUND.items()
    for version in range(owner == "sessions", one.version)  # the others' rows belong to sessions
]


SET_BY_STEP = {("sessions", 4): {"sessions": {"model_config"}}}
"""Columns that a step is there to set, by its owner and the version before it: the origin of a subagent."""


@pytest.mark.parametrize(("owner", "version"), STEPS)
def test_rows_of_all_owners_stay_what_they_were_when_one_s_tables_change(tmp_path, owner, version):
    path = tmp_path / "state.db"
    opened_with_all(path, owner, version)
    before = filled(path)

    opened_with_all(path, owner, FOUND[owner].version)

    after, is_set = rows(path), SET_BY_STEP.get((owner, version), {})
    stays = {t: [c for c in old[0] if c not in is_set.get(t, ())] for t, old in before.items() if old}
    seen = {t: sorted(({c: row[c] for c in stays[t]} for row in after[t]), key=str) for t in stays}
    assert seen == {t: sorted(({c: row[c] for c in stays[t]} for row in before[t]), key=str) for t in stays}
    copies = list((tmp_path / "restore-points").glob("*.db")) if version else []
    assert [rows(copy) for copy in copies] == ([before] if version else [])
    db = Database(path, [])
    assert len(db.read("SELECT rowid FROM messages_fts WHERE messages_fts MATCH 'content'")) == 3
    db.close()


@pytest.mark.parametrize(("owner", "version"), [(o, v) for o, one in FOUND.items() for v in range(1, one.version)])
def test_the_release_before_reads_and_writes_what_this_one_made_and_an_older_one_is_refused(tmp_path, owner, version):
    path, old = tmp_path / "state.db", tmp_path / "old.db"
    opened_with_all(old, owner, version)
    columns = tables(former := Database(old, []))
    former.close()
    Database(path, sorted(FOUND.values(), key=lambda one: one.owner != "sessions")).close()
    release = Schema(owner, FOUND[owner].steps[:version])

    if version < FOUND[owner].readable_from:
        with pytest.raises(UserError, match="newer hermes-agent"):
            Database(path, [release])
        return
    Database(path, [release]).close()
    found = filled(path, columns)
    assert all(len(found[table]) >= 3 for table in columns if table != "delivery_owner")
    opened_with_all(path, owner, FOUND[owner].version)
    assert list((tmp_path / "restore-points").glob("*")) == []


@pytest.mark.parametrize(
    ("owner", "version"), [(owner, version) for owner, one in FOUND.items() for version in range(1, one.version)]
)
def test_tables_of_every_earlier_version_become_those_of_a_new_file(tmp_path, owner, version):
    opened(tmp_path / "old.db", owner, version)
    opened(tmp_path / "old.db", owner, FOUND[owner].version)
    opened(tmp_path / "new.db", owner, FOUND[owner].version)

    assert shape(tmp_path / "old.db") == shape(tmp_path / "new.db")


@pytest.mark.parametrize("owner", FOUND)
def test_a_step_that_the_release_before_must_bear_removes_nothing(owner):
    mine = FOUND[owner]
    for step in mine.steps[mine.readable_from :] if mine.readable_from else ():
        assert not REMOVES.search(step), "expand now, contract a release later: or set min_reader"
