"""What was granted runs, other content of it does not: docs/plugins/trust.md."""

from __future__ import annotations

import json
import os
import py_compile
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_agent.app.main import main
from hermes_agent.host import Host
from hermes_agent.plugins.pinned_files import MAX_FILES

Write = Callable[..., Path]
Start = Callable[..., Host]
Capture = pytest.CaptureFixture[str]

ONE_TOOL = """
def register(ctx):
    ctx.register_tool("one", schema={"name": "one", "description": "d"}, handler=lambda args, **kw: "{}")
"""


def status(host: Host, key: str) -> str:
    [record] = [r for r in host.plugins.records if r.manifest.key == key]
    return record.status


def pins(home: Path) -> dict[str, dict]:
    return json.loads((home / "plugins_trust.json").read_text())["plugins"]


def test_the_first_start_pins_what_the_config_names_and_later_content_does_not_run(
    home: Path, write_plugin: Write, start: Start
) -> None:
    place = write_plugin("p", ONE_TOOL)
    assert status(start(enable=("p",)), "p") == "enabled"
    assert pins(home)["plugins/p"]["grant"]["by"] == "first start"
    assert pins(home)["plugins/p"]["registers"] == {"tools": ["one"]}
    assert (home / "plugins_trust.json").stat().st_mode & 0o777 == 0o600
    assert status(start(enable=("p",)), "p") == "enabled"

    (place / "__init__.py").write_text("raise SystemExit('ran')\n")
    host = start(enable=("p",))

    assert status(host, "p") == "changed"
    assert "one" not in host.tools.names()
    text = "changed since it was granted: __init__.py (run `hermes plugins grant p` to see and allow it)"
    assert f"✗ p [changed] — {text}" in host.plugins.status_text()
    assert f"plugin `p` does not run: {text}" in host.plugins.hints()


def test_grant_shows_the_difference_and_lets_it_run(
    home: Path, write_plugin: Write, start: Start, capsys: Capture
) -> None:
    place = write_plugin("p", "def register(ctx):\n    pass\n")
    (place / "gone.txt").write_text("x")
    start(enable=("p",))
    (place / "__init__.py").write_text("def register(ctx):\n    return 5\n")
    (place / "extra.py").write_text("print('\x1b[2J')\n")
    (place / "gone.txt").unlink()

    assert main(["plugins", "grant", "p"]) == 1
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert "--- granted/__init__.py" in lines
    assert "-    pass" in lines
    assert "+    return 5" in lines
    assert "new file extra.py" in lines
    assert "+print('\\x1b[2J')" in lines
    assert "gone: gone.txt" in lines
    assert "no user can be asked here" in err
    assert status(start(enable=("p",)), "p") == "changed"

    assert main(["plugins", "grant", "p", "--yes"]) == 0
    assert status(start(enable=("p",)), "p") == "enabled"


def test_enable_pins_and_does_not_grant_what_changed_after_that(
    home: Path, write_plugin: Write, capsys: Capture
) -> None:
    place = write_plugin("p")
    assert main(["plugins", "enable", "p"]) == 0
    assert pins(home)["plugins/p"]["grant"]["by"] == "enable"
    (place / "__init__.py").write_text("def register(ctx): raise SystemExit\n")
    main(["plugins", "disable", "p"])
    capsys.readouterr()

    assert main(["plugins", "enable", "p"]) == 0

    assert "It will not run yet: changed since it was granted: __init__.py" in capsys.readouterr().out
    main(["plugins", "list", "--plain"])
    assert capsys.readouterr().out == "changed      user              p\n"


def test_a_file_that_was_only_touched_is_no_change_and_is_not_read_again(
    home: Path, write_plugin: Write, start: Start
) -> None:
    place = write_plugin("p", manifest="name: p\nkind: standalone")  # with a kind, the listing reads no source
    start(enable=("p",))
    os.utime(place / "__init__.py", ns=(1, 1))
    assert status(start(enable=("p",)), "p") == "enabled"
    before = (home / "plugins_trust.json").stat().st_mtime_ns
    code = (
        "import sys; sys.addaudithook(lambda e, a: e == 'open' and str(a[0]).startswith(sys.argv[1]) and print(a[0]));"
        "from hermes_agent.app.main import main; main(['plugins', 'list', '--plain']); print('hashlib' in sys.modules)"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, str(place)], capture_output=True, text=True, timeout=60, check=True
    )

    opened = [f"{place}/plugin.yaml"]
    assert done.stdout.splitlines() == [*opened, "enabled      user              p", "False"]
    assert (home / "plugins_trust.json").stat().st_mtime_ns == before


