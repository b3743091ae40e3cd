"""No spelling of a path leads a file tool to a secret, or to a change that nobody allowed."""

from __future__ import annotations

import contextlib
import contextvars
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from attack.racing import exchanging
from hermes_agent.workspace.patch_file import PatchTool
from hermes_agent.workspace.paths import PathRules
from hermes_agent.workspace.read_file import ReadFileTool
from hermes_agent.workspace.search_files import SearchFilesTool
from hermes_agent.workspace.tool_context import ToolContext
from hermes_agent.workspace.write_file import WriteFileTool

SECRET = os.urandom(12).hex()
WORDS = """
    .. . ... project sub user outside f.txt new ~ .hermes .ssh id_rsa .env .git hooks to-home to-outside to-secret
    to-root to-self loop hard hard-key sub/up
    auth.json proc self thread-self 1 fd 0 root cwd environ mem dev stdin zero tty shm
    profiles work state.db restore-points p.db f.txt. F.TXT .ENV ｆ.txt ․․ %2e%2e .netrc credentials KEY pipe kcore
    .local/state/hermes daemon-key
"""
ODD = ["", "f.txt ", "..\\", "a\0b", "\n", "x" * 300, "\u202egne", "\udcff"]
PIECES = st.sampled_from([*WORDS.split(), *ODD])


