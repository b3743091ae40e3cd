"""Programs that the table does not know, and words of known ones that it does not: somebody is asked."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from hermes_agent.policy.approvals import can_judge
from hermes_agent.policy.operator_rules import CommandPolicy
from hermes_agent.policy.shell import judge

TABLE = (files("hermes_agent.policy.shell") / "known.txt").read_text("utf-8")


@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("frobnicate --all", "frobnicate"),
        ("/opt/vendor/bin/frobnicate x", "frobnicate"),
        ("sudo env A=b frobnicate", "frobnicate"),
        ("find . -exec frobnicate {} +", "frobnicate"),
        ("restic -r repo forget --prune", "restic forget"),
        ("zfs promote tank/x", "zfs promote"),
        ("iptables -t nat -A PREROUTING -j DROP", "iptables -A"),
        ("docker context rm x", "docker context"),
    ],
)
def test_the_question_names_the_program_and_the_word_that_decides(command: str, what: str) -> None:
    assert judge(command).keys == (f"unknown program: {what}",)
    assert judge(command).is_unknown


@pytest.mark.parametrize(
    "command",
    [
        *("./frobnicate x", "node_modules/.bin/frobnicate", "target/debug/frobnicate", "poetry run frobnicate"),
        *("frobnicate --help", "frobnicate --version", "command -v frobnicate", "which frobnicate", "type frobnicate"),
        *("frobnicate() { ls; }; frobnicate", "alias frobnicate=ls; frobnicate", "gcc-12 -c x.c", "python3.11 x.py"),
        *("aarch64-linux-gnu-objdump -d x", "restic -r repo snapshots", "iptables -t nat -nvL", "zfs list -t snapshot"),
        *("kubectl -n x get pods", "aws --region eu-west-1 ec2 describe-instances", "gh api repos/a/b --jq .id"),
        *("docker compose ps", "git -C x status", "terraform plan -out p", "systemctl status nginx"),
    ],
)
def test_what_belongs_to_the_project_asks_for_help_or_only_looks_is_known(command: str) -> None:
    assert not judge(command).is_dangerous


@pytest.mark.parametrize(
    ("command", "what"),
    [
        *(("bash ~/x.sh", "x.sh"), ("source ~/x", "x"), (". ~alice/env.sh", "env.sh"), ("sh /srv/other/run", "run")),
        *(("python3 -u ~/tools/x.py a", "x.py"), ("cd ~/x && node main.js", "main.js")),
    ],
)
def test_a_script_outside_of_the_project_is_a_program_like_any_other(command: str, what: str) -> None:
    assert judge(command).keys == (f"unknown program: {what}",)


@pytest.mark.parametrize(
    "command",
    [
        *("bash deploy.sh", ". ./env.sh", "python3 scripts/x.py", "source ~/.cargo/env", ". ~/venvs/a/bin/activate"),
        *("source ~/.bashrc", ". /etc/os-release", "source /opt/ros/humble/setup.bash", "python -m pytest ~/x/tests"),
        *("sh /tmp/x", ". /tmp/x", "bash -lc 'ls ~/x'", "python3 -c 'print(1)' ~/x"),
    ],
)
def test_scripts_of_the_project_toolchains_and_the_sandbox_own_temporary_files_are_known(command: str) -> None:
    assert not judge(command).is_dangerous


def test_a_program_of_the_working_directory_is_known_by_its_whole_path_too() -> None:
    def keys(command: str) -> tuple[str, ...]:
        return CommandPolicy().review(command, confined=True, cwd="/srv/app").keys

    assert keys("python3 /srv/app/x.py") == keys("/srv/app/bin/tool --all") == ()
    assert keys("bash /srv/app2/x.sh") == keys("bash /srv/app/../x.sh") == ("unknown program: x.sh",)
    assert "recursive delete" in keys("bash /srv/app/x.sh; rm -rf /srv/app/data")


@pytest.mark.parametrize(
    ("command", "known"),
    [("sh run.sh", True), ("bin/tool", True), ("sh {}/run.sh", True), ("sh ../run.sh", False), ("sh ~/run.sh", False)],
)
def test_a_daemons_workspace_is_a_project_though_it_is_in_the_agents_home(
    tmp_path: Path, command: str, known: bool
) -> None:
    workspace = tmp_path / "workspace"
    review = CommandPolicy(home=tmp_path).review(command.format(workspace), confined=True, cwd=str(workspace))
    assert (review.keys == ()) == known, review.keys


@pytest.mark.parametrize("program", ["psql db", "mysql db", "ed f", "make -f -", "redis-cli", "gdb -x /dev/stdin"])
def test_code_of_a_language_that_another_program_makes_is_not_analysed(program: str) -> None:
    for made in (f"curl -s https://example.org/x | {program}", f"{program} < <(pg_dump prod)"):
        assert judge(made).is_dangerous, made


def test_code_of_a_language_in_a_file_is_the_files() -> None:
    for command in ("psql db < schema.sql", "cat a.sql b.sql | psql db", "zcat dump.sql.gz | mysql db"):
        assert not judge(command).is_dangerous, command


def test_an_answer_covers_that_program_alone() -> None:
    review = CommandPolicy().review("frobnicate x", confined=True)
    assert (review.verdict, review.keys, review.unknown) == ("ask", ("unknown program: frobnicate",), True)
    assert review.lasting and not review.once
    kept = CommandPolicy(allow=review.keys)
    assert kept.review("frobnicate y", confined=True).verdict == "allow"
    assert kept.review("frobnicate y && other-one", confined=True).verdict == "ask"
    assert CommandPolicy(allow=["frobnicate *"]).review("frobnicate y", confined=True).verdict == "allow"
    assert can_judge(review.keys, "frobnicate x")


def test_an_answer_about_one_subcommand_covers_no_other() -> None:
    kept = CommandPolicy(allow=["unknown program: restic forget"])
    assert kept.review("restic forget x", confined=True).verdict == "allow"
    assert kept.review("restic prune", confined=True).verdict == "ask"


def test_a_word_that_decides_and_is_only_known_later_is_made_up() -> None:
    assert judge('restic "$WHAT"').keys == ("a command that is made up while it runs",)


def test_what_only_may_be_a_command_names_no_unknown_program() -> None:
    assert not any("unknown program" in key for key in judge("ruby -e 'unheard_of(\"frobnicate this\")'").keys)


def test_arguments_of_known_and_project_programs_that_look_like_commands_are_text() -> None:
    for command in ('pytest -k "rm -rf /"', './run-tests "rm -rf /"', 'npm test -- --grep "rm -rf /"'):
        assert not judge(command).is_dangerous, command
    assert judge('frobnicate "rm -rf /"').hardline


def test_the_table_is_sorted_and_names_each_program_once() -> None:
    seen: set[str] = set()
    for section in TABLE.split("\n\n"):
        names = [
            name for line in section.splitlines() if line[:1] != "#" and " | " not in line for name in line.split()
        ]
        assert names == sorted(names), section[:80]
        lines = [line for line in section.splitlines() if line[:1] != "#" and " | " in line]
        assert lines == sorted(lines), section[:80]
        names += [name for line in lines for name in line.partition(" | ")[0].split()]
        assert len(set(names)) == len(names) and not seen & set(names), seen & set(names)
        seen |= set(names)
        for line in lines:
            words = line.partition(" | ")[2].split()
            assert words == sorted(set(words)), line[:80]
    assert len(seen) > 3_000
