"""`hermes plugins list | enable | disable`: plugin contract §1.12, §1.13."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_agent.app.command_line import build_parser
from hermes_agent.app.main import main

Write = Callable[..., Path]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def five(home: Path, write_plugin: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a plugin of every state."""
    write_plugin("back", root=tmp_path / "bundle", manifest="name: back\nversion: 1.0\nkind: backend")
    monkeypatch.setenv("HERMES_BUNDLED_PLUGINS", str(tmp_path / "bundle"))
    write_plugin("good", manifest="name: good\nversion: 1.10\ndescription: Does good")
    write_plugin("idle", manifest="name: idle\nversion: 0.1")
    write_plugin("off-now")
    write_plugin("broken", manifest="name: [")
    (home / "config.yaml").write_text("plugins:\n  enabled: [good, idel]\n  disabled: [off-now]\n")
    return home


def test_the_list_has_every_plugin_with_status_and_reason(five: Path, capsys: Capture) -> None:
    assert main(["plugins", "list"]) == 0

    out, err = capsys.readouterr()
    assert [line.split(maxsplit=3) for line in out.splitlines()[:4]] == [
        ["NAME", "VERSION", "STATUS", "SOURCE"],
        ["back", "1.0", "enabled", "bundled"],
        ["good", "1.10", "enabled", "user     Does good"],
        [
            "idle",
            "0.1",
            "not",
            "enabled  user     not enabled in config (run `hermes plugins enable idle` to activate)",
        ],
    ]
    assert "disabled via config" in out
    assert "plugin.yaml: line 2: " in out
    assert err == "warning: plugins.enabled: unknown plugin `idel` (did you mean `idle`?)\n"


def test_plain_is_a_line_each_with_fixed_columns(five: Path, capsys: Capture) -> None:
    main(["plugins", "list", "--plain", "--no-bundled"])

    assert capsys.readouterr().out.splitlines() == [
        "enabled      user     1.10     good",
        "not enabled  user     0.1      idle",
        "disabled     user              off-now",
        "refused      user              broken",
    ]


def test_json_is_a_list_of_objects(five: Path, capsys: Capture) -> None:
    main(["plugins", "list", "--json", "--enabled", "--user"])

    assert json.loads(capsys.readouterr().out) == [
        {
            "name": "good",
            "status": "enabled",
            "version": "1.10",
            "description": "Does good",
            "source": "user",
            "key": "good",
            "kind": "standalone",
            "path": f"{five}/plugins/good",
            "isolation": "in_process",
            "removed": False,
            "reason": "",
            "platforms": [],
            "update": "",
        }
    ]


def test_the_list_shows_what_went_wrong_at_the_last_load(
    home: Path, write_plugin: Write, start: Callable[..., object], capsys: Capture
) -> None:
    place = write_plugin("bad", "def register(ctx):\n    raise ValueError('no')\n")
    start(enable=("bad",))

    main(["plugins", "list", "--json"])

    [row] = json.loads(capsys.readouterr().out)
    assert (row["status"], row["reason"]) == ("failed", f"ValueError: no ({place}/__init__.py:2)")


