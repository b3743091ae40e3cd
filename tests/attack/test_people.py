"""Users and kinds of data: what one user's sessions leave behind, and every way of another's to it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from attack.home_rows import ROWS, furnish, readable
from attack.home_rows import mark as row
from hermes_agent.adapters.media import cache_document_from_bytes
from hermes_agent.config import hermes_home
from hermes_agent.contracts.image_video import save_bytes
from hermes_agent.core.errors import UserError
from hermes_agent.sessions import API_SERVER, LOCAL
from hermes_agent.testing import PluginHost, plugin_host
from hermes_agent.tools import CallScope
from hermes_agent.tools.results import adopt_file

pytestmark = pytest.mark.xdist_group("people")  # one home for all tests
FULL = os.environ.get("HERMES_ATTACK_FULL") == "1"
PEOPLE = (
    LOCAL,
    API_SERVER,
    "memorychat:ann",
    "memorychat:bob",
    "memorychat:chat:room",
    "telegram:4711",
    "matrix:@ann:example.org",
    "signal:+491700000",
    "webhook:ci",
    "member:0123456789abcdef",
)
MAY = {(LOCAL, API_SERVER)}
"""The key of the HTTP server lies in the home, so the owner of the home sees its sessions."""


class Always:
    """A user who allows whatever is asked."""

    async def ask(self, request: Any) -> str:
        """Allow it."""
        return "once"


@dataclass
class Person:
    """One principal with a session, and what it left behind."""

    number: int
    principal: str
    scope: CallScope
    host: PluginHost
    paths: dict[str, Path] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)

    def mark(self, kind: str) -> str:
        """Return a text that stands in this user's data of one kind and nowhere else."""
        return f"MARK{self.number:02}{kind}"

    def call(self, tool: str, **args: Any) -> str:
        """Call a tool in this user's session; return its result."""
        return self.host.host.dispatcher.run_inline(f"c{self.number}", tool, args, self.scope).result


def plugin(ctx: Any) -> None:
    """Register a tool with a long result, and one that draws."""
    schema = {"parameters": {"type": "object", "properties": {"mark": {"type": "string"}}}}

    def draw(args: dict[str, Any], **_: Any) -> str:
        return json.dumps({"image": str(save_bytes("images", args["mark"].encode(), prefix="x", extension="txt"))})

    ctx.register_tool(
        "long", "t", {"name": "long", **schema}, lambda args, **_: json.dumps({"x": f"{args['mark']}\n" * 9000})
    )

    def keep(args: dict[str, Any], **_: Any) -> str:
        folder = hermes_home() / "band-libs" / "songs"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "song.txt").write_text(args["mark"])
        return json.dumps({"file": str(folder / "song.txt")})

    ctx.register_tool("draw", "t", {"name": "draw", **schema}, draw)
    ctx.register_tool("keep", "t", {"name": "keep", **schema}, keep)
    ctx.register_hook("pre_llm_call", lambda **kw: {"context": f"{kw['user_message']} hook\n" * 900})


@pytest.fixture(scope="module")
def people() -> Iterator[list[Person]]:
    """Ten users of one home, each of whom has left all kinds of data."""
    config = {
        "checkpoints": {"enabled": True},
        "terminal": {"sandbox": "bwrap"},
        "auxiliary": {"title_generation": {"enabled": False}},
        "webhooks": {"push": {"check": "gitlab", "prompt": "{text}", "deliver": "log"}},
    }
    with plugin_host(plugin, config=config) as host:
        everybody = []
        for number, principal in enumerate(PEOPLE):
            host.model.say("Noted.")
            talk = host._run(_spoken(host, principal, number))
            person = Person(number, principal, replace(talk.scope("turn"), turn_id=f"turn{number}"), host)
            _leave(person)
            everybody.append(person)
        yield everybody


async def _spoken(host: PluginHost, principal: str, number: int) -> Any:
    platform = principal.partition(":")[0].replace("local", "cli")
    talk = await host.host.agent.open(None, platform=platform, approver=Always(), principal=principal)
    async with contextlib.aclosing(talk.turn(f"MARK{number:02}transcript")) as turn:
        async for _ in turn:
            pass
    return talk


