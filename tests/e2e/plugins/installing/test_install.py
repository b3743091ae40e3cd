"""`hermes plugins install`, from every kind of source: plugin contract §1.13, §1.6."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pytest

from hermes_agent.app.main import main

Write = Callable[..., Path]
Git = Callable[..., str]
Capture = pytest.CaptureFixture[str]


def record(home: Path, place: str = "plugins/calc") -> dict:
    return json.loads((home / "plugins_trust.json").read_text())["plugins"][place]


def installed(home: Path) -> list[str]:
    return sorted(p.name for p in (home / "plugins").iterdir())


def test_a_folder_is_copied_shown_pinned_and_not_enabled(home: Path, calc: Path, capsys: Capture) -> None:
    assert main(["plugins", "install", str(calc / "calc")]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "calc 1.0.0: A calculator"
    assert f"  from   {calc}/calc" in lines
    assert "  tools  add" in lines
    assert "  hooks  post_tool_call" in lines
    assert f"Installed calc: {home}/plugins/calc" in lines
    assert lines[-1] == "It is not enabled: `hermes plugins enable calc` lets it run."
    assert installed(home) == ["calc"]
    assert record(home)["origin"]["source"] == f"{calc}/calc"
    assert record(home)["grant"]["by"] == "install"
    assert record(home)["registers"] == {"tools": ["add"], "hooks": ["post_tool_call"]}
    assert not (home / "config.yaml").exists()


def test_enable_lets_it_run(home: Path, calc: Path, capsys: Capture) -> None:
    assert main(["plugins", "install", str(calc), "--enable"]) == 1
    assert "There are plugins in: calc." in capsys.readouterr().err

    assert main(["plugins", "install", f"{calc}#calc", "--enable"]) == 0

    assert "calc is enabled from the next start on" in capsys.readouterr().out
    main(["plugins", "list", "--plain"])
    assert capsys.readouterr().out == "enabled      user     1.0.0    calc\n"


@pytest.mark.parametrize("ref", ["", "@v1", "@main", "@COMMIT"])
def test_a_repository_is_fetched_at_its_ref(home: Path, repository: Path, git: Git, ref: str) -> None:
    first = git(repository, "rev-parse", "HEAD")
    (repository / "__init__.py").write_text("def register(ctx): pass\n")
    git(repository, "commit", "-qam", "two")
    second = git(repository, "rev-parse", "HEAD")

    assert main(["plugins", "install", f"file://{repository}{ref.replace('COMMIT', first)}"]) == 0

    assert record(home)["origin"]["commit"] == (first if ref in ("@v1", "@COMMIT") else second)
    assert not (home / "plugins" / "calc" / ".git").exists()


def test_no_hook_template_or_filter_of_a_repository_or_a_person_runs(
    home: Path, repository: Path, git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"
    templates = tmp_path / "templates" / "hooks"
    templates.mkdir(parents=True)
    for name in ("post-checkout", "reference-transaction"):
        (templates / name).write_text(f"#!/bin/sh\ntouch {ran}\n")
        (templates / name).chmod(0o755)
    config = tmp_path / "gitconfig"
    config.write_text(
        f'[init]\n\ttemplateDir = {templates.parent}\n[core]\n\thooksPath = {templates}\n[filter "f"]\n'
        f"\tsmudge = touch {ran}; cat\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(templates.parent))
    (repository / ".gitattributes").write_text("*.py filter=f\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "two")

    assert main(["plugins", "install", f"file://{repository}"]) == 0

    assert not ran.exists()


def test_a_folder_of_a_repository_is_fetched_from_a_git_daemon(
    home: Path, calc: Path, git: Git, tmp_path: Path
) -> None:
    git(calc, "init", "-q")
    git(calc, "add", "-A")
    git(calc, "commit", "-qm", "one")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    daemon = subprocess.Popen(
        ["git", "daemon", "--export-all", "--verbose", f"--base-path={tmp_path}", "--reuseaddr",
         "--listen=127.0.0.1", f"--port={port}"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert daemon.stderr is not None
        assert any("Ready to rumble" in line for line in daemon.stderr)
        assert main(["plugins", "install", f"git://127.0.0.1:{port}/src#calc"]) == 0
    finally:
        daemon.terminate()
        daemon.wait(10)
        daemon.stderr.close()

    assert record(home)["origin"]["subdir"] == "calc"


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    """A web server over `tmp_path`; what it was asked for. `/private` wants a password."""
    asked: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            if self.path.startswith("/private"):
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="x"')
                self.end_headers()
                return
            super().do_GET()

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), lambda *a: Handler(*a, directory=str(tmp_path))  # type: ignore[misc]
    )  # fmt: skip
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_repository_that_wants_a_password_is_a_sentence_and_no_prompt(
    home: Path, web: tuple[str, list[str]], capsys: Capture
) -> None:
    url, asked = web

    assert main(["plugins", "install", f"{url}/private/x.git"]) == 1

    assert asked
    err = capsys.readouterr().err
    assert "cannot be fetched: fatal: could not read Username" in err
    assert "it is private: use an ssh URL" in err
    assert installed(home) == []


def test_http_is_fetched_with_a_warning(
    home: Path, repository: Path, git: Git, web: tuple[str, list[str]], tmp_path: Path, capsys: Capture
) -> None:
    git(tmp_path, "clone", "-q", "--bare", str(repository), "served.git")
    git(tmp_path / "served.git", "update-server-info")

    main(["plugins", "install", f"{web[0]}/served.git"])

    assert "is fetched without encryption" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["zip", "gztar", "tar", "xztar"])
@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "in-a-folder"])
def test_an_archive_is_unpacked(home: Path, calc: Path, tmp_path: Path, kind: str, wrapped: bool) -> None:
    root, base = (calc, "calc") if wrapped else (calc / "calc", ".")
    archive = shutil.make_archive(str(tmp_path / "download"), kind, root, base)

    assert main(["plugins", "install", archive]) == 0

    assert installed(home) == ["calc"]
    assert len(record(home)["origin"]["sha256"]) == 64


def test_an_archive_that_leads_out_installs_nothing(home: Path, tmp_path: Path, capsys: Capture) -> None:
    with tarfile.open(tmp_path / "p.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("../../evil"))

    assert main(["plugins", "install", str(tmp_path / "p.tar")]) == 1

    assert "leads out of the plugin" in capsys.readouterr().err
    assert installed(home) == []


def test_a_plugin_for_a_version_that_is_not_served_is_refused(
    home: Path, write_plugin: Write, tmp_path: Path, capsys: Capture
) -> None:
    place = write_plugin("p", manifest="name: p\nmanifest_version: 2\nrequires_hermes: '>=99'\n", root=tmp_path / "src")

    assert main(["plugins", "install", str(place)]) == 1

    err = capsys.readouterr().err
    assert "requires hermes >=99, running " in err
    assert "--ref" in err
    assert installed(home) == []


@pytest.mark.parametrize("name", ["../evil", "a/b", ".hidden", "x" * 101, "builtin"])
def test_a_name_that_leads_elsewhere_is_refused(home: Path, write_plugin: Write, tmp_path: Path, name: str) -> None:
    place = write_plugin("p", manifest=f"name: {name}\n", root=tmp_path / "src")

    assert main(["plugins", "install", str(place)]) == 1
    assert installed(home) == []


def test_without_a_name_the_folder_of_the_source_is_the_name(home: Path, write_plugin: Write, tmp_path: Path) -> None:
    place = write_plugin("nameless", manifest="version: 1\n", root=tmp_path / "src")

    assert main(["plugins", "install", str(place)]) == 0
    assert installed(home) == ["nameless"]


SNOOP = """
import json, os
assert "sk-surrounding" not in open("/proc/self/environ").read()
assert not [v for v in os.environ.values() if "sk-surrounding" in v]
from hermes_constants import get_hermes_home
assert not (get_hermes_home() / "config.yaml").exists()

