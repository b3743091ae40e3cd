from __future__ import annotations

import os
import sqlite3
import stat
import threading

import pytest

from hermes_agent.core.errors import UserError
from hermes_agent.store import Database, Schema

ONE = "CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT NOT NULL);"
TWO = "ALTER TABLE note ADD COLUMN mood TEXT;"


def versions(db):
    return {row["owner"]: row["version"] for row in db.read("SELECT * FROM schema_version")}


def test_a_new_file_is_private_and_has_every_table(tmp_path):
    path = tmp_path / "state.db"
    before = os.umask(0)
    try:
        db = Database(path, [Schema("notes", (ONE, TWO)), Schema("other", ("CREATE TABLE other (x);",))])
        with db.write() as connection:
            connection.execute("INSERT INTO note (text, mood) VALUES ('a', 'b')")
    finally:
        os.umask(before)

    assert versions(db) == {"notes": 2, "other": 1}
    assert db.read("PRAGMA journal_mode")[0][0] == "wal"
    assert {stat.S_IMODE(f.stat().st_mode) for f in tmp_path.iterdir()} == {0o600}
    db.close()


def test_an_older_file_is_brought_forward_and_keeps_its_rows(tmp_path):
    path = tmp_path / "state.db"
    old = Database(path, [Schema("notes", (ONE,))])
    with old.write() as connection:
        connection.execute("INSERT INTO note (text) VALUES ('kept')")
    old.close()
    db = Database(path, [Schema("notes", (ONE, TWO))])

    assert [tuple(row) for row in db.read("SELECT text, mood FROM note")] == [("kept", None)]
    assert versions(db) == {"notes": 2}
    db.close()


def test_opening_again_changes_nothing(tmp_path):
    path = tmp_path / "state.db"
    for _ in range(3):
        Database(path, [Schema("notes", (ONE, TWO))]).close()
    db = Database(path, [Schema("notes", (ONE, TWO))])

    assert versions(db) == {"notes": 2}
    db.close()


def test_a_step_that_fails_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "state.db"
    Database(path, [Schema("notes", (ONE,))]).close()
    broken = "CREATE TABLE half (x);\nINSERT INTO half VALUES (1);\nSELECT nonsense FROM nowhere;"
    with pytest.raises(UserError, match="no such table: nowhere"):
        Database(path, [Schema("notes", (ONE, TWO, broken))])

    db = Database(path, [Schema("notes", (ONE,))])
    assert versions(db) == {"notes": 1}
    assert not db.read("SELECT 1 FROM sqlite_master WHERE name = 'half'")
    assert [row["name"] for row in db.read("PRAGMA table_info(note)")] == ["id", "text"]
    db.close()


def test_a_file_of_a_newer_release_is_refused_and_unharmed(tmp_path):
    path = tmp_path / "state.db"
    Database(path, [Schema("notes", (ONE, TWO))]).close()
    with pytest.raises(UserError) as caught:
        Database(path, [Schema("notes", (ONE,))])

    assert caught.value.message == (
        f"{path} was written by a newer hermes-agent: tables of notes are at version 2, this release knows 1"
    )
    db = Database(path, [Schema("notes", (ONE, TWO))])
    assert versions(db) == {"notes": 2}
    db.close()


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TABLE a (x); CREATE TABLE b (y);",
        "-- a comment; with a semicolon\nCREATE TABLE a (x);\nCREATE TABLE b (y) -- no semicolon at the end",
        "CREATE TABLE a (x DEFAULT 'one; two');\nCREATE TABLE b (y);\n-- the end",
        "CREATE TABLE a (x);\nCREATE TABLE b (y);\n"
        "CREATE TRIGGER t AFTER INSERT ON a BEGIN\n"
        "  INSERT INTO b VALUES (new.x);\n  DELETE FROM b WHERE y = 0;\nEND;\n",
    ],
)
def test_scripts_of_every_shape_are_run(tmp_path, script):
    db = Database(tmp_path / "state.db", [Schema("o", (script,))])

    assert {row["name"] for row in db.read("SELECT name FROM sqlite_master WHERE type = 'table'")} >= {"a", "b"}
    db.close()


def test_what_is_no_database_is_named_with_a_way_out(tmp_path):
    path = tmp_path / "state.db"
    path.write_text("this is a text, and it is long enough to be taken for something else" * 20)
    with pytest.raises(UserError, match=r"cannot open .*state\.db: file is not a database"):
        Database(path, [])

    assert path.read_text().startswith("this is a text")


def test_a_directory_that_is_missing_is_named(tmp_path):
    with pytest.raises(UserError, match=r"cannot open .*No such file or directory"):
        Database(tmp_path / "gone" / "state.db", [])


def test_a_block_that_fails_is_rolled_back_and_the_next_works(tmp_path):
    db = Database(tmp_path / "state.db", [Schema("notes", (ONE,))])
    with pytest.raises(KeyError), db.write() as connection:
        connection.execute("INSERT INTO note (text) VALUES ('lost')")
        raise KeyError("x")
    with db.write() as connection:
        connection.execute("INSERT INTO note (text) VALUES ('kept')")

    assert [row["text"] for row in db.read("SELECT text FROM note")] == ["kept"]
    db.close()


def test_a_commit_that_fails_is_rolled_back_and_the_next_works(tmp_path):
    schema = (
        "CREATE TABLE parent (id INTEGER PRIMARY KEY);"
        "CREATE TABLE child (parent REFERENCES parent DEFERRABLE INITIALLY DEFERRED);"
    )
    db = Database(tmp_path / "state.db", [Schema("o", (schema,))])
    with pytest.raises(sqlite3.IntegrityError), db.write() as connection:
        connection.execute("INSERT INTO child VALUES (7)")
    with db.write() as connection:
        connection.execute("INSERT INTO parent VALUES (7)")

    assert not db.read("SELECT * FROM child")
    db.close()


def test_an_error_that_ended_the_transaction_is_the_one_that_is_seen(tmp_path):
    db = Database(tmp_path / "state.db", [Schema("notes", (ONE + "CREATE UNIQUE INDEX u ON note (text);",))])
    insert = "INSERT OR ROLLBACK INTO note (text) VALUES ('a')"
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"), db.write() as connection:
        connection.execute(insert)
        connection.execute(insert)

    assert not db.read("SELECT * FROM note")
    db.close()


def test_two_that_open_a_new_file_at_once_migrate_it_once(tmp_path):
    path, errors, barrier = tmp_path / "state.db", [], threading.Barrier(6)

    def work():
        barrier.wait(20)
        try:
            Database(path, [Schema("notes", (ONE, TWO))]).close()
        except Exception as exc:
            errors.append(exc)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    db = Database(path, [Schema("notes", (ONE, TWO))])

    assert errors == []
    assert versions(db) == {"notes": 2}
    db.close()


def test_two_connections_write_one_after_the_other(tmp_path):
    first = Database(tmp_path / "state.db", [Schema("notes", (ONE,))])
    second = Database(tmp_path / "state.db", [Schema("notes", (ONE,))])

    def many(db):
        for _ in range(50):
            with db.write() as connection:
                count = connection.execute("SELECT count(*) FROM note").fetchone()[0]
                connection.execute("INSERT INTO note (text) VALUES (?)", (str(count),))

    threads = [threading.Thread(target=many, args=(db,)) for db in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert sorted(int(row["text"]) for row in first.read("SELECT text FROM note")) == list(range(100))
    first.close()
    second.close()
