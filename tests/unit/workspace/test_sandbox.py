"""What a command can and cannot do in the box; the person says no to every question, so nothing else lets it run."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from hermes_agent.workspace.paths import PathRules
from hermes_agent.workspace.sandbox.bubblewrap import BubblewrapSandbox
from hermes_agent.workspace.sandbox.limits import SystemdScope
from hermes_agent.workspace.sandbox.sandbox import Probed, SandboxSelector, SystemdSandbox


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the same user, with a secret in its environment."""
    code = "import signal, sys; sys.stdout.write('up'); sys.stdout.flush(); signal.pause()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "KEY": "sk-bystander"}, stdout=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdout.read(2) == b"up"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def run(boxed, command: str) -> dict:
    """Run a command; it may not contain anything that asks."""
    result = boxed.call("terminal", command=command)
    assert boxed.person.asked == []
    assert "exit_code" in result, result
    return result


def shell(boxed, script: str) -> dict:
    """Run a script from a file of the working directory, which nobody is asked about."""
    (boxed.cwd / "try.sh").write_text(script)
    return run(boxed, "bash try.sh")


def python(boxed, code: str) -> dict:
    """Run a program from a file of the working directory, which nobody is asked about."""
    (boxed.cwd / "try.py").write_text(code)
    return run(boxed, "python3 try.py")


# -- what works ----------------------------------------------------------------------------------------------


def test_a_harmless_command_runs_without_a_question_and_writes_to_the_working_directory(boxed):
    assert run(boxed, "echo hello > made; cat made; pwd")["output"] == f"hello\n{boxed.cwd}\n"
    assert (boxed.cwd / "made").read_text() == "hello\n"


def test_tmp_is_writable_and_private(boxed):
    name = f"hermes-{os.getpid()}-{time.monotonic_ns()}"
    assert run(boxed, f"echo x > /tmp/{name} && cat /tmp/{name}")["output"] == "x\n"
    assert not Path("/tmp", name).exists()


def test_the_exit_code_and_a_signal_come_out_of_the_box(boxed):
    assert run(boxed, "exit 7")["exit_code"] == 7
    assert run(boxed, "kill -TERM $$")["exit_code"] == 128 + 15


def test_a_command_that_takes_too_long_ends_with_everything_in_the_box(boxed):
    result = boxed.call("terminal", command="sleep 300 & sleep 300", timeout=1)
    assert result["exit_code"] == 124


def test_an_interrupt_ends_the_box(boxed):
    threading.Timer(0.3, boxed.cancelled.set).start()
    assert boxed.call("terminal", command="sleep 300")["exit_code"] == 130


def test_a_dangerous_command_asks_in_the_box_too(boxed):
    outcome = boxed.outcome("terminal", {"command": "rm -r src"})
    assert outcome.status == "blocked"
    assert boxed.person.asked[0].summary == "run a command (recursive delete)"


def test_leaving_the_box_asks_and_a_yes_leaves_it(boxed):
    outside = boxed.home.parent / "outside"
    boxed.call("terminal", command=f"touch {outside}", unconfined=True)
    assert boxed.person.asked[0].summary == "run a command outside the sandbox" and not outside.exists()
    boxed.person.answer = "once"
    boxed.call("terminal", command=f"touch {outside}", unconfined=True)
    assert outside.exists()


def test_the_model_is_told_about_the_box(boxed):
    (shown,) = (d["function"] for d in boxed.registry.get_definitions(["terminal"]))
    assert "there is no network" in shown["description"] and "unconfined" in shown["parameters"]["properties"]


def test_where_there_is_no_box_the_model_is_told_of_none(workplace):
    (bare,) = (d["function"] for d in workplace.registry.get_definitions(["terminal"]))
    assert "sandbox" not in bare["description"] and "unconfined" not in bare["parameters"]["properties"]


# -- attacks -------------------------------------------------------------------------------------------------


def test_credentials_of_the_service_cannot_be_read(boxed):
    credentials = Path(boxed.environ["CREDENTIALS_DIRECTORY"])
    credentials.mkdir()
    (credentials / "KEY").write_text("sk-credential")
    assert "sk-credential" not in shell(boxed, f"cat {credentials}/KEY; ls -la {credentials}")["output"]


