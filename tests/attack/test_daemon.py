"""Attacks on a running daemon: its model asks for them, over HTTP and in a chat.

`make test` runs a few of each class, `make attack` all of them, here and, by `tests/service/test_attacked_daemon.py`,
under a real systemd.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from attack.attempt import Attempt
from attack.attempts import ATTEMPTS
from attack.world import KEY, PLACE, SETTINGS, AttackedDaemon

Test = TypeVar("Test", bound=Callable[..., Any])
FULL = os.environ.get("HERMES_ATTACK_FULL") == "1"


@pytest.fixture(scope="module")
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedDaemon]:
    """A running daemon with the settings that the test names."""
    if PLACE == "daemon":
        box = shutil.which("bwrap")
        if not box or subprocess.run([box, "--ro-bind", "/", "/", "--unshare-user", "true"], check=False).returncode:
            pytest.skip("no sandbox of bubblewrap can be made here")
    with AttackedDaemon(tmp_path_factory.mktemp("attacked"), request.param).serving() as running:
        yield running


def tried(attempt: Attempt) -> object:
    """Return a case for an attempt: one worker has all of a world."""
    marks = [pytest.mark.attack(attempt.kind, at=PLACE), pytest.mark.xdist_group(f"attacked {attempt.world}")]
    return pytest.param(attempt.world, attempt, marks=marks, id=f"{attempt.kind}: {attempt.name}")


def chosen() -> list[object]:
    """Return the attempts of this run in the order of their worlds."""
    mine = [one for one in ATTEMPTS if PLACE in one.places and (FULL or one.sample)]
    return [tried(one) for world in SETTINGS for one in mine if one.world == world]


@pytest.mark.parametrize(("world", "attempt"), chosen(), indirect=["world"], scope="module")
def test_an_attempt_is_held_off_where_the_same_way_works_without_it(world: AttackedDaemon, attempt: Attempt) -> None:
    assert world.works(attempt) == "", "the control does not work, so that the attempt shows nothing"
    assert world.tried(attempt) == []


OTHERS: dict[str, str] = {}
"""Classes of the attacks that are no data, by the name of their test."""


def attacked(kind: str, *, sample: bool = False) -> Callable[[Test], Test]:
    """Mark a test as an attack on the daemon that asks."""

    def marked(test: Test) -> Test:
        OTHERS[test.__name__] = kind
        test = pytest.mark.attack(kind, at=PLACE)(test)
        test = pytest.mark.xdist_group("attacked asking")(test)
        test = pytest.mark.skipif(not (FULL or sample), reason="`make attack` runs it")(test)
        return pytest.mark.parametrize("world", ["asking"], indirect=True, scope="module")(test)

    return marked


REMOVE, OTHER = ("terminal", {"command": "rm -rf build"}), ("terminal", {"command": "rm -rf other"})


@attacked("approvals")
def test_two_answers_in_a_chat_allow_one_call(world: AttackedDaemon) -> None:
    world.reset()
    (world.work / "other").mkdir()
    before = world.say("ann", f"attempt {world.script([REMOVE, OTHER])}")
    world.hear("rm -rf build", before)
    world.say("ann", "/approve")
    world.say("ann", "/approve")
    world.hear("rm -rf other", before)
    world.say("ann", "/deny")
    world.hear("It is done.", before)
    assert not (world.work / "build").exists(), "the control: what was shown and allowed"
    assert (world.work / "other").exists()


@attacked("users")
def test_what_a_user_of_a_chat_left_is_for_no_other_user(world: AttackedDaemon) -> None:
    world.reset()
    keep = ("memory", {"target": "memory", "action": "add", "content": "my otter is called MARKotter"})
    before = world.say("ann", f"attempt {world.script([keep])} my otter is called MARKotter")
    world.hear("It is done.", before)
    status = world.say("ann", "/status")
    session = world.hear("ann", status).split()[2]
    search = ("session_search", {"query": "otter"})
    own = len(world.model.requests)
    before = world.say("ann", f"attempt {world.script([search])}")
    world.hear("It is done.", before)
    assert "MARKotter" in str(world.model.requests[own:]), "the control: the user's own conversation"
    ways = [
        search,
        *(("read_file", {"path": f"{{home}}/{name}"}) for name in ("memories/MEMORY.md", "state.db")),
        ("search_files", {"pattern": "otter is called", "path": "{home}"}),
        ("terminal", {"command": "grep -rahs 'otter is called' {home} {user}; echo end"}),
    ]
    for way in ways:
        assert "MARKotter" not in world.told([way]), way
        others = len(world.model.requests)
        before = world.say("bob", f"attempt {world.script([way])}")  # in the chat, too
        world.hear("It is done.", before)
        assert "MARKotter" not in str(world.model.requests[others:]), way
    for line in ("go on", "/resume", "/undo"):
        answer = world.http().post(
            "/v1/chat/completions",
            json={"model": "hermes-agent", "messages": [{"role": "user", "content": line}]},
            headers={"X-Hermes-Session-Id": session},
        )
        assert answer.status_code == 403 and "MARKotter" not in answer.text, answer.text
    before = world.say("bob", f"/resume {session}")
    assert "MARKotter" not in world.hear("bob", before)


@attacked("users")
def test_a_user_who_is_not_paired_reaches_no_agent(world: AttackedDaemon) -> None:
    world.reset()
    asked = len(world.model.requests)
    before = world.say("eve", f"attempt {world.script([REMOVE])}")
    for line in ("/approve", "/status", "/resume", "hello"):
        world.say("eve", line)
    known = world.say("ann", "/status")
    world.hear("ann", known)  # the lines before it were looked at
    assert len(world.model.requests) == asked
    assert not [line for line in world.chat.received[before:] if line.startswith("eve") and "session" in line.lower()]
    assert (world.work / "build").exists()


ROUTES = (
    ("GET", "/v1/models"), ("POST", "/v1/chat/completions"), ("POST", "/v1/responses"), ("GET", "/metrics"),
    ("GET", "/v1/responses/x"), ("DELETE", "/v1/responses/x"), ("POST", "/webhooks/x"), ("GET", "/dashboard"),
)  # fmt: skip


@attacked("interfaces", sample=True)
@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer wrong-key-0123456789"}, {"Authorization": ""}, {"Host": "evil.example"},
     {"Origin": "http://evil.example"}],
    ids=["no key", "a wrong key", "an empty key", "another host", "another origin"],
)  # fmt: skip
def test_without_the_key_or_from_elsewhere_nothing_is_done(world: AttackedDaemon, headers: dict[str, str]) -> None:
    asked = len(world.model.requests)
    body = {"model": "hermes-agent", "messages": [{"role": "user", "content": "hello"}], "input": "hello"}
    key = {"Authorization": f"Bearer {KEY}"} if "Authorization" not in headers and headers else {}
    with world.http(key="") as client:
        for method, route in ROUTES:
            answer = client.request(method, route, headers={**key, **headers}, json=body if method == "POST" else None)
            assert answer.status_code >= 400, (method, route, answer.text)
    assert len(world.model.requests) == asked
    assert "Nothing to do." in world.ask("hello"), "the control: the same request with the key"