def test_what_a_plugin_keeps_beside_itself_is_no_change_but_new_code_is(
    write_plugin: Write, start: Start, home: Path
) -> None:
    place = write_plugin("p")
    (place / "settings.json.example").write_text("{}")
    (place / "settings.json").write_text("{}")
    start(enable=("p",))

    (place / "cache.db").write_bytes(b"\0")
    (place / "settings.json").write_text('{"mine": 1}')
    assert status(start(enable=("p",)), "p") == "enabled"

    (place / "late.py").write_text("")
    assert status(start(enable=("p",)), "p") == "changed"


@pytest.mark.parametrize("planted", ["_speedups.so", "lib/inner.py", "run-me", "plugin.yml"])
def test_new_files_that_may_be_run_are_a_change(write_plugin: Write, start: Start, planted: str) -> None:
    place = write_plugin("p")
    start(enable=("p",))
    file = place / planted
    file.parent.mkdir(exist_ok=True)
    file.write_text("#!/bin/sh\n")
    if planted == "run-me":
        file.chmod(0o755)

    assert status(start(enable=("p",)), "p") == "changed"


PLANTED = """
import os, sys
sys.path.insert(0, os.path.dirname(__file__))
import beside_p
from . import inner

def register(ctx):
    ctx.register_hook("pre_llm_call", inner.f)
"""


def test_bytecode_beside_a_granted_source_is_not_run(write_plugin: Write, start: Start, tmp_path: Path) -> None:
    place = write_plugin("p", PLANTED)
    source = "def f(**kw):\n    return 'granted'\n"
    for name in ("inner", "beside_p"):
        (place / f"{name}.py").write_text(source)
    start(enable=("p",))
    evil = tmp_path / "evil.py"
    evil.write_text(source.replace("granted", "planted"))
    for name in ("inner", "beside_p"):
        info = (place / f"{name}.py").stat()
        os.utime(evil, ns=(info.st_mtime_ns, info.st_mtime_ns))
        target = place / "__pycache__" / f"{name}.{sys.implementation.cache_tag}.pyc"
        py_compile.compile(str(evil), str(target), dfile=str(place / f"{name}.py"), doraise=True)
    code = (
        "import sys; from pathlib import Path; from hermes_agent.host import Host;"
        "h = Host.build(); h.plugins.discover_and_load();"
        "print(h.hooks.fire('pre_llm_call')[0].value, sys.modules['beside_p'].f()); h.bridge.close()"
    )
    plain = "import sys; sys.path.insert(0, sys.argv[1]); import inner; print(inner.f())"
    alone = subprocess.run(
        [sys.executable, "-c", plain, str(place)], capture_output=True, text=True, timeout=60, check=True
    )
    assert alone.stdout == "planted\n", "Python itself believes the planted file"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)

    assert done.stdout == "granted granted\n", done.stderr


def test_dev_is_not_pinned_and_says_so_wherever_it_is_shown(
    home: Path, write_plugin: Write, start: Start, tmp_path: Path, capsys: Capture
) -> None:
    work = write_plugin("mine", root=tmp_path / "work")
    (home / "plugins" / "mine").symlink_to(work)
    config = "plugins:\n  enabled: [mine]\n  entries:\n    mine:\n      trust: dev\n"
    start(config)
    (work / "__init__.py").write_text("def register(ctx):\n    pass  # changed\n")

    host = start(config)

    assert "✓ mine [dev: not pinned]" in host.plugins.status_text()
    assert not (home / "plugins_trust.json").exists()
    main(["plugins", "list"])
    assert "dev: its files are not pinned" in capsys.readouterr().out
    main(["plugins", "grant", "mine"])
    assert "not pinned" in capsys.readouterr().out