def register(ctx):
    ctx.register_command("seen", lambda raw: os.environ.get("WANTED", ""))
"""


def test_the_look_before_the_installation_has_no_credentials_and_an_empty_home(
    home: Path, write_plugin: Write, tmp_path: Path
) -> None:
    place = write_plugin("p", SNOOP, root=tmp_path / "src")
    (home / "config.yaml").write_text("{}\n")
    environ = {**os.environ, "OPENAI_API_KEY": "sk-surrounding", "HERMES_HOME": str(home)}

    done = subprocess.run(
        [sys.executable, "-m", "hermes_agent", "plugins", "install", str(place)],
        env=environ, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip

    assert "  commands  seen" in done.stdout.splitlines(), done.stdout + done.stderr


def test_what_cannot_be_loaded_is_installed_with_the_reason_and_what_it_declares(
    home: Path, write_plugin: Write, tmp_path: Path, capsys: Capture
) -> None:
    manifest = "name: p\nprovides_tools: [one]\npip_dependencies: ['notthere_at_all>=2', httpx]\n"
    place = write_plugin("p", "import notthere_at_all\n", manifest, root=tmp_path / "src")

    assert main(["plugins", "install", str(place)]) == 0

    out = capsys.readouterr().out
    assert "one (declared)" in out
    assert "failed to load: ModuleNotFoundError: No module named 'notthere_at_all'" in out
    assert "not installed with the agent: notthere_at_all>=2\n" in out
    assert f"{sys.executable} -m pip install 'notthere_at_all>=2'" in out


def test_a_second_plugin_of_a_name_is_refused_and_both_are_named(
    home: Path, calc: Path, write_plugin: Write, capsys: Capture
) -> None:
    other = write_plugin("other-folder", manifest="name: calc\n")

    assert main(["plugins", "install", str(calc / "calc")]) == 1
    err = capsys.readouterr().err
    assert f"`calc` is already the user plugin {other}; the new one would go to {home}/plugins/calc" in err
    assert "`hermes plugins remove calc`" in err

    assert main(["plugins", "install", str(calc / "calc"), "--force"]) == 1
    assert installed(home) == ["other-folder"]


def test_force_replaces_the_installed_one_and_keeps_it_aside(home: Path, calc: Path, capsys: Capture) -> None:
    main(["plugins", "install", str(calc / "calc")])
    (home / "plugins" / "calc" / "mine.txt").write_text("mine")
    assert main(["plugins", "install", str(calc / "calc")]) == 1
    assert "`calc` is installed already" in capsys.readouterr().err

    assert main(["plugins", "install", str(calc / "calc"), "--force"]) == 0

    [aside] = (home / "plugins" / ".removed").iterdir()
    assert (aside / "mine.txt").read_text() == "mine"
    assert not (home / "plugins" / "calc" / "mine.txt").exists()
    main(["plugins", "list", "--plain"])
    assert capsys.readouterr().out.splitlines()[-1] == "not enabled  user     1.0.0    calc"


def test_a_tool_that_is_taken_is_said_before_anything_is_enabled(
    home: Path, write_plugin: Write, tmp_path: Path, capsys: Capture
) -> None:
    schema = {"name": "terminal", "description": "d"}
    body = f"def register(ctx):\n    ctx.register_tool('terminal', schema={schema}, handler=print)\n"
    place = write_plugin("p", body, root=tmp_path / "src")

    assert main(["plugins", "install", str(place)]) == 0

    assert "  ! plugin `p` registers the tool `terminal`, which is the agent's own" in capsys.readouterr().out


def test_examples_become_files_to_edit_and_the_last_word_of_the_plugin_is_shown(
    home: Path, calc: Path, capsys: Capture
) -> None:
    (calc / "calc" / "conf.json.example").write_text("{}")
    (calc / "calc" / "after-install.md").write_text("Now edit conf.json\x1b[2J\n")

    assert main(["plugins", "install", str(calc / "calc")]) == 0

    out = capsys.readouterr().out
    assert "for you to edit: conf.json" in out
    assert "Now edit conf.json\\x1b[2J" in out
    assert (home / "plugins/calc/conf.json").read_text() == "{}"


WANTS = """
name: p
requires_env:
  - name: P_TOKEN
    description: token of P
    url: https://p.example/keys
    secret: true
  - {name: P_REGION, description: where, secret: false}
  - P_PRESENT