@pytest.mark.parametrize("name", [".env", "state.db", "auth.json", "api_server.key", "config.yaml"])
def test_nothing_of_the_agents_home_can_be_read(boxed, name):
    (boxed.home / name).write_text("sk-in-home")
    result = shell(boxed, f"cat ~/.hermes/{name}; find ~/.hermes -type f")
    assert "sk-in-home" not in result["output"] and f"/{name}\n" not in result["output"]


def test_nothing_of_the_agents_home_can_be_changed_either(boxed):
    boxed.person.answer = "once"  # it is asked about, too
    boxed.call("terminal", command="mkdir -p ~/.hermes/plugins/evil; echo x > ~/.hermes/plugins/evil/__init__.py")
    assert not (boxed.home / "plugins").exists()


def test_nothing_of_the_directory_of_ssh_keys_is_there(boxed):
    directory = boxed.home.parent / ".ssh"
    directory.mkdir()
    (directory / "id_ed25519").write_text("sk-private")
    (directory / "id_ed25519.pub").write_text("public")
    output = shell(boxed, "cat ~/.ssh/id_ed25519 ~/.ssh/id_ed25519.pub 2>/dev/null; ls -A ~")["output"]
    assert output == "project\n"


def test_another_process_cannot_be_seen(boxed, bystander):
    result = shell(boxed, f"cat /proc/{bystander.pid}/environ; grep -l bystander /proc/*/environ")
    assert "sk-bystander" not in result["output"]


def test_another_process_cannot_be_signalled(boxed, bystander):
    result = run(boxed, f"kill -TERM {bystander.pid} && echo sent")
    assert "sent" not in result["output"]
    assert bystander.poll() is None


def test_a_unix_socket_of_the_agent_cannot_be_reached(boxed):
    control = boxed.home / "control.sock"
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as abstract:
        listener.bind(str(control))
        abstract.bind(f"\0hermes-{os.getpid()}")
        for server in (listener, abstract):
            server.listen()
            server.setblocking(False)
        code = (
            "import socket\\n"
            f"for name in ({str(control)!r}, chr(0) + 'hermes-{os.getpid()}'):\\n"
            "    try: socket.socket(socket.AF_UNIX).connect(name); print('reached')\\n"
            "    except OSError: pass"
        ).replace("\\n", "\n")
        assert "reached" not in python(boxed, code)["output"]
        for server in (listener, abstract):
            with pytest.raises(BlockingIOError):
                server.accept()


def test_neither_loopback_nor_the_network_can_be_reached(boxed):
    with socket.create_server(("0.0.0.0", 0)) as server:
        port = server.getsockname()[1]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(("192.0.2.1", 9))
                address = probe.getsockname()[0]
            except OSError:  # a machine without a network has loopback alone
                address = "127.0.0.1"
        for host in ("127.0.0.1", address):
            result = shell(boxed, f"exec 2>&1; (echo > /dev/tcp/{host}/{port}) && echo reached")
            assert "reached" not in result["output"]


def test_a_link_leads_out_of_the_working_directory_for_nobody(boxed):
    outside = boxed.home.parent / "outside"
    outside.mkdir()
    (boxed.cwd / "link").symlink_to(outside)
    assert run(boxed, "echo x > link/planted")["exit_code"] != 0
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("target", [".bashrc", "other", ".config/autostart/x.desktop"])
def test_nothing_of_the_home_directory_can_be_written(boxed, target):
    code = (
        f"import os; p = os.path.expanduser('~/{target}'); os.makedirs(os.path.dirname(p), exist_ok=True); open(p, 'w')"
    )
    python(boxed, code)
    assert not (boxed.home.parent / target).exists()


@pytest.mark.parametrize("path", ["/usr/planted", "/etc/planted", "/var/lib/planted", "/sys/kernel/mm/ksm/run"])
def test_nothing_of_the_system_can_be_written(boxed, path):
    result = python(boxed, f"open('{path}', 'a')")
    assert result["exit_code"] != 0 and "Error" in result["output"]


@pytest.mark.parametrize("path", ["/proc/sys/kernel/hostname", "/proc/sys/vm/swappiness"])
def test_no_setting_of_the_kernel_can_be_changed(boxed, path):
    result = python(boxed, f"open('{path}', 'a')")
    assert "Read-only file system" in result["output"] or "Permission denied" in result["output"]


