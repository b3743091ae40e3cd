"""Every owner's tables come from each earlier version to the present one, and the release before can read them."""

from __future__ import annotations

import importlib
import pkgutil
import re

import pytest

import hermes_agent
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