"""


def test_nobody_there_is_told_what_is_missing(home: Path, write_plugin: Write, tmp_path: Path, capsys: Capture,
                                             monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setenv("P_PRESENT", "x")
    place = write_plugin("p", manifest=WANTS, root=tmp_path / "src")

    assert main(["plugins", "install", str(place), "--enable"]) == 0

    out = capsys.readouterr().out
    assert "It needs P_TOKEN: `hermes config set P_TOKEN VALUE`" in out
    assert "It needs P_PRESENT" not in out
    assert "It will not run yet: Plugin p disabled (missing: P_TOKEN, P_REGION)" in out


def test_a_person_is_asked_for_what_is_missing_and_whether_to_enable(
    home: Path, write_plugin: Write, tmp_path: Path
) -> None:
    place = write_plugin("p", manifest=WANTS, root=tmp_path / "src")
    (home / ".env").write_text("# mine\nOTHER=1\n")
    environ = {**os.environ, "HERMES_HOME": str(home), "P_PRESENT": "x", "TERM": "dumb"}
    child = pexpect.spawn(
        sys.executable, ["-m", "hermes_agent", "plugins", "install", str(place)],
        env=environ, encoding="utf-8", timeout=60, echo=True,
    )  # fmt: skip
    child.expect_exact("It needs P_TOKEN: token of P")
    child.expect_exact("Get one at https://p.example/keys")
    child.expect_exact("P_TOKEN (empty: later): ")
    child.waitnoecho()
    child.sendline("s3cret value")
    child.expect_exact("P_REGION (empty: later): ")
    shown = child.before
    child.sendline("eu")
    child.expect_exact("Enable p? [y/N] ")
    child.sendline("y")
    child.expect(pexpect.EOF)
    child.close()

    assert child.exitstatus == 0
    assert "s3cret" not in shown
    assert (home / ".env").read_text() == "# mine\nOTHER=1\nP_TOKEN='s3cret value'\nP_REGION=eu\n"
    assert (home / ".env").stat().st_mode & 0o777 == 0o600
    assert "p" in (home / "config.yaml").read_text()


def looking(home: Path) -> bool:
    """Say whether a plugin of this home is being loaded for a look."""
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = process.read_bytes()
            if b"--report" in words and os.fsencode(home) in words and b"bwrap" not in words:
                return True
    return False


def until(condition: Callable[[], bool], what: str) -> None:
    limit = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < limit, what
        time.sleep(0.05)


def test_a_process_that_ends_in_the_middle_leaves_no_half_plugin(
    home: Path, write_plugin: Write, tmp_path: Path
) -> None:
    place = write_plugin("p", "import time\ntime.sleep(60)\n", root=tmp_path / "src")
    environ = {**os.environ, "HERMES_HOME": str(home)}
    child = subprocess.Popen([sys.executable, "-m", "hermes_agent", "plugins", "install", str(place)], env=environ)
    until(lambda: looking(home), "it is being loaded for a look")
    child.kill()
    child.wait()
    until(lambda: not looking(home), "the look ends with it")

    done = subprocess.run(
        [sys.executable, "-m", "hermes_agent", "plugins", "list", "--plain"],
        capture_output=True, text=True, env=environ, timeout=60, check=True,
    )  # fmt: skip

    assert installed(home) == [".staging"]
    assert done.stdout == ""
