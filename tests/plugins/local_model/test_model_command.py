"""`hermes model …` as a person runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from local_model import DEFAULT, PINS


def hermes(tmp_path: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import argparse, sys; from hermes_agent.app.cli import model; from hermes_agent.core.errors import UserError\n"
        "parser = argparse.ArgumentParser(); model.add_model(parser.add_subparsers())\n"
        "args = parser.parse_args(['model', *sys.argv[1:]])\n"
        "try: sys.exit(args.run(args))\n"
        "except UserError as error: print(error, file=sys.stderr); sys.exit(error.exit_status)"
    )
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "HERMES_HOME": str(home),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PYTHONPATH": os.environ.get("PYTHONPATH", "") or os.pathsep.join(p for p in sys.path if p),
        "PIP_NO_INDEX": "1",
        "PIP_CONFIG_FILE": os.devnull,
    }
    command = [sys.executable, "-c", code, *argv]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)


def place(tmp_path: Path, name: str = DEFAULT) -> Path:
    path = tmp_path / "cache" / "hermes" / "models" / PINS[name].file
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(PINS[name].size)
    return path


def test_list_shows_what_can_be_pulled_and_what_is_there(tmp_path: Path) -> None:
    path = place(tmp_path)
    done = hermes(tmp_path, "list")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [[n, "here" if n == DEFAULT else "-"] for n in PINS]
    as_json = json.loads(hermes(tmp_path, "list", "--json").stdout)
    assert as_json[0]["here"] is True
    assert as_json[0]["path"] == str(path)
    assert as_json[0]["sha256"] == PINS[DEFAULT].sha256


def test_path_prints_one_line_and_says_by_its_status_whether_the_file_is_there(tmp_path: Path) -> None:
    absent = hermes(tmp_path, "path")
    assert (absent.returncode, absent.stdout.count("\n")) == (1, 1)
    assert "hermes model pull" in absent.stderr
    path = place(tmp_path)
    assert hermes(tmp_path, "path").stdout == f"{path}\n"
    assert hermes(tmp_path, "path", "smollm2-135m").returncode == 1


def test_status_says_what_is_missing(tmp_path: Path) -> None:
    done = hermes(tmp_path, "status", "--json")
    said = json.loads(done.stdout)
    assert done.returncode == 1
    assert (said["usable"], said["weights"], said["model"]) == (False, False, DEFAULT)
    assert "not there: `hermes model pull" in hermes(tmp_path, "status").stdout


def test_status_verifies_the_hash(tmp_path: Path) -> None:
    place(tmp_path, "smollm2-135m")
    done = hermes(tmp_path, "status", "--verify")
    assert done.returncode == 1
    assert "SHA-256 is WRONG" in done.stdout


def test_a_file_of_the_own_is_what_path_and_status_speak_of(tmp_path: Path) -> None:
    own = tmp_path / "mine.gguf"
    own.write_bytes(b"GGUF")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.yaml").write_text(f"model:\n  local:\n    path: {own}\n")
    assert hermes(tmp_path, "path").stdout == f"{own}\n"
    assert json.loads(hermes(tmp_path, "status", "--json").stdout)["own_file"] is True


def test_pull_of_what_is_there_says_where(tmp_path: Path) -> None:
    path = place(tmp_path)
    done = hermes(tmp_path, "pull")
    assert (done.returncode, done.stdout) == (0, f"{DEFAULT} is there: {path}\n")


def test_pull_takes_the_address_of_the_config_and_refuses_another_file(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "w.gguf").write_bytes(b"GGUF")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), lambda *a: Quiet(*a, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        (tmp_path / "home").mkdir()
        url = f"http://127.0.0.1:{server.server_port}/w.gguf"
        (tmp_path / "home" / "config.yaml").write_text(f"model:\n  local:\n    url: {url}\n")
        done = hermes(tmp_path, "pull", "--force", "--source", "url")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert done.returncode == 1
    assert f"- {url} has 4 bytes, {PINS[DEFAULT].size} are expected: it is another file" in done.stderr
    assert done.stdout == ""


def test_pull_of_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    done = hermes(tmp_path, "pull", "gpt-9")
    assert done.returncode == 1
    assert DEFAULT in done.stderr


def test_remove_deletes_the_weights_and_what_a_pull_left(tmp_path: Path) -> None:
    path = place(tmp_path)
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(b"x")
    done = hermes(tmp_path, "remove")
    assert done.stdout == f"removed {path}\nremoved {part}\n"
    assert not path.exists()
    assert not part.exists()
    again = hermes(tmp_path, "remove")
    assert (again.returncode, again.stdout) == (0, "")
    assert "nothing to remove" in again.stderr


@pytest.mark.parametrize("argv", [["pull", "--help"], ["status", "--help"]])
def test_help_needs_nothing(tmp_path: Path, argv: list[str]) -> None:
    assert hermes(tmp_path, *argv).returncode == 0