def test_the_list_imports_no_plugin_and_nothing_heavy(home: Path, write_plugin: Write) -> None:
    write_plugin("loud", "raise SystemExit('imported')\n")
    (home / "config.yaml").write_text("plugins:\n  enabled: [loud]\n")
    heavy = ("asyncio", "importlib.metadata", "openai", "httpx", "jsonschema", "rich", "prompt_toolkit", "ruamel.yaml")
    code = (
        "import sys; from hermes_agent.app.main import main; status = main(['plugins', 'list']);"
        f"print([m for m in {heavy!r} if m in sys.modules]); sys.exit(status)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.splitlines()[-1] == "[]"
    assert "loud" in done.stdout


def debugged(home: Path, code: str) -> list[str]:
    """Run Python code with HERMES_PLUGINS_DEBUG=1 and return the lines on standard error."""
    environ = {
        "HERMES_PLUGINS_DEBUG": "1",
        "HERMES_HOME": str(home),
        "PATH": "/usr/bin",
        "PYTHONPATH": ":".join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, env=environ
    )
    return done.stderr.splitlines()


def test_debugging_tells_the_sweep_on_stderr(home: Path, write_plugin: Write) -> None:
    write_plugin("p")
    write_plugin("off-now")
    write_plugin("cat/inner", manifest="name: inner\nkind: exclusive\n")
    write_plugin("cat/deep/deeper")
    write_plugin("broken", manifest="name: [")
    (home / "config.yaml").write_text("plugins:\n  disabled: [off-now]\n")

    lines = debugged(home, "from hermes_agent.app.main import main; main(['plugins', 'list'])")

    place = f"{home}/plugins"
    assert {
        f"[plugins] DEBUG scanned {place} (user): 4 folder(s), 4 manifest(s)",
        f"[plugins] DEBUG manifest key=p name=p kind=standalone source=user path={place}/p",
        "[plugins] DEBUG skip off-now: disabled via config",
        "[plugins] DEBUG skip p: not enabled in config (run `hermes plugins enable p` to activate)",
        "[plugins] DEBUG skip cat/inner: exclusive plugin — activate via <category>.provider config",
        f"[plugins] DEBUG skip {place}/cat/deep: no plugin.yaml, depth cap reached",
        "[plugins] DEBUG plugins of the project are not looked for: HERMES_ENABLE_PROJECT_PLUGINS is not set",
        "[plugins] DEBUG entry points: 0 plugin(s)",
    } <= set(lines)
    assert any(line.startswith(f"[plugins] WARNING Failed to parse {place}/broken/plugin.yaml: line") for line in lines)
    assert any("yaml" in line and "Error" in line for line in lines), "the traceback of the parser"


def test_debugging_tells_what_was_registered_and_where_a_plugin_failed(home: Path, write_plugin: Write) -> None:
    write_plugin("good", "def register(ctx):\n    ctx.register_hook('post_tool_call', print)\n")
    bad = write_plugin("bad", "def register(ctx):\n    raise ValueError('no')\n")
    (home / "config.yaml").write_text("plugins:\n  enabled: [good, bad]\n")

    lines = debugged(home, "from hermes_agent.app.start import start_host; start_host().bridge.close()")

    text = "\n".join(lines)
    assert f"DEBUG load good: import {home}/plugins/good and call register(ctx)" in text
    assert "good registered: 0 tool(s), 1 hook(s), 0 middleware, 0 slash command(s), 0 CLI command(s)" in text
    assert "WARNING Failed to load plugin 'bad': ValueError: no" in text
    assert f'File "{bad}/__init__.py", line 2, in register' in text


def test_enable_keeps_comments_and_takes_the_name_out_of_disabled(five: Path, capsys: Capture) -> None:
    config = five / "config.yaml"
    config.write_text("# mine\nplugins:  # of this home\n  enabled:\n    - good\n  disabled: [off-now]\n")

    assert main(["plugins", "enable", "off-now"]) == 0

    text = config.read_text()
    assert "# mine" in text
    assert "# of this home" in text
    capsys.readouterr()
    main(["plugins", "list", "--json"])
    rows = {row["key"]: row["status"] for row in json.loads(capsys.readouterr().out)}
    assert rows["off-now"] == rows["good"] == "enabled"


def test_disable_wins_over_enabled(five: Path, capsys: Capture) -> None:
    assert main(["plugins", "disable", "good"]) == 0
    assert capsys.readouterr().out == ("good is disabled from the next start on.\n")

    main(["plugins", "list", "--enabled", "--plain"])
    assert capsys.readouterr().out == "enabled      bundled  1.0      back\n"


def test_what_is_so_already_is_not_written(five: Path, capsys: Capture) -> None:
    before = (five / "config.yaml").read_bytes()

    assert main(["plugins", "enable", "good"]) == 0

    assert capsys.readouterr().out.splitlines()[0] == "good is enabled already."
    assert (five / "config.yaml").read_bytes() == before


def test_enable_says_what_is_still_missing(home: Path, write_plugin: Write, capsys: Capture) -> None:
    write_plugin("weather", manifest="name: weather\nrequires_env: [WEATHER_API_KEY]")

    assert main(["plugins", "enable", "weather"]) == 0

    assert capsys.readouterr().out.splitlines()[1] == (
        "It will not run yet: Plugin weather disabled (missing: WEATHER_API_KEY)"
    )


def test_overriding_tools_is_granted_and_taken_back(home: Path, write_plugin: Write) -> None:
    write_plugin("p")

    main(["plugins", "enable", "p", "--allow-tool-override"])
    assert "allow_tool_override: true" in (home / "config.yaml").read_text()
    main(["plugins", "enable", "p", "--no-allow-tool-override"])
    assert "allow_tool_override: true" not in (home / "config.yaml").read_text()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("goood", "unknown plugin `goood` (did you mean `good`?)"),
        ("broken", "cannot be used: plugin.yaml: line "),
    ],
)
@pytest.mark.parametrize("word", ["enable", "disable"])
def test_an_unknown_name_is_refused_with_the_one_that_is_meant(
    five: Path, capsys: Capture, word: str, name: str, text: str
) -> None:
    before = (five / "config.yaml").read_bytes()

    assert main(["plugins", word, name]) == 1

    assert text in capsys.readouterr().err
    assert (five / "config.yaml").read_bytes() == before


def test_a_bundled_plugin_that_loads_by_itself_is_listed_so_and_can_be_disabled(five: Path, capsys: Capture) -> None:
    assert main(["plugins", "disable", "back"]) == 0
    capsys.readouterr()

    main(["plugins", "list", "--plain"])

    assert capsys.readouterr().out.splitlines()[0] == "disabled     bundled  1.0      back"


def test_nothing_of_the_environment_is_frozen_at_import(
    home: Path, write_plugin: Write, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plugin("p")
    for value, listed in (("1", False), ("0", True)):
        monkeypatch.setenv("HERMES_SAFE_MODE", value)
        main(["plugins", "list", "--plain"])
        assert ("p" in capsys.readouterr().out.split()) is listed


def test_every_subcommand_of_plugins_is_found_alone(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["plugins", "no-such-action"])
    names = re.findall(r"[a-z-]+", capsys.readouterr().err.split("(there are: ")[1].split(")")[0])
    assert len(names) > 10
    for name in names:
        with pytest.raises(SystemExit) as ended:
            main(["plugins", name, "--help"])
        assert ended.value.code == 0
        alone = capsys.readouterr().out
        with pytest.raises(SystemExit):
            build_parser().parse_args(["plugins", name, "--help"])
        assert alone == capsys.readouterr().out != ""
