"""Places where commands run (docs/plugins/kinds/terminal_env.md): one suite over every backend that can run here."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from contracts.terminal_places import ENVIRON, OWN, Place, bundled, podman, program, settings
from hermes_agent.contracts.kind import SelectedProvider
from hermes_agent.contracts.terminal_env import (
    BUILTIN_BACKENDS,
    BackendCommand,
    TerminalEnvironmentProvider,
    choose_terminal_env,
)
from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.registry import Conflict
from hermes_agent.plugins.discovery import discover
from hermes_agent.system.installation import BUNDLED_PLUGINS, bundled_plugin
from hermes_agent.workspace.backend_selection import (
    BUNDLED_BACKENDS,
    LocalBackend,
    PluginBackend,
    ProcessLimits,
    choose_backend,
)
from hermes_agent.workspace.paths import PathRules
from hermes_agent.workspace.read_file import ReadFileTool
from hermes_agent.workspace.remote_files import RemoteFiles
from hermes_agent.workspace.sandbox.sandbox import SandboxSelector
from hermes_agent.workspace.task_shells import TaskShells
from hermes_agent.workspace.tool_context import ToolContext


@pytest.fixture(params=[*OWN, "example plugin"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Every implementation."""
    if request.param == "example plugin":
        provider = request.getfixturevalue("example")("terminal_env")
        made = Place(PluginBackend(provider, {"timeout": 30}), "")
    else:
        made = OWN[request.param](tmp_path)
    yield made
    made.close()


def test_output_errors_and_the_exit_code(place: Place) -> None:
    done = place("echo out; echo err >&2; exit 7")

    assert (done.exit_code, done.output, done.truncated) == (7, b"out\nerr\n", False)
    assert place("true").exit_code == 0


def test_the_directory_lasts(place: Place) -> None:
    place("mkdir -p 'a dir/sub'; cd 'a dir/sub'")

    assert place.say("pwd").endswith("/a dir/sub\n")
    assert place.say("cd ..; pwd; true").endswith("/a dir\n")


def test_exported_variables_last_and_go_whatever_is_in_them(place: Place) -> None:
    odd = "two\nlines 'quoted' \"$HOME\" `x` \\ é"
    place(f"export ODD={json.dumps('x')}; ODD=$(cat); export ODD; plain=1; unset HOME", stdin=odd.encode())

    assert place.say('printf %s "$ODD"') == odd
    assert place.say('echo "${plain:-unset} ${HOME:-unset}"') == "unset unset\n"
    place("unset ODD")
    assert place.say('echo "${ODD:-unset}"') == "unset\n"


def test_a_command_that_ends_the_shell_leaves_things_as_they_were(place: Place) -> None:
    place("export KEPT=1")
    assert place("export KEPT=2; cd /; exit 3").exit_code == 3

    assert place.say("echo $KEPT") == "1\n"


def test_a_syntax_error_is_told_and_harms_nothing(place: Place) -> None:
    assert place("echo 'unclosed").exit_code != 0
    assert place.say("echo on") == "on\n"


def test_what_is_told_between_the_marks_is_in_no_output(place: Place) -> None:
    for command in ("true", "set -x; true", "exec 3>&1; echo x >&3", "cd /; printf 'no end'", "printf '\\001<'"):
        output = place.say(command, cwd=place.cwd)
        assert "HERMES" not in output and "__hermes" not in output and "PATH=" not in output, command


@pytest.mark.parametrize("tty", [False, True], ids=["pipe", "terminal"])
def test_functions_and_odd_variables_last_with_a_terminal_and_without(place: Place, tty: bool) -> None:
    bash = "bash" in place.say("echo ${BASH_VERSION:+bash}")
    odd = "two\nlines\r\n\ttab \x01 é\n\n"
    place("export ODD=$(cat; echo .); mkdir -p 'a\nb'; cd 'a\nb'; f() {\n echo \"of $1\"\n }", stdin=odd.encode())
    for _ in range(2):
        place("true", tty=tty)
    place("export MORE=\"${ODD}two\nlines\"; g() {\n echo 'g\n\tis'\n }", tty=tty)

    told = bytes.fromhex(place.say('printf %s "$ODD|$MORE" | od -An -v -tx1')).decode()
    assert told == f"{odd}.|{odd}.two\nlines"
    assert place.say("pwd").endswith("/a\nb\n")
    assert place.say("! command -v f >/dev/null || f one") == ("of one\n" if bash else "")
    assert place.say("! command -v g >/dev/null || g") == ("g\n\tis\n" if bash else "")


