"""The bundled skills: their form, their share of the prompt, and that their first commands run and only read."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from bundled_skills.trial import SKILLS, commands
from hermes_agent.host import Host
from hermes_agent.policy.shell.verdict import judge
from hermes_agent.skills.feature import SkillView
from hermes_agent.skills.library import SkillLibrary, index_text
from hermes_agent.skills.scan import read_entries, scan_skill
from hermes_agent.skills.skill_file import required_commands

WRONG = re.compile(
    r"unrecognized|unknown (?:option|argument|flag|command|operation|predicate)|invalid option|illegal option"
    r"|syntax error|bad usage|^usage:|unexpected argument",
    re.IGNORECASE | re.MULTILINE,
)
"""What a program says about a command that it does not understand."""
SLOW = {"smartctl", "sensors", "nixos-rebuild"}
NAMES = {
    "UNIT_FILE": "/lib/systemd/system/systemd-journald.service",
    "UNIT": "systemd-journald.service",
    "HOST": "localhost",
    "CONTAINER": "none-of-that-name",
    "SNAPSHOT1": "a",
    "SNAPSHOT2": "b",
    "PATH": "/etc/passwd",
    "FOLDER": "/var/log",
    "USER": "root",
    "DISK": "/dev/null",
}
BWRAP = shutil.which("bwrap")


def test_there_are_twenty_and_their_share_of_the_prompt_is_small() -> None:
    assert len(SKILLS) == 20
    assert len(index_text(list(SKILLS.values())).encode()) <= 2048


@pytest.mark.parametrize("name", sorted(SKILLS))
def test_a_bundled_skill_says_when_it_is_used_and_reads_first(name: str) -> None:
    skill = SKILLS[name]
    text = skill.document.text
    assert skill.document.name == name and skill.category == "machine"
    parts = ("Use this ", "## Look first", "## Then change", "## Report")
    assert sorted(parts, key=text.index) == list(parts)
    assert scan_skill(name, read_entries(skill.directory)).findings == ()
    assert all(len(line) <= 120 for line in text.splitlines() if not line.startswith("psql"))
    used = " ".join(commands(name))
    assert all(program in used for program in required_commands(skill.document))


def test_the_first_commands_need_no_approval() -> None:
    lines = [line for name in SKILLS for line in commands(name)]
    assert [line for line in lines if judge(line).is_dangerous] == ["needrestart -b -r l"]  # with `-r a` it restarts


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a git repository, a log, a key and a certificate."""
    folder = tmp_path_factory.mktemp("machine")
    (folder / "app.log").write_text("Jan 1 00:00:00 host app: error 17: denied\n" * 3)
    if shutil.which("git"):
        for line in ("init -q", "add .", "-c user.name=a -c user.email=a@b.example commit -qm one"):
            subprocess.run(["git", *line.split()], cwd=folder, check=True, capture_output=True)
    if shutil.which("openssl"):
        request = "req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=localhost"
        subprocess.run(["openssl", *request.split()], cwd=folder, check=True, capture_output=True)
    if shutil.which("ssh-keygen"):
        subprocess.run(["ssh-keygen", "-qt", "ed25519", "-N", "", "-f", "KEY"], cwd=folder, check=True)
    return folder


@pytest.mark.parametrize("name", sorted(SKILLS))
def test_the_first_commands_are_understood_and_only_read(name: str, place: Path) -> None:
    """Every command runs where nothing can be written: the whole file system is read-only, the network is away."""
    if BWRAP is None or subprocess.run([BWRAP, "--ro-bind", "/", "/", "true"], check=False).returncode:
        pytest.skip("bubblewrap cannot make a namespace here")
    names = {**NAMES, "CERT": str(place / "cert.pem"), "KEY": str(place / "KEY"), "LOG": str(place / "app.log")}
    ran = 0
    for line in commands(name):
        program = shlex.split(line)[0]
        if shutil.which(program) is None or program in SLOW:
            continue
        filled = re.sub(r"\b[A-Z_]{3,}[12]?\b", lambda found: names.get(found[0], found[0]), line)
        jail = [BWRAP, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/run"]
        jail += ["--ro-bind", str(place), str(place), "--unshare-net", "--chdir", str(place)]
        done = subprocess.run(
            [*jail, "timeout", "5", "sh", "-c", filled],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C", "PAGER": "cat"},
        )
        ran += 1
        assert WRONG.search(done.stderr) is None, f"{filled}\n{done.stderr}"
        assert "Read-only file system" not in done.stderr, f"{filled} writes\n{done.stderr}"
    if not ran:
        pytest.skip(f"no program of the skill is here: {', '.join(sorted({c.split()[0] for c in commands(name)}))}")


def test_a_host_offers_them_as_skills_and_commands_unless_the_config_says_no(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(config: str) -> Host:
        (tmp_path / "config.yaml").write_text(config)
        host = Host.build(tmp_path)
        host.bridge.close()
        return host

    monkeypatch.delenv("HERMES_BUNDLED_SKILLS", raising=False)
    host = start("{}")
    library = host.service(SkillLibrary)
    assert {library.origin(skill) for skill in library.offered("cli")} == {"bundled"}
    shown = json.loads(SkillView(library).view("dns"))
    assert (shown["success"], shown["readiness_status"], shown["required_commands"]) == (True, "available", ["getent"])
    assert "dns" in host.slash.skills.offered("cli") and host.slash.skills.own_names("cli") == []
    assert "machine:" in library.index("cli", ["skill_view"], ["skills"])
    host = start("skills: {bundled: false}\n")
    assert host.service(SkillLibrary).all_skills() == []