def _leave(person: Person) -> None:
    """Let a user leave data of each kind."""
    home, mark = person.host.home, person.mark
    for target in ("memory", "user"):
        assert "Saved" in person.call("memory", target=target, action="add", content=mark(target))
    reader = person.host.host.people.reader(person.principal)
    notes = home / "memories" / (f"people/{reader.notes}" if reader.notes else "")
    person.paths |= {"memory": notes / "MEMORY.md", "user": notes / "USER.md"}
    found = re.search(r"saved to: (\S+)", person.call("long", mark=mark("result")))
    assert found is not None
    person.paths["result"] = Path(found[1])
    person.paths["generated"] = Path(json.loads(person.call("draw", mark=mark("generated")))["image"])
    cached = cache_document_from_bytes(mark("upload").encode(), "x.txt")
    person.paths["upload"] = Path(adopt_file(cached, home, person.principal))
    (person.paths["hook"],) = (home / "hook_outputs" / person.scope.session_id).iterdir()
    started = json.loads(person.call("terminal", command=f"echo {mark('process')}; sleep 99", background=True))
    if "session_id" in started:  # where a sandbox can be made
        person.ids["process"] = started["session_id"]
        person.paths["process"] = home / "processes" / started["session_id"]
    person.call("todo", todos=[{"id": "1", "content": mark("todo")}])
    job = json.loads(person.call("cronjob", action="create", schedule="0 4 * * *", prompt=mark("job")))
    person.ids["job"] = job["job"]["id"]
    file = person.host.workspace / f"file{person.number}.txt"
    file.write_text(mark("checkpoint"))
    person.call("write_file", path=str(file), content="public")
    if person.principal == LOCAL:  # what a plugin keeps below the home is its owner's
        person.paths["plugin"] = Path(json.loads(person.call("keep", mark=mark("plugin")))["file"])
    person.paths["store"], person.paths["config"] = home / "state.db", home / "config.yaml"


def ways(one: Person, other: Person) -> Iterator[tuple[str, str]]:
    """Yield what `one` gets to see by each way to the data of `other`."""
    home = one.host.home
    for kind, path in other.paths.items():
        if kind in ("store", "config"):
            continue
        yield f"read_file {kind}", one.call("read_file", path=str(path))
        yield f"read_file folder of {kind}", one.call("read_file", path=str(path.parent))
        if FULL or kind == "upload":  # a process for each
            yield f"search_files in {kind}", one.call("search_files", pattern="MARK", path=str(path.parent))
        yield f"vision_analyze {kind}", one.call("vision_analyze", image_url=str(path), question="What?")
        link = one.host.workspace / "link"
        link.unlink(missing_ok=True)
        link.symlink_to(path)
        yield f"read_file link to {kind}", one.call("read_file", path="link")
        patch = {"path": str(path), "old_string": "x", "new_string": "y"}
        yield f"patch {kind}", one.call("patch", **patch)
    for root in (home, home.parent):
        if root == home or FULL:
            yield (
                f"search_files below {root}",
                one.call("search_files", pattern=f"MARK{other.number:02}", path=str(root)),
            )
    names = one.call("search_files", pattern="*.txt", target="files", path=str(home), limit=500)
    yield "names of files", "".join(f"MARK{other.number:02}{k}" for k, p in other.paths.items() if p.name in names)
    yield "session_search", one.call("session_search", query="Noted", limit=10)
    yield "session_search by id", one.call("session_search", session_id=other.scope.session_id)
    yield "cronjob list", one.call("cronjob", action="list")
    yield "cronjob update", one.call("cronjob", action="update", job_id=other.ids["job"], name="x")
    yield "todo", one.call("todo")
    if "process" in other.ids:
        for action in ("list", "log", "kill"):
            yield f"process {action}", one.call("process", action=action, session_id=other.ids["process"])
    yield "/rollback", _command(one, "/rollback")
    for number in (1, 2, 3, 11):
        yield f"/rollback diff {number}", _command(one, f"/rollback diff {number}")
    try:
        one.host._run(one.host.host.agent.load_if_allowed(other.scope.session_id, one.principal))
        yield "session", other.mark("session")
    except UserError:
        yield "session", ""
    is_open = one.host.host.gateway().deps.is_open(one.principal)
    sent = [kind for kind in ("upload", "result", "generated") if is_open(str(other.paths[kind]))]
    yield "sent as a file", "".join(map(other.mark, sent))


def _command(person: Person, line: str) -> str:
    name, _, arguments = line[1:].partition(" ")
    slash = person.host.host.slash
    command = slash.commands.find(name, "terminal")
    assert command is not None
    from hermes_agent.agent.command_router import CommandCall

    return str(person.host._run(slash.run(CommandCall(command, arguments), person.scope)) or "")


def _pairs(people: list[Person]) -> Iterator[tuple[Person, Person]]:
    every = [(a, b) for a, b in itertools.permutations(people, 2) if (a.principal, b.principal) not in MAY]
    if FULL:
        yield from every
    else:  # each user once as the one who looks, and as the one who is looked at
        yield from ((a, b) for a, b in every if (b.number - a.number) % len(people) == 3)


