"""What a start and `hermes doctor` say of `terminal.network`: no value is without effect and without a word."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest

from hermes_agent.app.doctor import run_checks
from hermes_agent.app.start import start_warnings
from hermes_agent.testing import plugin_host


@pytest.fixture
def boxed() -> str:
    """The program that makes sandboxes."""
    program = shutil.which("bwrap")
    words = [program or "bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"]
    if program is None:
        pytest.skip("the program bwrap (package bubblewrap) is not installed")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no sandbox can be made here: {done.stderr.strip()}")
    return program


def warned(terminal: dict[str, Any], **network: Any) -> list[str]:
    with plugin_host(lambda ctx: None, config={"terminal": terminal, "network": network}) as host:
        return [line for line in start_warnings(host.host) if "network" in line]


@pytest.mark.parametrize("mode", ["hosts", "ask"])
@pytest.mark.parametrize("backend", ["docker", "singularity"])
def test_a_start_says_that_a_container_has_all_of_the_network_or_none(backend: str, mode: str) -> None:
    (line,) = warned({"backend": backend, "network": mode}, hosts=["example.org"])
    assert f"`terminal.network` is `{mode}`, and a {backend} container has all of the network (`on`) or none" in line


@pytest.mark.parametrize("mode", ["off", "hosts", "ask"])
@pytest.mark.parametrize("terminal", [{"backend": "ssh", "ssh_host": "h"}, {"backend": "modal"}, {"sandbox": "off"}])
def test_a_start_says_where_the_table_does_not_hold(terminal: dict[str, Any], mode: str) -> None:
    (line,) = warned({**terminal, "network": mode})
    assert "`terminal.network` and `network` do not hold" in line


def test_a_list_of_denied_hosts_is_not_lost_without_a_word() -> None:
    (line,) = warned({"backend": "docker", "network": "on"}, deny=["evil.example"])
    assert "`network.deny` does not hold there" in line
    assert len(warned({"backend": "ssh", "ssh_host": "h"}, deny=["evil.example"])) == 1


@pytest.mark.parametrize(
    "terminal",
    [
        {"network": "hosts"},
        {"network": "off", "backend": "docker"},
        {"network": "on", "backend": "docker"},
        {"backend": "ssh", "ssh_host": "h"},
        {"network": "on", "backend": "ssh", "ssh_host": "h"},
        {"network": "ask", "backend": "bwrap"},
    ],
)
def test_a_start_says_nothing_where_all_holds_or_nothing_was_asked_for(terminal: dict[str, Any]) -> None:
    assert warned(terminal) == []


def rows(home: Any, monkeypatch: pytest.MonkeyPatch, config: str) -> list[tuple[str, str]]:
    (home / "config.yaml").write_text(config)
    monkeypatch.setenv("HERMES_HOME", str(home))
    found = [line for line in run_checks(offline=True) if "network of commands" in line.text]
    return [(line.level, line.text) for line in found]


def test_doctor_says_what_the_network_of_commands_is(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, boxed: Any
) -> None:
    listed = "network: {hosts: [example.org, 'group:python', 'group:github']}\n"
    (row,) = rows(tmp_path, monkeypatch, "terminal: {network: hosts, sandbox: bwrap}\n" + listed)
    wanted = "network of commands: `hosts`, 1 entry and 2 groups listed, one for each session, behind the broker"
    assert row == ("ok", wanted)
    (row,) = rows(tmp_path, monkeypatch, "terminal: {sandbox: bwrap}\n")
    assert row == ("ok", "network of commands: `off`, one for each session, which leads nowhere")
    monkeypatch.setenv("PATH", str(tmp_path))
    (row,) = rows(tmp_path, monkeypatch, "terminal: {network: ask, backend: docker}\n" + listed)
    assert row[0] == "note" and "all of the network (`on`) or none: commands reach no host" in row[1]
    (row,) = rows(tmp_path, monkeypatch, "terminal: {backend: docker}\n")
    assert row == ("ok", "network of commands: `off`: none (docker)")


def test_doctor_says_why_there_is_no_network(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, boxed: Any) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "bwrap").symlink_to(boxed)
    monkeypatch.setenv("PATH", str(programs))
    ((level, text),) = rows(tmp_path, monkeypatch, "terminal: {network: 'on', sandbox: bwrap}\n")
    assert level == "wrong" and "it cannot be had: the programs unshare and nsenter (package util-linux)" in text
