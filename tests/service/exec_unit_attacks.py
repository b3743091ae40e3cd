"""What a command can do to the agent from inside its unit: run in the container, as the agent, by test_exec_unit.py."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts.terminal_places import Place, systemd
from hermes_agent.config.settings import Settings
from hermes_agent.policy.network import HostTables, Mode
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.workspace.egress.networks import Networks
from hermes_agent.workspace.sandbox.sandbox import SystemdSandbox

HOME = Path("/var/lib/hermes/.hermes")
SECRET = "sk-attack-0123456789"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return systemd(tmp_path)


@pytest.fixture
def daemon() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the agent's user, with a secret in its environment."""
    code = "import signal, sys; sys.stdout.write('up'); sys.stdout.flush(); signal.pause()"
    process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "KEY": SECRET}, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.read(2) == b"up"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_1_credentials(place: Place) -> None:
    assert SECRET in Path("/etc/hermes-agent/KEY").read_text(), "the agent itself can read it"
    assert SECRET not in place.say("cat /etc/hermes-agent/KEY /run/credentials/*/* /proc/1/environ 2>&1")


def test_2_secrets_in_homes(place: Place) -> None:
    said = place.say("cat /root/.ssh/id /home/*/.ssh/id ~/.ssh/id 2>&1; ls -A /home /root 2>&1; echo end")
    assert SECRET not in said and said.endswith("end\n")


@pytest.mark.parametrize("name", [".env", "state.db", "auth.json", "config.yaml"])
def test_3_the_agents_home(place: Place, name: str) -> None:
    (HOME / name).write_text(SECRET)
    find = f"find /var /run /etc /home -name {name} -path '*hermes*' 2>/dev/null"
    said = place.say(f"cat {HOME}/{name} 2>&1; {find}; echo x > {HOME}/{name}")
    assert SECRET not in said and f"\n{HOME}" not in said
    assert (HOME / name).read_text() == SECRET


def test_4_proc_of_the_daemon(place: Place, daemon: subprocess.Popen[bytes]) -> None:
    said = place.say(f"cat /proc/{daemon.pid}/environ /proc/{daemon.pid}/cmdline 2>&1; ls /proc")
    assert SECRET not in said and str(daemon.pid) not in said.split("ls")[-1].split("\n")


def test_5_signals(place: Place, daemon: subprocess.Popen[bytes]) -> None:
    place(f"kill -KILL {daemon.pid}; kill -KILL -1")
    assert daemon.poll() is None
    daemon.send_signal(signal.SIGCONT)


def reached(place: Place, names: list[str]) -> list[str]:
    """Return those of some Unix sockets that a command can connect to."""
    code = (
        "import socket\n"
        f"for name in {names!r}:\n"
        "    try: socket.socket(socket.AF_UNIX).connect(name); print(name)\n"
        "    except OSError: pass\n"
        "print('end')\n"
    )
    *found, end = place("python3 -", stdin=code.encode()).output.decode().splitlines()
    assert end == "end"
    return found


def test_6_the_control_socket_and_the_one_that_starts_units(place: Place) -> None:
    control = Path("/run/hermes-agent/control.sock")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(control))
        control.chmod(0o777)
        server.listen()
        others = ["/run/hermes-exec.sock", "/run/dbus/system_bus_socket", "/run/systemd/private"]
        assert reached(place, [str(control), *others]) == []
    control.unlink()


def test_6_sockets_without_a_file(place: Place) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0hermes-test")
        server.listen()
        assert reached(place, ["\0hermes-test"]) == []