def test_a_link_is_pinned_by_what_it_leads_to(home: Path, write_plugin: Write, start: Start, tmp_path: Path) -> None:
    work = write_plugin("mine", root=tmp_path / "work")
    (home / "plugins" / "mine").symlink_to(work)
    start(enable=("mine",))
    (work / "__init__.py").write_text("def register(ctx): 1\n")

    assert status(start(enable=("mine",)), "mine") == "changed"


def test_code_mode_lets_data_that_came_with_the_plugin_change(write_plugin: Write, start: Start) -> None:
    place = write_plugin("p")
    (place / "notes.txt").write_text("as delivered")
    config = "plugins:\n  enabled: [p]\n  entries:\n    p:\n      trust: code\n"
    start(config)
    (place / "notes.txt").write_text("written by the plugin")

    assert status(start(config), "p") == "enabled"
    assert status(start(enable=("p",)), "p") == "changed"
    (place / "__init__.py").write_text("def register(ctx): 1\n")
    assert status(start(config), "p") == "changed"


def test_a_namesake_in_another_project_is_not_granted_with_the_first(
    home: Path, write_plugin: Write, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_ENABLE_PROJECT_PLUGINS", "1")
    for project, body in (("a", "pass"), ("b", "raise SystemExit('ran')"), ("c", "pass")):
        write_plugin("helper", f"def register(ctx):\n    {body}\n", root=tmp_path / project / ".hermes" / "plugins")

    seen = {}
    for project in "abc":
        monkeypatch.chdir(tmp_path / project)
        seen[project] = status(start(enable=("helper",)), "helper")

    assert seen == {"a": "enabled", "b": "changed", "c": "enabled"}


def test_a_home_that_moves_keeps_its_grants(
    home: Path, write_plugin: Write, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    write_plugin("p")
    start(enable=("p",))
    moved = home.rename(tmp_path / "moved")
    monkeypatch.setenv("HERMES_HOME", str(moved))

    main(["plugins", "list", "--plain"])

    assert capsys.readouterr().out == "enabled      user              p\n"


def test_a_damaged_file_of_pins_lets_nothing_pinned_run_until_it_is_granted_again(
    home: Path, write_plugin: Write, start: Start
) -> None:
    write_plugin("p")
    start(enable=("p",))
    (home / "plugins_trust.json").write_text("{")

    host = start(enable=("p",))

    assert status(host, "p") == "changed"
    assert (
        "plugins_trust.json cannot be used: it is damaged (run `hermes plugins grant p`" in host.plugins.status_text()
    )
    assert main(["plugins", "grant", "p", "--yes"]) == 0
    assert status(start(enable=("p",)), "p") == "enabled"


def test_what_cannot_be_pinned_does_not_run_and_says_what_does(home: Path, write_plugin: Write, start: Start) -> None:
    place = write_plugin("p")
    for number in range(MAX_FILES):
        os.close(os.open(place / str(number), os.O_CREAT | os.O_WRONLY))

    host = start(enable=("p",))

    assert status(host, "p") == "changed"
    assert f"more than {MAX_FILES} files (`plugins.entries.p.trust: dev` does without)" in host.plugins.status_text()


def test_a_loop_of_links_ends(home: Path, write_plugin: Write, start: Start) -> None:
    place = write_plugin("p")
    (place / "again").symlink_to(place)
    (place / "nowhere").symlink_to(place / "not-there")

    assert status(start(enable=("p",)), "p") == "enabled"


def test_bundled_declared_and_installed_plugins_are_not_pinned(
    home: Path, write_plugin: Write, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plugin("b", root=tmp_path / "bundled")
    declared = write_plugin("d", root=tmp_path / "declared")
    monkeypatch.setenv("HERMES_BUNDLED_PLUGINS", f"{tmp_path}/bundled:{tmp_path}/declared")
    start(enable=("b", "d"))
    (declared / "__init__.py").write_text("def register(ctx): 1\n")

    host = start(enable=("b", "d"))

    assert [status(host, k) for k in ("b", "d")] == ["enabled", "enabled"]
    assert not (home / "plugins_trust.json").exists()