@pytest.mark.parametrize("tty", [False, True], ids=["pipe", "terminal"])
def test_what_a_background_process_prints_is_not_taken_for_the_state(place: Place, tty: bool) -> None:
    noise = "i=0; while [ $i -lt 4000 ]; do i=$((i+1)); echo 0 11 0a; echo 'export EVIL=1'; done"
    place("export KEPT=1")
    done = place(f"export KEPT=2; ({noise}) &", tty=tty)

    assert b"\x01<" not in done.output
    assert place.state.variables.get("KEPT") == ("1" if place.state.unreadable else "2")
    assert "EVIL" not in place.state.variables
    assert place.say("echo on") == "on\n"


def test_functions_and_paths_that_hide_programs_do_not_end_what_lasts(place: Place) -> None:
    place("env() { echo mine; }; od() { echo mine; }; printf() { echo mine; }; pwd() { echo mine; }")
    place("unset -f printf; export A=b; PATH=/nowhere")
    assert place.say("cd /proc; echo $A $PATH") == "b /nowhere\n"
    place("export C=d")
    assert place.say("echo $A $C $PATH") == "b d /nowhere\n"
    assert place.state.cwd == "/proc"


def test_output_that_is_redirected_for_good_takes_nothing_of_the_agents_with_it(place: Place) -> None:
    place("exec > took; echo mine")
    assert place.say("cat took") == "mine\n"


def test_input_is_read_and_ends(place: Place) -> None:
    assert place.say("cat; read x || echo eof", stdin=b"given\n") == "given\neof\n"
    assert place.say("cat; echo eof") == "eof\n"


def test_time_that_is_over_ends_the_command(place: Place) -> None:
    for timeout_s in (1, 5, 25):  # a busy machine may need more than one for the way there
        done = place("echo begun; sleep 60", timeout_s=timeout_s)
        assert done.timed_out
        if done.output:
            break
    assert done.output.startswith(b"begun")
    assert place.say("echo on") == "on\n"


def test_output_is_kept_up_to_its_limit_with_the_beginning_and_the_end(place: Place) -> None:
    done = place("echo first; yes | head -c 3000000; echo last", output_bytes=10_000)

    assert done.output.startswith(b"first\n") and done.output.endswith(b"last\n")
    assert len(done.output) <= 10_000 and done.omitted > 2_900_000
    assert place.state.cwd, "what was told after the output is lost"


def test_no_secret_of_the_agent_is_in_the_environment(place: Place) -> None:
    assert "sk-0123456789abcdef" not in place.say("env; cat /proc/self/environ | tr '\\0' '\\n'")


def test_bytes_that_are_no_text_come_through(place: Place) -> None:
    if isinstance(place.backend, PluginBackend):
        pytest.skip("this plugin decodes what a command prints")
    assert place("printf '\\377\\000\\001\\033[1m'").output == b"\xff\x00\x01\x1b[1m"


# -- what only the agent's own backends do ------------------------------------------------------------------------