@pytest.mark.attack("users")
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_no_user_reaches_what_another_left_behind(people: list[Person], attempt: Callable[[bool, str], None]) -> None:
    leaks: dict[tuple[str, str], list[str]] = {}
    for one, other in _pairs(people):
        for way, seen in ways(one, other):
            held = f"MARK{other.number:02}" not in seen
            attempt(held, f"{one.principal} sees {other.principal}'s data by {way}")
            if not held:
                leaks.setdefault((one.principal, other.principal), []).append(way)
    for (one_name, other_name), found in leaks.items():
        print(f"{one_name:>24} → {other_name:<24} {', '.join(found)}")


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_each_user_reads_what_is_their_own(people: list[Person]) -> None:
    for person in people:
        for kind in ("memory", "user", "result", "generated", "upload", "hook"):
            mark = person.mark("transcript" if kind == "hook" else kind)
            assert mark in person.call("read_file", path=str(person.paths[kind])), (person.principal, kind)
        if person.principal == LOCAL:
            assert person.mark("plugin") in person.call("read_file", path=str(person.paths["plugin"]))
            found = person.call("search_files", pattern=person.mark("plugin"), path=str(person.host.home))
            assert "song.txt" in found
            assert "song.txt" in person.call(
                "search_files", pattern="*", target="files", path=f"{person.host.home}/band-libs"
            )
        assert person.mark("job") in person.call("cronjob", action="list")
        assert person.mark("todo") in person.call("todo")
        assert "puts everything back" in _command(person, "/rollback")


@pytest.mark.attack("users")
def test_each_kind_of_entry_of_the_home_is_open_to_whom_its_row_says(
    people: list[Person], attempt: Callable[[bool, str], None]
) -> None:
    home = people[0].host.home
    unknown = {path.name for path in home.iterdir()} - ROWS.keys()
    assert not unknown, f"the home has entries that are in no row: {unknown}"
    before = {path for path in home.rglob("*") if path.is_file()}
    try:
        files = furnish(home)
        for person in people:
            for entry, (_, whose) in ROWS.items():
                seen = person.call("read_file", path=str(files[entry]))
                what = f"{person.principal} reads {entry}"
                if readable(whose, is_owner=person.principal == LOCAL):
                    assert row(entry) in seen, what
                else:
                    attempt("MARK" not in seen and "error" in json.loads(seen), what)
            found = person.call("search_files", pattern="MARKrow", path=str(home), limit=500)
            for entry, (_, whose) in ROWS.items():
                if not readable(whose, is_owner=person.principal == LOCAL):
                    attempt(row(entry) not in found, f"{person.principal} finds {entry}")
    finally:
        for path in {path for path in home.rglob("*") if path.is_file()} - before:
            path.unlink()


@pytest.mark.attack("users")
def test_no_user_writes_to_what_another_left_behind(people: list[Person], attempt: Callable[[bool, str], None]) -> None:
    for one, other in _pairs(people):
        for kind, path in other.paths.items():
            if path.is_dir() or (kind == "config" and one.principal == LOCAL):
                continue
            before = path.read_bytes() if kind != "store" else b""
            said = one.call("write_file", path=str(path), content="taken over")
            held = "error" in json.loads(said) and (kind == "store" or path.read_bytes() == before)
            attempt(held, f"{one.principal} writes {other.principal}'s {kind}")


@pytest.mark.attack("users", at="bubblewrap")
def test_a_sandboxed_command_reaches_nothing_that_users_left_behind(
    people: list[Person], attempt: Callable[[bool, str], None]
) -> None:
    if "process" not in people[0].ids:
        pytest.skip("no sandbox of bubblewrap can be made here")
    for one in people if FULL else people[2:5]:
        paths = " ".join(f"'{path}'" for other in people for path in other.paths.values())
        shell = one.call("terminal", command=f"cat {paths} 2>&1; grep -r MARK '{one.host.home}' 2>&1; true")
        for other in people:
            attempt(
                f"MARK{other.number:02}" not in shell, f"{one.principal} sees {other.principal}'s data by a command"
            )
    code = "import pathlib\n" + "\n".join(
        f"print(pathlib.Path({str(path)!r}).exists())" for path in people[0].paths.values()
    )
    said = people[3].call("execute_code", code=code)
    attempt("True" not in said, "a script sees files of another user")


def test_a_session_for_nobody_opens_no_files_of_users(people: list[Person]) -> None:
    nobody = replace(people[0].scope, principal="", session_id="")
    one = replace_person(people[0], nobody)
    assert "another user" in one.call("read_file", path=str(people[0].paths["upload"]))


def replace_person(person: Person, scope: CallScope) -> Person:
    """Return a person with another scope."""
    return Person(person.number, person.principal, scope, person.host, person.paths, person.ids)