def test_7_the_http_port_of_the_agent_and_loopback(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        call = f"timeout 3 bash -c 'echo > /dev/tcp/127.0.0.1/{server.getsockname()[1]}'"
        assert place.say(f"{call} 2>/dev/null && echo reached; echo end") == "end\n"


def test_8_services_of_its_own_on_loopback_are_its_own(place: Place) -> None:
    code = (
        "import socket\n"
        "with socket.create_server(('127.0.0.1', 0)) as s:\n"
        "    try: socket.create_connection(s.getsockname(), 1); print('works')\n"
        "    except OSError as exc: print('refused', exc)\n"
    )
    assert place("python3 -", stdin=code.encode()).output == b"works\n"


@pytest.mark.parametrize("mode", ["off", "hosts"])
def test_8_a_server_of_a_session_is_reached_by_its_next_command_alone(mode: Mode) -> None:
    serve = "import socket\ns = socket.create_server(('127.0.0.1', 8123))\nwhile True: s.accept()[0].sendall(b'hello')"
    ask = (
        "import socket, time\n"
        "for _ in range(25):\n"
        "    try: print(socket.create_connection(('127.0.0.1', 8123)).recv(9)); break\n"
        "    except OSError as exc: time.sleep(0.1)\n"
        "else: print('refused')\n"
    )
    work, bridge = os.environ["HERMES_TEST_EXEC_WORK"], Bridge()
    networks = Networks(mode, HostTables(lambda: Settings({})), bridge)
    box = SystemdSandbox(os.environ["HERMES_TEST_EXEC_SOCKET"], work, networks)

    def started(session: str, code: str) -> subprocess.Popen[str]:
        wrapped, env = box.wrap(["python3", "-c", code], work, {"PATH": os.defpath}, root="/", network=session)
        return subprocess.Popen(wrapped, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)

    assert not box.problem
    server = started("s", serve)
    try:
        assert started("s", ask).communicate(timeout=30)[0] == "b'hello'\n"
        assert started("other", ask).communicate(timeout=30)[0] == "refused\n"
    finally:
        server.terminate()
        server.communicate(timeout=30)
        networks.close_all()
        bridge.close()


def test_9_the_network(place: Place) -> None:
    said = place.say("ls /sys/class/net; (echo > /dev/udp/192.0.2.1/9) 2>/dev/null && echo reached; echo end")
    assert said in ("lo\nend\n", "end\n")
    assert "there is no network" in place.backend.description


def test_9_with_a_broker_listed_hosts_alone_are_reached() -> None:
    code = (
        "import socket, sys\n"
        "for host in ('127.0.0.1', '127.0.0.2', '169.254.169.254', 'evil.example'):\n"
        "    with socket.create_connection(('127.0.0.1', 3128)) as s:\n"
        "        s.sendall(f'CONNECT {host}:{sys.argv[1]} HTTP/1.1\\r\\n\\r\\n'.encode())\n"
        "        print(host, s.recv(999).split()[1].decode())\n"
    )
    bridge = Bridge()
    networks = Networks("hosts", HostTables(lambda: Settings({"network": {"hosts": ["127.0.0.1:*"]}})), bridge)
    box = SystemdSandbox(os.environ["HERMES_TEST_EXEC_SOCKET"], os.environ["HERMES_TEST_EXEC_WORK"], networks)
    try:
        assert not box.problem and not box.offline
        with socket.create_server(("127.0.0.1", 0)) as server:
            argv = ["python3", "-c", code, str(server.getsockname()[1])]
            wrapped, env = box.wrap(
                argv, os.environ["HERMES_TEST_EXEC_WORK"], {"PATH": os.defpath}, root="/", network="s"
            )
            done = subprocess.run(
                wrapped, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
            )
        assert done.stdout == "127.0.0.1 200\n127.0.0.2 403\n169.254.169.254 403\nevil.example 403\n", done.stderr
    finally:
        networks.close_all()
        bridge.close()


def test_10_a_fork_bomb(place: Place) -> None:
    code = (
        "import os, time\n"
        "n = 0\n"
        "while True:\n"
        "    try:\n"
        "        if os.fork() == 0: time.sleep(60); os._exit(0)\n"
        "        n += 1\n"
        "    except OSError as exc: print('refused after', n, flush=True); break\n"
    )
    done = place("exec python3 -", stdin=code.encode(), timeout_s=60)
    assert done.output.startswith(b"refused after"), done
    assert int(done.output.split()[2]) <= 600
    assert place.say("echo on") == "on\n"


def test_11_a_link_out_of_the_workspace(place: Place) -> None:
    work = Path(place.cwd)
    (work / "link").symlink_to(HOME)
    (work / "system").symlink_to("/etc")
    (HOME / ".env").write_text(SECRET)
    said = place.say("cat link/.env 2>&1; echo x > link/planted; echo x > system/planted; echo x > /usr/planted; true")
    assert SECRET not in said
    assert not (HOME / "planted").exists() and not Path("/etc/planted").exists() and not Path("/usr/planted").exists()


def test_12_a_process_that_is_left_over(place: Place) -> None:
    place("setsid -f env -i sleep 4711; (nohup sleep 4712 >/dev/null 2>&1 &); true")
    place("sleep 4713", timeout_s=1)
    for _ in range(100):
        left = subprocess.run(["pgrep", "-f", "^sleep 471[123]"], capture_output=True, text=True).stdout
        if not left:
            return
        subprocess.run(["sleep", "0.1"], check=True)
    raise AssertionError(f"still there: {left}")


def test_13_what_others_run_later(place: Place) -> None:
    work = Path(place.cwd)
    subprocess.run(["git", "init", "-q", str(work / "repo")], check=True)
    hook = "printf 'touch planted' > repo/.git/hooks/pre-commit; git -C repo config core.fsmonitor 'touch planted'"
    done = place(
        f"{hook}; mkdir -p a/b/.vscode; echo x > a/.envrc; git init -q a/new; git -C a/new config alias.x '!y'"
    )
    assert len(done.held) == 5, done
    left = [".vscode", ".envrc", "pre-commit"]
    assert not [path for path in work.rglob("*") if path.name in left]
    text = "".join(path.read_text() for path in (work / "repo/.git/config", work / "a/new/.git/config"))
    assert "planted" not in text and "alias" not in text


UNLISTED = ("/srv/data", "/data", "/mnt/disk", "/var/lib/other", "/dev/shm", "/home/ann")


def test_14_what_is_not_listed(place: Place) -> None:
    assert SECRET in Path("/srv/data/s").read_text(), "every user of the machine can read it"
    said = place.say(
        "cat /srv/data/s /data/s /mnt/disk/s /var/lib/other/s /dev/shm/s /home/ann/Documents/s 2>&1; ls / /var/lib"
    )
    assert SECRET not in said and {"srv", "data", "mnt", "other"}.isdisjoint(said.split())
    assert (
        place.say("git --version >/dev/null && test -r /etc/passwd && echo x > /dev/shm/y && cat /dev/shm/y") == "x\n"
    )


def test_15_sockets_of_other_services(place: Place) -> None:
    code = (
        "import socket\n"
        f"for place in {UNLISTED!r}:\n"
        "    try: socket.socket(socket.AF_UNIX).connect(place + '/sock'); print('reached', place)\n"
        "    except OSError: print('refused')\n"
        "for family in (16, 17, 38, 40):\n"
        "    try: socket.socket(family, socket.SOCK_STREAM); print('opened', family)\n"
        "    except OSError as exc: print('refused')\n"
    )
    with socket.socket(socket.AF_UNIX) as outside:
        outside.connect("/srv/data/sock")
    assert place("python3 -", stdin=code.encode()).output == b"refused\n" * (len(UNLISTED) + 4)


def test_more_no_rights_and_no_other_user_of_the_agents(place: Place) -> None:
    said = place.say("grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status; id -u").split()
    assert said[:-1] == ["CapEff:", "0" * 16, "CapBnd:", "0" * 16, "NoNewPrivs:", "1", "Seccomp:", "2"]
    assert int(said[-1]) >= 61184, "a user of systemd's dynamic range"


def test_more_the_workspace_is_shared_both_ways(place: Place) -> None:
    work = Path(place.cwd)
    (work / "mine").write_text("from the agent\n")
    assert place.say(
        "cat mine; echo changed >> mine; mkdir -p a/b; echo theirs > a/b/made; git init -q . && git status -s"
    )
    (work / "a" / "b" / "made").write_text("and back\n")
    assert (work / "mine").read_text() == "from the agent\nchanged\n"
    assert place.say("cat a/b/made") == "and back\n"


def test_more_the_socket_is_for_the_agent_alone(place: Place) -> None:
    """Its group is a group of users, who would otherwise run commands beside the agent."""
    status = Path("/run/hermes-exec.sock").stat()
    assert (oct(status.st_mode & 0o777), status.st_uid) == ("0o600", os.getuid())


def test_more_a_command_may_have_a_terminal_and_input(place: Place) -> None:
    done = place("test -t 0 && (echo > /dev/tty) && echo terminal; exit 4", tty=True)
    assert (done.output.split(), done.exit_code) == ([b"terminal"], 4)
