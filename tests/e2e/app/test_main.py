"""The command line as a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import hermes_agent

HERMES = str(Path(sys.executable).with_name("hermes"))


def hermes(home: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(home), "HERMES_HOME": str(home / ".hermes"), "LANG": "C.UTF-8"}
    return subprocess.run(
        [HERMES, *arguments], input=stdin, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_version_is_one_line(tmp_path: Path) -> None:
    done = hermes(tmp_path, "--version")
    assert (done.returncode, done.stdout) == (0, f"hermes-agent {hermes_agent.__version__}\n")


def test_the_module_is_the_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hermes_agent", "-V"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == f"hermes-agent {hermes_agent.__version__}\n"


def test_help_lists_every_command(tmp_path: Path) -> None:
    out = hermes(tmp_path, "--help").stdout
    for command in ("config", "gateway", "logs", "model", "plugins", "sessions", "skills"):
        assert command in out


PLUGIN = """
import pathlib, sys

pathlib.Path(__file__).parents[2].joinpath("loaded").touch()


def register(ctx):
    ctx.register_cli_command("brew", "Brew tea", lambda parser: None, lambda args: print("brewed"))
"""


def test_help_lists_the_commands_of_enabled_plugins_without_loading_them(tmp_path: Path) -> None:
    home = tmp_path / ".hermes"
    (home / "plugins" / "tea").mkdir(parents=True)
    (home / "plugins" / "tea" / "plugin.yaml").write_text('name: tea\ndescription: "Tea at 100 %(prog)s"\n')
    (home / "plugins" / "tea" / "__init__.py").write_text(PLUGIN)
    config = home / "config.yaml"
    config.write_text("plugins: {enabled: [tea]}\n")
    assert "commands of plugins:" not in hermes(tmp_path, "--help").stdout

    assert hermes(tmp_path, "brew").stdout == "brewed\n"
    (home / "loaded").unlink()
    for line in (("--help",), ("-h",), ("-m", "x", "--help")):
        assert "\ncommands of plugins:\n  brew  plugin tea: Tea at 100 % (prog)s\n" in hermes(tmp_path, *line).stdout
    assert not (home / "loaded").exists()

    config.write_text("plugins: {enabled: tea}\nmodle: x\n")
    broken = hermes(tmp_path, "--help")
    assert (broken.returncode, "commands of plugins:\n  not known: the config is wrong" in broken.stdout) == (0, True)
    config.write_text("plugins: {enabled: []}\n")
    assert "commands of plugins:" not in hermes(tmp_path, "--help").stdout


def test_a_command_that_nobody_has_is_a_usage_error_with_the_nearest_name(tmp_path: Path) -> None:
    done = hermes(tmp_path, "plugin")
    assert done.returncode == 2
    assert "there is no command 'plugin' (did you mean `plugins`?)" in done.stderr


def test_no_question_and_no_terminal_is_a_usage_error(tmp_path: Path) -> None:
    for arguments in ((), ("-z", " "), ("-z", "-")):
        done = hermes(tmp_path, *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert "no question" in done.stderr


def test_nothing_to_continue_is_said(tmp_path: Path) -> None:
    done = hermes(tmp_path, "-c", "-z", "go on")
    assert done.returncode == 1
    assert "there is no session to continue" in done.stderr


def test_no_model_to_be_had_says_which_ways_there_are(tmp_path: Path) -> None:
    done = hermes(tmp_path, "-z", "hello")
    assert done.returncode == 2
    assert done.stdout == ""
    for way in ("OPENROUTER_API_KEY", "model.base_url", "hermes model pull"):
        assert way in done.stderr


def test_a_question_says_which_plugin_is_to_run_and_does_not(tmp_path: Path) -> None:
    home = tmp_path / ".hermes"
    (home / "plugins" / "tea").mkdir(parents=True)
    (home / "plugins" / "tea" / "plugin.yaml").write_text("name: tea\n")
    (home / "plugins" / "tea" / "__init__.py").write_text("def register(ctx): pass\n")
    (home / "config.yaml").write_text("plugins: {enabled: [tea]}\n")
    assert "tea" not in hermes(tmp_path, "-z", "hello").stderr

    (home / "plugins" / "tea" / "__init__.py").write_text("def register(ctx): pass  # edited\n")

    done = hermes(tmp_path, "-z", "hello")
    assert (done.stdout, "hermes: plugin `tea` does not run: changed since it was granted" in done.stderr) == ("", True)


def test_a_wrong_setting_stops_a_question_with_file_line_and_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / ".hermes").mkdir()
    (tmp_path / ".hermes" / "config.yaml").write_text("# mine\nmodle: x\n")
    done = hermes(tmp_path, "-z", "hello")
    assert done.returncode == 2
    assert "config.yaml:2" in done.stderr
    assert "`model`" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_empty_home_variable_counts_as_unset(tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "HERMES_HOME": ""}
    done = subprocess.run(
        [HERMES, "config", "path"], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip().startswith(str(tmp_path / ".hermes"))


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(
        ["bash", "-c", f"{HERMES} config show | head -1; echo ${{PIPESTATUS[0]}}"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr
