from __future__ import annotations

import os
import sqlite3
import stat
import threading

import pytest

from hermes_agent.core.errors import EXIT_CONFIG, UserError
from hermes_agent.store import Database, Schema
from hermes_agent.store.migrations import list_restore_points

ONE = "CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT NOT NULL);"
TWO = "ALTER TABLE note ADD COLUMN mood TEXT;"
THREE = "CREATE INDEX note_mood ON note (mood);"


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


def test_a_release_reads_and_writes_the_next_schema_and_refuses_what_comes_after(tmp_path):
    path = tmp_path / "state.db"
    Database(path, [Schema("notes", (ONE, TWO))]).close()
    before = Database(path, [Schema("notes", (ONE,))])
    with before.write() as connection:
        connection.execute("INSERT INTO note (text) VALUES ('by the release before')")
    before.close()
    db = Database(path, [Schema("notes", (ONE, TWO, THREE))])
    assert [row["text"] for row in db.read("SELECT text FROM note")] == ["by the release before"]
    db.close()
    with pytest.raises(UserError) as caught:
        Database(path, [Schema("notes", (ONE,))])

    assert caught.value.message == (
        f"{path} was written by a newer hermes-agent: tables of notes are at version 3, which releases can read that"
        " know version 2; this one knows 1"
    )
    db = Database(path, [Schema("notes", (ONE, TWO))])
    assert versions(db) == {"notes": 3}
    db.close()


def test_a_step_that_removes_something_says_who_can_still_read_the_tables(tmp_path):
    path = tmp_path / "state.db"
    Database(path, [Schema("notes", (ONE, TWO, "ALTER TABLE note DROP COLUMN mood;"), min_reader=3)]).close()
    with pytest.raises(UserError, match="know version 3; this one knows 2"):
        Database(path, [Schema("notes", (ONE, TWO))])


def test_a_file_from_before_there_was_a_min_reader_is_refused_by_an_older_release_and_migrated_by_this(tmp_path):
    path = tmp_path / "state.db"
    Database(path, [Schema("notes", (ONE, TWO))]).close()
    with sqlite3.connect(path) as raw:
        raw.execute("DROP TABLE schema_min_reader")
    with pytest.raises(UserError, match="know version 2; this one knows 1"):
        Database(path, [Schema("notes", (ONE,))])

    db = Database(path, [Schema("notes", (ONE, TWO, THREE))])
    assert versions(db) == {"notes": 3}
    db.close()


def test_the_file_is_copied_before_tables_in_use_are_changed_and_a_few_copies_stay(tmp_path):
    path = tmp_path / "state.db"
    steps = [ONE]
    Database(path, [Schema("notes", tuple(steps)), Schema("other", ("CREATE TABLE other (x);",))]).close()
    assert list_restore_points(path) == []
    for number in range(7):
        with sqlite3.connect(path) as raw:
            raw.execute("INSERT INTO note (text) VALUES (?)", (str(number),))
        steps.append(f"CREATE TABLE more_{number} (x);")
        Database(path, [Schema("notes", tuple(steps)), Schema(f"new_{number}", ("SELECT 1;",))]).close()

    assert len(list_restore_points(path)) == 5
    assert {stat.S_IMODE(one.stat().st_mode) for one in list_restore_points(path)} == {0o600}
    newest = next(one for one in list_restore_points(path) if one.name.endswith("-notes-7.db"))
    with sqlite3.connect(newest) as copy:
        assert copy.execute("SELECT count(*) FROM note").fetchone() == (7,)
        assert not copy.execute("SELECT 1 FROM sqlite_master WHERE name = 'more_6'").fetchall()


def test_without_room_for_the_copy_nothing_is_changed(tmp_path):
    path = tmp_path / "state.db"
    Database(path, [Schema("notes", (ONE,))]).close()
    (tmp_path / "restore-points").write_text("in the way")
    with pytest.raises(UserError, match="before its tables are changed"):
        Database(path, [Schema("notes", (ONE, TWO))])

    db = Database(path, [Schema("notes", (ONE,))])
    assert versions(db) == {"notes": 1}
    db.close()


def test_fifty_sessions_write_and_read_at_once_and_nobody_finds_the_database_locked(tmp_path):
    path = tmp_path / "state.db"
    start = threading.Barrier(50)
    failed = []

    def session(number):
        try:
            start.wait()
            db = Database(path, [Schema("notes", (ONE,)), Schema("other", ("CREATE TABLE other (x);",))])
            for turn in range(8):
                with db.write(durable=turn % 2 == 0) as connection:
                    connection.execute("INSERT INTO note (text) VALUES (?)", (f"{number}.{turn}",))
                with db.snapshot() as connection:
                    connection.execute("SELECT count(*) FROM note").fetchone()
            db.close()
        except BaseException as exc:
            failed.append(exc)

    threads = [threading.Thread(target=session, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failed == []
    db = Database(path, [])
    assert db.read("SELECT count(DISTINCT text) FROM note")[0][0] == 400
    db.close()


def test_a_reader_waits_for_no_writer(tmp_path):
    path = tmp_path / "state.db"
    writer, reader = (Database(path, [Schema("notes", (ONE,))]) for _ in range(2))
    with writer.write() as connection:
        connection.execute("INSERT INTO note (text) VALUES ('not yet')")
        assert reader.read("SELECT count(*) FROM note")[0][0] == 0
    assert reader.read("SELECT count(*) FROM note")[0][0] == 1
    writer.close()
    reader.close()


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


def test_a_damaged_file_is_an_error_that_no_restart_mends(tmp_path):
    """Status 78, which the unit does not restart; a file that is locked for a while has another one."""
    path = tmp_path / "state.db"
    path.write_bytes(b"this is no database" * 400)
    with pytest.raises(UserError, match="cannot open") as caught:
        Database(path, [])
    assert caught.value.exit_status == EXIT_CONFIG
    assert "restore a copy" in caught.value.hint
    assert path.read_bytes().startswith(b"this is no database")