@pytest.fixture(params=OWN)
def own(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """The backends of the agent."""
    made = OWN[request.param](tmp_path)
    yield made
    made.close()


def test_where_there_is_a_podman_a_sample_runs_in_it(tmp_path: Path) -> None:
    place = podman(tmp_path, wanted=True)
    try:
        place("export A=b; cd /; greet() { echo hello; }")
        assert (
            place.say("greet; echo $A; pwd; cat /run/.containerenv >/dev/null && echo inside")
            == "hello\nb\n/\ninside\n"
        )
        place.state.cwd = ""
        assert place.say("pwd", cwd="") == "/workspace\n"  # an image has none
        assert place("sleep 60", timeout_s=1).timed_out
        assert place.say("ps -o args | grep -c '[s]leep 60'") == "0\n"
    finally:
        place.close()


def test_an_interrupt_ends_the_command(own: Place) -> None:
    cancelled = threading.Event()

    done = own("echo begun; sleep 60", cancelled=cancelled, on_output=lambda data: cancelled.set())

    assert done.cancelled and done.output.startswith(b"begun\n")  # some shells add that the command was ended


def test_output_is_seen_while_the_command_runs(own: Place) -> None:
    seen: list[bytes] = []
    own("true")
    release = Path(own.state.cwd, "release")

    def watch(data: bytes) -> None:
        seen.append(data)
        release.touch()

    done = own("echo early; until [ -e release ]; do sleep 0.02; done; echo late", on_output=watch)

    assert (seen[0], b"".join(seen), done.output) == (b"early\n", b"early\nlate\n", b"early\nlate\n")


def test_functions_last(own: Place) -> None:
    own('greet() { echo "hello $1"; }')
    assert own.say("greet you") == "hello you\n"
    own("unset -f greet")
    assert own("greet you").exit_code == 127


def test_what_is_too_large_to_last_is_forgotten_and_said(own: Place) -> None:
    own("export KEPT=1")
    own("export BIG=$(head -c 100000 /dev/zero | tr '\\0' x)")

    assert own.state.too_large
    assert own.say("echo $KEPT ${BIG:-none}") == "1 none\n"


def test_a_forged_end_carries_names_and_values_alone(own: Place) -> None:
    own("true")
    where = Path(own.state.cwd)
    own(
        "m=$(tr '\\0' '\\n' < /proc/$$/cmdline | grep -Eo '[0-9a-f]{24}' | tail -1); test -n \"$m\" && echo $m > mark;"
        " s=$(printf '%s\\n\\0X=$(touch planted)\\0A B;touch planted=1\\0\\0' \"$PWD\" | od -An -v -tx1);"
        " printf '\\001<%s>%s:%s\\001</%s>' $m ${#s} \"$s\" $m; exit 0"
    )
    assert (where / "mark").read_text().strip() and own.state.variables["X"] == "$(touch planted)"
    own("true")
    assert not (where / "planted").exists()


def test_a_process_that_wants_more_memory_than_the_limit_is_refused_it(tmp_path: Path) -> None:
    place = Place(LocalBackend(ENVIRON, limits=ProcessLimits(memory_mb=200)), str(tmp_path))

    done = place("python3 -c 'x = bytearray(400_000_000); print(\"had it\")'")

    assert done.exit_code != 0 and b"MemoryError" in done.output
    assert place.say("python3 -c 'x = bytearray(1_000_000); print(\"had it\")'") == "had it\n"


def test_a_fork_bomb_ends_at_the_limit_and_nothing_of_it_is_left(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    place = Place(LocalBackend(ENVIRON, limits=ProcessLimits(processes=60)), str(tmp_path))
    bomb = tmp_path / "bomb.py"
    bomb.write_text(
        "import os, sys, time\n"
        "if os.getuid() == 0: os.setgid(65534); os.setuid(65534)\n"  # the kernel holds root to no limit
        "n = 0\n"
        "while True:\n"
        "    try: pid = os.fork()\n"
        "    except OSError as exc: print('refused', exc.errno == 11, flush=True); time.sleep(60)\n"
        "    if not pid: time.sleep(60); sys.exit()\n"
    )
    done = place(f"exec python3 {bomb}", timeout_s=3)

    assert done.timed_out and b"refused True" in done.output
    left = [p for p in Path("/proc").iterdir() if p.name.isdigit() and _names(p, str(bomb))]
    assert left == []


def _names(process: Path, word: str) -> bool:
    try:
        return word.encode() in (process / "cmdline").read_bytes()
    except OSError:
        return False


# -- what is elsewhere --------------------------------------------------------------------------------------------


@pytest.fixture(params=["docker", "singularity", "ssh"])
def distant(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """The backends with files of their own."""
    made = OWN[request.param](tmp_path)
    yield made
    made.close()


def test_what_is_stopped_here_is_stopped_there(distant: Place) -> None:
    distant("sh -c 'sleep 4901; true' & sleep 4902", timeout_s=1)
    cancelled = threading.Event()
    distant("echo up; sleep 4903", cancelled=cancelled, on_output=lambda data: cancelled.set())

    for _ in range(600):
        left = subprocess.run(["pgrep", "-f", "^sleep 490[123]"], capture_output=True, text=True).stdout
        if not left:
            return
        time.sleep(0.05)
    raise AssertionError(left)


def test_files_are_read_written_and_searched_there(distant: Place) -> None:
    distant("mkdir -p work && cd work && printf 'one\\ntwo\\n' > a.txt && chmod 700 a.txt")
    files = RemoteFiles(distant.backend, "task", distant.state.cwd)
    target = files.resolve("a.txt")

    assert files.read(target) == (b"one\ntwo\n", 8)
    data = bytes(range(256)) * 100
    files.write(target, data)
    assert files.read(target)[0] == data and distant.say("stat -c %a a.txt; ls -A") == "700\na.txt\n"
    files.write(files.resolve("new dir/it's.txt"), b"needle here\n")
    assert files.search("ne+dle", ".", "*.txt", names=False, limit=5) == ["./new dir/it's.txt:1:needle here"]
    assert files.search("it*", ".", "", names=True, limit=5) == ["./new dir/it's.txt"]
    files.remove(files.resolve("new dir/it's.txt"))
    distant(
        "mkdir 'a dir' && touch 'a dir/ x' && ln -s a.txt link && mkfifo pipe && touch .hidden 'new\nline'; chmod 700 ."
    )
    found = files.list_directory(files.resolve("."), 1, 10)
    assert [entry.line() for entry in found.entries][:3] == ["a dir/", "new dir/", ".hidden (0 bytes)"]
    assert {"a.txt (25,600 bytes)", "link (link to a.txt)", "pipe (a named pipe)"} <= {e.line() for e in found.entries}
    assert (found.directories, found.is_complete) == (2, True)
    assert [entry.name for entry in files.list_directory(files.resolve("a dir"), 1, 10).entries] == [" x"]
    assert [entry.name for entry in files.list_directory(files.resolve("."), 3, 2).entries] == [".hidden", "a.txt"]
    for path, what in (("gone", "does not exist"), (".", "is a directory"), ("/dev/null", "not a regular file")):
        with pytest.raises(ToolFailed, match=what):
            files.read(files.resolve(path))


def test_read_file_lists_a_directory_there(distant: Place, tmp_path: Path) -> None:
    distant("mkdir -p list/sub && printf 12345 > list/a.txt")
    shells = TaskShells(lambda: distant.backend)
    shells.set_cwd("", distant.state.cwd)
    read = ReadFileTool(ToolContext(PathRules(str(tmp_path), str(tmp_path)), tmp_path, shells))

    found = json.loads(read({"path": "list"}))
    assert (found["path"], found["content"]) == ("list", "sub/\na.txt (5 bytes)\n")
    assert found["note"].startswith("list is a directory with 1 directory and 1 file directly in it")
    assert json.loads(read({"path": "list/sub"}))["note"] == "list/sub is an empty directory."
    assert "does not exist" in json.loads(read({"path": "gone"}))["error"]


def test_a_container_is_made_with_its_limits_and_kept_for_the_next_turn(tmp_path: Path) -> None:
    environ = program(tmp_path, "docker")
    place = Place(bundled("docker", tmp_path, environ), "")
    place("echo kept > there")
    (state,) = [json.loads(path.read_text()) for path in (tmp_path / "state").glob("*.json")]
    place.close()
    again = Place(bundled("docker", tmp_path, environ), "")

    assert state["options"]["--network"] == ["none"] and state["options"]["--memory"] == ["5120m"]
    assert state["options"]["--pids-limit"] == ["4096"] and state["options"]["--cap-drop"] == ["ALL"]
    assert again.say("cat there") == "kept\n" and again.backend.throwaway
    again.close()
    passing = Place(bundled("docker", tmp_path, environ, container_persistent=False), "")
    assert passing("cat there").exit_code != 0
    passing.close()
    assert list((tmp_path / "state").iterdir()) == []


def test_a_variable_that_is_passed_on_is_in_no_argument(tmp_path: Path) -> None:
    environ = {**program(tmp_path, "docker"), "TOKEN": "tok-0123456789"}
    place = Place(bundled("docker", tmp_path, environ, docker_forward_env=["TOKEN", "NONE"]), "")
    start = place.backend.start("true", BackendCommand("true", "", 10, "task"))

    assert not any("tok-0123456789" in word for word in start.argv)
    assert place.say('echo "$TOKEN"') == "tok-0123456789\n"
    place.close()


def test_a_container_that_has_something_of_this_machine_is_not_thrown_away(tmp_path: Path) -> None:
    backend = bundled("docker", tmp_path, program(tmp_path, "docker"), docker_mount_cwd_to_workspace=True)
    assert backend.confines and not backend.throwaway


def test_a_program_that_fails_is_quoted_and_one_that_is_missing_is_named(tmp_path: Path) -> None:
    environ = program(tmp_path, "docker")
    with pytest.raises(ToolFailed, match="docker run says: Unable to find image 'missing'"):
        Place(bundled("docker", tmp_path, environ, docker_image="missing"), "")("true")
    with pytest.raises(ToolFailed, match="neither apptainer nor singularity is there"):
        Place(bundled("singularity", tmp_path, {"PATH": str(tmp_path)}), "")("true")


def test_a_machine_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match=r"terminal.ssh_host names no machine"):
        Place(bundled("ssh", tmp_path), "")("true")
    with pytest.raises(ToolFailed, match=r"no connection to 127.0.0.1: .*refused"):
        Place(bundled("ssh", tmp_path, ssh_host="127.0.0.1", ssh_port=1), "")("true")


class Shell:
    """What the stand-ins for vendors' clients have in common: a sandbox that is a shell."""

    def run(self, words: list[str], cwd: str | None, timeout: int | None, stdin: str = "") -> tuple[str, int]:
        done = subprocess.run(
            words, cwd=cwd, timeout=timeout, input=stdin, env=ENVIRON, stdout=subprocess.PIPE, text=True, check=False
        )
        return done.stdout, done.returncode


def daytona() -> Any:
    """Stand in for the SDK's client as far as its documentation tells."""
    module: Any = ModuleType("daytona")
    module.DaytonaTimeoutError = type("DaytonaTimeoutError", (Exception,), {})
    module.Resources = module.CreateSandboxFromImageParams = SimpleNamespace
    module.gone = []

    class Process(Shell):
        def exec(self, command: str, cwd: str | None = None, env: Any = None, timeout: int | None = None) -> Any:
            try:
                output, code = self.run(["sh", "-c", command], cwd, timeout)
            except subprocess.TimeoutExpired:
                raise module.DaytonaTimeoutError from None
            return SimpleNamespace(result=output, exit_code=code)

    class Client:
        def create(self, params: Any, *, timeout: float = 60) -> Any:
            module.params = params
            return SimpleNamespace(process=Process())

        def delete(self, sandbox: Any) -> None:
            module.gone.append(sandbox)

    module.Daytona = Client
    return module


def modal() -> Any:
    """Stand in for the SDK's client as far as its documentation tells."""
    module: Any = ModuleType("modal")
    module.exception = SimpleNamespace(TimeoutError=type("TimeoutError", (Exception,), {}))
    module.gone = []

    class Running(Shell):
        def __init__(self, words: list[str], cwd: str | None, timeout: int | None) -> None:
            self.words, self.cwd, self.timeout, self.given = words, cwd, timeout, ""
            self.stdin = SimpleNamespace(write=self.write, write_eof=lambda: None, drain=lambda: None)
            self.stdout = SimpleNamespace(read=self.read)

        def write(self, text: str) -> None:
            self.given += text

        def read(self) -> str:
            try:
                output, self.code = self.run(self.words, self.cwd, self.timeout, self.given)
            except subprocess.TimeoutExpired:
                raise module.exception.TimeoutError from None
            return output

        def wait(self) -> int:
            return self.code

    class Sandbox:
        @classmethod
        def create(cls, **params: Any) -> Sandbox:
            module.params = SimpleNamespace(**params)
            return cls()

        def exec(self, *words: str, workdir: str | None = None, timeout: int | None = None) -> Running:
            return Running(list(words), workdir, timeout)

        def terminate(self) -> None:
            module.gone.append(self)

    module.Sandbox = Sandbox
    module.App = SimpleNamespace(lookup=lambda name, create_if_missing: name)
    module.Image = SimpleNamespace(from_registry=lambda tag: tag)
    return module


@pytest.mark.parametrize("name", ["modal", "daytona"])
def test_a_vendors_sandbox_is_a_place_like_the_others(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = {"modal": modal, "daytona": daytona}[name]()
    monkeypatch.setitem(sys.modules, name, module)
    module.__spec__ = ModuleSpec(name, None)
    block = settings(backend=name, timeout=30) | {f"{name}_image": "an/image"}
    place = Place(
        choose_backend(block, ENVIRON, SandboxSelector([]), lambda values: choose_terminal_env({}, values)), "/"
    )

    done = place("cd /usr; export WORD=kept; echo out; echo err >&2; false")
    assert (done.exit_code, done.output) == (1, b"out\nerr\n")
    assert place.say("pwd; echo $WORD") == "/usr\nkept\n"
    assert place("sleep 60", timeout_s=1).timed_out
    assert module.params.image == "an/image" and place.backend.throwaway
    place.close()
    assert len(module.gone) == 1


@pytest.mark.parametrize("name", ["modal", "daytona"])
def test_an_extra_that_is_missing_is_named(name: str) -> None:
    if importlib.util.find_spec(name) is not None:
        pytest.skip(f"the SDK {name} is installed")
    backend = choose_backend(
        settings(backend=name), ENVIRON, SandboxSelector([]), lambda values: SelectedProvider(None, "")
    )
    with pytest.raises(ToolFailed, match=rf" -m pip install '/.*\[{name}\]'"):
        Place(backend, "")("true")


# -- which one ----------------------------------------------------------------------------------------------------


def test_a_bundled_backend_is_read_when_it_is_configured_and_is_in_no_list_of_plugins(tmp_path: Path) -> None:
    folders = {path.parent.name for path in (BUNDLED_PLUGINS / "terminal").glob("*/plugin.yaml")}
    assert folders == set(BUNDLED_BACKENDS.values()) and set(BUNDLED_BACKENDS) < BUILTIN_BACKENDS
    for name, folder in BUNDLED_BACKENDS.items():
        assert bundled_plugin("terminal", folder).BACKENDS[name].name == name
    assert [key for key in discover(tmp_path, {}, tmp_path).plugins if key.startswith("terminal")] == []


class Named(TerminalEnvironmentProvider):
    """Nothing but a name."""

    name = "named"

    def is_available(self) -> bool:
        return True

    def create_environment(self, **kwargs: Any) -> Any:
        raise RuntimeError("no place left")


def test_the_config_selects() -> None:
    def choose(name: str) -> tuple[Any, str]:
        return choose_terminal_env({"named": named}, {"terminal": {"backend": name}})

    named = Named()
    assert choose("named") == (named, "terminal.backend names it")
    assert choose("local")[0] is None and choose("docker")[0] is None
    assert choose("gone")[1].startswith("terminal.backend='gone' is set but no plugin registered that name.")


def test_a_place_that_nobody_has_runs_nothing(tmp_path: Path) -> None:
    sandbox = SandboxSelector([])
    with pytest.raises(ToolFailed, match=r"terminal.backend='gone' .* No command runs until then"):
        choose_backend({"backend": "gone"}, {}, sandbox, lambda values: choose_terminal_env({}, values))


def test_a_place_that_fails_is_named_with_its_reason() -> None:
    with pytest.raises(ToolFailed, match="the terminal backend named cannot be used: RuntimeError: no place left"):
        Place(PluginBackend(Named(), {}), "")("true")


@pytest.mark.parametrize("name", ["local", "docker", "ssh", "systemd"])
def test_the_agents_own_names_are_refused(name: str, start: Callable[..., Any], home: Path) -> None:
    host = start()
    with pytest.raises(Conflict):
        host.providers.add("terminal_env", type("Thief", (Named,), {"name": name})(), owner="thief")


def test_the_settings_of_the_provider_reach_it_and_its_place_is_given_back(
    example: Callable[..., Any],
) -> None:
    provided = PluginBackend(example("terminal_env"), {"backends": {"example-elsewhere": {"greeting": "good day"}}})
    place = Place(provided, "")

    assert place.say("echo $GREETING") == "good day\n"
    where = place.state.cwd
    assert os.path.isdir(where)
    provided.close("task")
    assert not os.path.exists(where)


def test_the_upstream_name_is_this(served: None) -> None:
    from agent.terminal_env_provider import TerminalEnvironmentProvider as upstream

    assert upstream is TerminalEnvironmentProvider