def test_what_a_repository_runs_later_cannot_be_planted(boxed):
    hooks = boxed.cwd / ".git" / "hooks"
    hooks.mkdir(parents=True)
    (boxed.cwd / ".git" / "config").write_text("[core]\n")
    assert shell(boxed, "echo x > .git/hooks/pre-commit; echo x >> .git/config; echo y > .git/HEAD")["exit_code"] == 0
    assert list(hooks.iterdir()) == []
    assert (boxed.cwd / ".git" / "config").read_text() == "[core]\n"


@pytest.mark.parametrize("missing", [".git/hooks", ".git/config", ""])
@pytest.mark.parametrize(
    "command",
    [
        "{plant} .git",
        "mv .git old; cp -r old .git; {plant} .git",
        "cp -r .git there; {plant} there; echo ../there > .git/commondir",
    ],
)
def test_no_way_leads_to_a_hook_that_the_person_runs(boxed, command, missing):
    git = ["git", "-C", str(boxed.cwd), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    if missing:
        path = boxed.cwd / missing
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (boxed.cwd / "plant").write_text(
        "mkdir -p $1/hooks; echo 'touch planted' > $1/hooks/pre-commit; chmod +x $1/hooks/pre-commit\n"
        "printf '[core]\\n\\tfsmonitor = touch planted\\n' >> $1/config; true\n"
    )
    assert run(boxed, command.format(plant="sh plant"))["exit_code"] == 0
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    assert not (boxed.cwd / "planted").exists()


def test_a_worktree_keeps_its_repository(boxed):
    (boxed.cwd / ".git").write_text("gitdir: /nonexistent\n")
    run(boxed, "rm -f .git; mv .git x; mkdir -p e/hooks; echo 'gitdir: e' > .git; true")
    assert (boxed.cwd / ".git").read_text() == "gitdir: /nonexistent\n"


def test_no_process_is_left_over(boxed):
    run(boxed, "(setsid env -i sleep 4711 &) ; (nohup sleep 4712 >/dev/null 2>&1 &) ; true")
    seen = subprocess.run(["pgrep", "-f", "sleep 471[12]"], capture_output=True, text=True)
    assert seen.stdout == ""


def test_no_rights_are_left_in_the_box(boxed):
    output = run(boxed, "grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/self/status")["output"]
    assert output.split() == ["CapEff:", "0" * 16, "CapBnd:", "0" * 16, "NoNewPrivs:", "1"]


def test_a_home_directory_as_the_place_of_work_is_the_home_and_no_project(boxed):
    user = boxed.home.parent
    (user / ".profile").write_text("sk-old")
    (user / "notes").write_text("seen\n")
    (boxed.home / ".env").write_text("sk-in-home")
    (user / "try.py").write_text("open('.profile', 'w')")
    (user / "try.sh").write_text("cat notes; echo x > made; python3 try.py; cat .hermes/.env .profile")
    outcome = boxed.outcome("terminal", {"command": "bash try.sh"}, cwd=user)
    assert boxed.person.asked == [] and "sk-" not in outcome.result and "seen" in outcome.result
    assert not (user / "made").exists() and (user / ".profile").read_text() == "sk-old"


@pytest.mark.parametrize("cwd", ["/", "/etc", "/usr"])
def test_a_directory_of_the_system_is_read_only_as_a_place_of_work(boxed, cwd):
    outcome = boxed.outcome("terminal", {"command": "touch planted && echo made"}, cwd=Path(cwd))
    assert boxed.person.asked == [] and '"output": "made' not in outcome.result
    assert not Path(cwd, "planted").exists()


@pytest.mark.parametrize(
    ("user", "cwd", "can"),
    [
        *(("/root", "/root", False), ("/root", "/root/work", True), ("/home/ann", "/root", False), ("/", "/", False)),
        *(("/usr", "/usr", False), ("/home/ann", "/home", False), ("/home/ann", "/srv/site", True)),
    ],
)
def test_a_home_and_the_system_are_no_places_of_work(user: str, cwd: str, can: bool) -> None:
    assert BubblewrapSandbox(PathRules(f"{user}/.hermes", user)).is_writable(cwd) is can


# -- where there is none -------------------------------------------------------------------------------------


def nowhere(tmp_path: Path) -> SystemdSandbox:
    return SystemdSandbox(str(tmp_path / "exec.sock"), str(tmp_path))


def places(tmp_path: Path) -> PathRules:
    return PathRules(str(tmp_path / "home"), str(tmp_path))


def test_without_the_program_auto_asks_and_bwrap_refuses_with_the_way_out(tmp_path):
    auto = SandboxSelector([nowhere(tmp_path), BubblewrapSandbox(places(tmp_path), path=str(tmp_path))])
    assert (auto.works, auto.refusal) == (False, "")
    missing = "the program bwrap (package bubblewrap) is not installed"
    assert auto.problem == f"there is no socket {tmp_path}/exec.sock (hermes-exec.socket); {missing}"
    strict = SandboxSelector(auto.sandboxes, mode="bwrap")
    assert f"made: {missing}. `terminal.sandbox: bwrap` runs nothing without one; install" in strict.refusal
    assert (
        "runs nothing without one; enable hermes-exec.socket" in SandboxSelector(auto.sandboxes, mode="systemd").refusal
    )


def test_a_program_that_fails_is_quoted(tmp_path):
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho no namespaces here >&2; exit 1\n")
    fake.chmod(0o755)
    assert BubblewrapSandbox(places(tmp_path), path=str(tmp_path)).problem == f"{fake} says: no namespaces here"


P = TypeVar("P", bound=Probed)


def hurried(mechanism: P) -> P:
    """Return a mechanism whose probe may take a moment only."""
    mechanism.probe_limit_s = 0.2
    return mechanism


def test_a_trial_that_does_not_end_says_so_and_for_how_long(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    late = "the probe did not end within 0.2 s: it hangs, or the machine is too busy; a restart tries again"
    for name in ("bwrap", "systemd-run"):
        (tmp_path / name).write_text("#!/bin/sh\nexec sleep 60\n")
        (tmp_path / name).chmod(0o755)
    assert (
        hurried(BubblewrapSandbox(places(tmp_path), path=str(tmp_path))).problem
        == f"{tmp_path}/bwrap does not run: {late}"
    )

    (tmp_path / "systemd").mkdir()
    (tmp_path / "systemd/private").touch()
    environ = {"PATH": f"{tmp_path}:{os.defpath}", "XDG_RUNTIME_DIR": str(tmp_path)}
    scope = hurried(SystemdScope(environ, processes=40))
    assert (scope.problem, scope.is_effective) == (f"{tmp_path}/systemd-run does not run: {late}", False)

    with socket.socket(socket.AF_UNIX) as listening:  # and starts no unit
        listening.bind(str(tmp_path / "exec.sock"))
        listening.listen()
        assert hurried(nowhere(tmp_path)).problem == f"no unit answers at {tmp_path}/exec.sock: {late}"


def test_off_makes_no_box_and_tries_nothing_out(tmp_path):
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    sandbox = SandboxSelector([BubblewrapSandbox(places(tmp_path), path=str(tmp_path))], mode="off")
    assert (sandbox.works, sandbox.refusal, (tmp_path / "ran").exists()) == (False, "", False)


def test_what_a_command_in_the_box_left_behind_reaches_none_outside(boxed):
    run(boxed, "mkdir sub; cd sub; export GIT_EXEC=./evil; git() { touch planted; }")
    boxed.person.answer = "once"

    outside = boxed.call("terminal", command="echo ${GIT_EXEC:-none}; pwd; git --version", unconfined=True)

    assert outside["output"].startswith(f"none\n{boxed.cwd}/sub\n") and not (boxed.cwd / "sub" / "planted").exists()
    assert boxed.person.asked[-1].detail.endswith(f"in {boxed.cwd}/sub")


def test_only_the_conversations_directory_can_be_written_wherever_a_command_runs(boxed):
    other = boxed.cwd.parent / "other"
    other.mkdir()

    boxed.call("terminal", command="touch planted", workdir=str(other))
    run(boxed, "cd ..; pwd; true")
    run(boxed, "touch planted || true")
    assert not (other / "planted").exists() and not (boxed.cwd.parent / "planted").exists()