class GuardedTree:
    """A working directory among things that are nobody's to touch."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.user, self.cwd = base / "user", base / "user" / "project"
        home = self.user / ".hermes"
        secrets = [home / ".env", home / "auth.json", home / "state.db", home / "restore-points" / "p.db"]
        secrets += [home / "profiles" / "work" / ".env", self.user / ".ssh" / "id_rsa", self.user / ".netrc"]
        secrets += [base / "credentials" / "KEY", self.user / ".local" / "state" / "hermes" / "daemon-key"]
        for path in (*secrets, self.cwd / "sub" / "f.txt", self.cwd / "f.txt", base / "outside" / "f.txt"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(SECRET if path in secrets else "harmless\n")
        (self.cwd / ".git" / "hooks").mkdir(parents=True)
        links = {
            "to-home": home,
            "to-outside": base / "outside",
            "to-secret": secrets[0],
            "to-root": "/",
            "loop": "loop",
        }
        links |= {"to-self": "/proc/self", "sub/up": "../.."}
        for name, target in links.items():
            (self.cwd / name).symlink_to(target)
        self.names = {self.cwd / "hard": secrets[0], self.cwd / "hard-key": secrets[5]}
        self.link()
        os.mkfifo(self.cwd / "pipe")
        self.here = ToolContext(PathRules(str(home), str(self.user), str(base / "credentials")), self.cwd)
        self.before = self.outside()

    def link(self) -> None:
        """Give secrets other names, unless they have them."""
        for name, secret in self.names.items():
            if not name.exists() or not name.samefile(secret):
                name.unlink(missing_ok=True)
                os.link(secret, name)

    def outside(self) -> dict[str, bytes | None]:
        """Return everything that is outside of the working directory, or in its `.git`."""
        found: dict[str, bytes | None] = {}
        for place, folders, names in os.walk(self.base):
            if place == str(self.cwd):
                folders[:] = [".git"]
                names = []
            found |= dict.fromkeys((f"{place}/{name}" for name in folders), None)
            found |= {f"{place}/{name}": Path(place, name).read_bytes() for name in names if name != "pipe"}
        return found


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return GuardedTree(tmp_path_factory.mktemp("world").resolve())


@st.composite
def paths(draw) -> str:
    start = draw(
        st.sampled_from(
            ["", "", "/", "~/", "//", "{base}/", "{cwd}/", "../", "/proc/self/root/{base}/", "/proc/self/cwd/"]
        )
    )
    return start + draw(st.sampled_from(["/", "/", "//", "/./"])).join(draw(st.lists(PIECES, min_size=1, max_size=5)))


def alone(call: Any, *args: Any) -> dict[str, Any]:
    """Call a handler as somebody does who asked nobody."""
    return json.loads(contextvars.Context().run(call, *args))


CALLS = (
    lambda here, path: alone(ReadFileTool(here), {"path": path}),
    lambda here, path: alone(WriteFileTool(here), {"path": path, "content": "owned"}),
    lambda here, path: alone(
        PatchTool(here), {"mode": "replace", "path": path, "old_string": "s", "new_string": "owned"}
    ),
    lambda here, path: alone(PatchTool(here), {"mode": "patch", "patch": f"*** Add File: {path}\n+owned"}),
    lambda here, path: alone(PatchTool(here), {"mode": "patch", "patch": f"*** Delete File: {path}"}),
    lambda here, path: alone(
        PatchTool(here),
        {"mode": "patch", "patch": f"*** Update File: sub/f.txt\n*** Move to: {path}\n-harmless\n+owned"},
    ),
)


@settings(max_examples=int(os.environ.get("HERMES_PATH_EXAMPLES", "80")))
@given(paths())
def test_no_spelling_of_a_path_reads_a_secret_or_changes_what_nobody_allowed(world, path):
    path = path.format(base=world.base, cwd=world.cwd) if path.startswith(("{", "/proc/self/root/{")) else path
    for call in CALLS:
        world.link()
        (world.cwd / "sub").mkdir(exist_ok=True)
        with contextlib.suppress(OSError):
            (world.cwd / "sub" / "f.txt").write_text("harmless\n")
        result = call(world.here, path)
        assert SECRET not in json.dumps(result), path
        assert world.outside() == world.before, path


@settings(max_examples=int(os.environ.get("HERMES_PATH_EXAMPLES", "80")) // 15)
@given(paths())
@example("x" * 300)
def test_no_spelling_of_a_path_searches_a_secret(world, path):
    path = path.format(base=world.base, cwd=world.cwd) if path.startswith(("{", "/proc/self/root/{")) else path
    with contextlib.suppress(OSError, ValueError):
        if not os.path.realpath(os.path.join(world.cwd, path)).startswith(str(world.base)):
            return  # there is none
    for environ in ({"PATH": ""}, {"PATH": os.environ["PATH"]}):
        result = alone(SearchFilesTool(world.here, environ, deadline_s=2), {"pattern": SECRET[:6], "path": path})
        assert SECRET not in json.dumps(result), path


@pytest.mark.attack("races")
def test_a_directory_that_is_a_link_at_times_is_never_the_way_out(tmp_path, attempt):
    world = GuardedTree(tmp_path.resolve())
    (world.cwd / "real").mkdir()
    (world.cwd / "link").symlink_to(world.base / "outside")
    written = 0
    with exchanging(world.cwd / "real", world.cwd / "link"):
        for number in range(150):
            written += "created" in alone(WriteFileTool(world.here), {"path": "real/g.txt", "content": str(number)})
            alone(PatchTool(world.here), {"mode": "patch", "patch": "*** Delete File: real/f.txt"})
            attempt(world.outside() == world.before, str(number))

    assert written > 0


@pytest.mark.attack("races")
def test_a_file_that_is_a_link_to_a_secret_at_times_is_never_read(tmp_path, attempt):
    world = GuardedTree(tmp_path.resolve())
    (world.cwd / "link").symlink_to(world.user / ".hermes" / ".env")
    read = 0
    with exchanging(world.cwd / "f.txt", world.cwd / "link"):
        for _ in range(150):
            result = json.dumps(alone(ReadFileTool(world.here), {"path": "f.txt"}))
            attempt(SECRET not in result, result)
            read += "harmless" in result
            alone(WriteFileTool(world.here), {"path": "f.txt", "content": "harmless\n"})

    assert world.outside() == world.before
    assert read > 0


@pytest.mark.attack("races")
def test_a_directory_that_is_a_link_at_times_is_never_read_listed_or_searched_elsewhere(tmp_path, attempt):
    world = GuardedTree(tmp_path.resolve())
    (world.cwd / "real").mkdir()
    (world.cwd / "real" / "f.txt").write_text("harmless\n")
    (world.base / "credentials" / "f.txt").write_text(SECRET)
    (world.base / "credentials" / SECRET).mkdir()
    (world.cwd / "link").symlink_to(world.base / "credentials")
    search, read = SearchFilesTool(world.here, {"PATH": ""}, deadline_s=5), 0
    with exchanging(world.cwd / "real", world.cwd / "link"):
        for number in range(120):
            result = json.dumps(alone(ReadFileTool(world.here), {"path": "real/f.txt"}))
            attempt(SECRET not in result, result)
            read += "harmless" in result
            result = json.dumps(alone(ReadFileTool(world.here), {"path": "real"}))
            attempt(SECRET not in result, result)
            if number % 10 == 0:
                result = json.dumps(alone(search, {"pattern": SECRET[:6], "path": "."}))
                attempt(SECRET not in result, result)
    assert read > 0


def test_the_key_that_a_member_of_the_daemons_group_has_is_not_for_tools(tmp_path):
    key = tmp_path / ".local" / "state" / "hermes" / "daemon-key"
    assert PathRules(str(tmp_path / ".hermes"), str(tmp_path)).secret_reason(str(key)) == "it holds credentials"
