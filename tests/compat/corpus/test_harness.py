"""The comparison of `make compat` sees a difference, and says which."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from compat.corpus import expect
from compat.corpus.compare import differences, expected_failure, expected_without_env, refusals, unserved
from compat.corpus.lists import DATA, LATER, plugins
from compat.corpus.table import Row, judge, rows_of, run_one, show
from compat.repositories.record import digest_of

ROOT = DATA.parents[2]
ORACLES = sorted((DATA / "oracle").glob("*.json"))


def first_run(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((DATA / "oracle" / name).read_text(encoding="utf-8"))
    return next(run["registered"] for run in loaded["runs"] if run["loads"])


def leaf_paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [p for k, v in value.items() for p in leaf_paths(v, (*path, k))]
    return [path]


@pytest.mark.parametrize("file", ORACLES, ids=lambda p: p.stem)
def test_what_the_peer_registered_is_the_same_as_itself(file: Path) -> None:
    registered = first_run(file.name)

    assert differences(registered, copy.deepcopy(registered)) == []


@pytest.mark.parametrize("section", ["tools", "hooks", "commands", "memory", "platforms", "skills", "cli_commands"])
def test_one_changed_field_of_an_oracle_is_a_red_row(section: str) -> None:
    registered = next(r for file in ORACLES if (r := first_run(file.name)).get(section))
    compared = [p for p in leaf_paths(registered[section]) if not {"schema", "params", "required"} & set(p[1:2])]
    path = next(p for p in compared if p[-1] not in ("description_sha", "from_plugin", "via_ctx", "source"))
    changed = copy.deepcopy(registered)
    here = changed[section]
    for part in path[:-1]:
        here = here[part]
    here[path[-1]] = "something else"

    found = differences(changed, registered)

    assert len(found) == 1
    assert found[0].startswith(".".join([section, *map(str, path)]))
    assert "something else" in found[0]


def test_what_is_missing_and_what_is_too_much_are_named() -> None:
    peer = {"tools": {"a": {"toolset": "x"}}, "plugins": {"p": {"enabled": True}}}
    ours = {"tools": {"b": {"toolset": "x"}}, "plugins": {"p": {"enabled": False, "error": "no"}}}

    assert differences(peer, ours) == [
        "tools.a is missing",
        "tools.b is too much",
        "plugin p does not run: no",
    ]
    assert differences({"plugins": {"p": {"enabled": True}}}, {}) == ["plugin p was not found"]


def test_ours_may_have_more_where_the_peer_s_context_has_no_method() -> None:
    assert differences({}, {"memory": {"name": "m"}}) == []
    assert differences({}, {"hooks": {"pre_llm_call": []}}) == ["hooks.pre_llm_call is too much"]


def test_without_its_variables_a_plugin_registers_nothing_and_says_the_promised_line() -> None:
    said = {"log": ["Plugin weather disabled (missing: WEATHER_KEY)"], "registered": {"plugins": {"weather": {}}}}
    silent = {"log": [], "registered": {"tools": {"t": {}}}}

    assert expected_without_env(said, "weather") == []
    assert expected_without_env(silent, "weather") == [
        "tools is registered although variables are missing",
        "the line `Plugin weather disabled (missing: …)` is missing",
    ]


def test_a_host_module_that_the_peer_gave_and_we_refuse_is_named() -> None:
    answer = {"refused": ["tools.a", "tools.b"]}

    assert unserved({"host_modules": ["tools.a"]}, answer) == ["import of tools.a failed"]


def made(data: Path, site: Path, register: str) -> None:
    """Write a list with one plugin, an oracle that says what it registers, and the plugin, installed."""
    module = site / "made_plugin"
    module.mkdir(parents=True)
    (module / "__init__.py").write_text(
        "def handler(args, **kwargs):\n    return '{}'\n"
        "def listen(**kwargs):\n    return None\n"
        f"def register(ctx):\n    {register}\n"
    )
    metadata = site / "made_plugin-1.dist-info"
    metadata.mkdir()
    (metadata / "entry_points.txt").write_text("[hermes_agent.plugins]\nmade = made_plugin\n")
    handler = {"is_async": False, "module": "made_plugin", "name": "listen", "params": ["**kwargs"]}
    run = {
        "mode": "entrypoint",
        "enabled": ["made"],
        "env": [],
        "memory_provider": None,
        "loads": True,
        "registered": {
            "hooks": {"pre_llm_call": [handler | {"signature": "(**kwargs)"}]},
            "plugins": {"made": {"enabled": True}},
        },
    }
    (data / "oracle").mkdir(parents=True)
    (data / "open.txt").write_text("made==1\n")
    for name in ("callable.txt", f"{LATER}.txt", f"{LATER}.toml"):
        (data / name).write_text("")
    (data / "circumstances.toml").write_text("")
    (data / "oracle" / "made.json").write_text(json.dumps({"name": "made", "version": "1", "runs": [run]}))


def row_of(tmp_path: Path, register: str) -> Row:
    made(tmp_path / "data", tmp_path / "site", register)
    [plugin] = plugins(data=tmp_path / "data")
    [row] = judge(plugin, plugin.runs[0], tmp_path / "site")
    return row


def test_a_plugin_that_does_as_with_the_peer_is_green(tmp_path: Path) -> None:
    row = row_of(tmp_path, "ctx.register_hook('pre_llm_call', listen)")

    assert (row.verdict, row.lines) == ("same", ())
    assert show(row).split() == ["made", "entrypoint", "same"]


def test_a_plugin_that_registers_something_else_is_red_and_the_row_says_what(tmp_path: Path) -> None:
    row = row_of(tmp_path, "ctx.register_hook('post_llm_call', listen)")

    assert row.verdict == "differs"
    assert row.lines == ("hooks.post_llm_call is too much", "hooks.pre_llm_call is missing")
    assert "hooks.pre_llm_call is missing" in show(row)


def test_a_plugin_that_ends_the_process_is_broken_and_not_green(tmp_path: Path) -> None:
    row = row_of(tmp_path, "__import__('os')._exit(3)")

    assert row.verdict == "broken"
    assert row.lines[0].startswith("the process ended with 3")


def test_a_call_that_needs_an_absent_name_of_the_host_is_red(tmp_path: Path) -> None:
    made(tmp_path / "data", tmp_path / "site", "ctx.register_hook('pre_llm_call', listen)")
    file = tmp_path / "site" / "made_plugin" / "__init__.py"
    file.write_text(file.read_text().replace("    return None", "    from tools import no_such_part"))
    [plugin] = plugins(data=tmp_path / "data")

    row = run_one(plugin, plugin.runs[0], tmp_path / "site", smoke=True)

    assert row.verdict == "differs"
    assert "no_such_part" in row.lines[0]
    assert row.lines[0].startswith("hook pre_llm_call: ")


def test_a_host_that_fails_while_a_plugin_works_is_red(tmp_path: Path) -> None:
    source = "from hermes_agent.core.text import shorten; import logging"
    call = "\n    try:\n        shorten(None, 1)\n    except Exception:\n        logging.exception('it failed')"
    row = row_of(tmp_path, f"ctx.register_hook('pre_llm_call', listen)\n    {source}{call}")

    assert row.verdict == "differs"
    assert row.lines[0].startswith("log: it failed: ")


def later_plugin(tmp_path: Path, source: str) -> tuple[Path, Path]:
    """Write the list of repositories with one plugin of them; return the data and the folder of repositories."""
    data, place = tmp_path / "data", tmp_path / "repositories"
    made(data, tmp_path / "site", "pass")
    (data / "open.txt").write_text("")
    folder = place / "owner+name" / "plugin"
    folder.mkdir(parents=True)
    (folder / "plugin.yaml").write_text("name: greets\nversion: 1\nmanifest_version: 2\n")
    (folder / "__init__.py").write_text(source)
    entry = {"repository": "owner/name", "commit": "c" * 40, "folder": "plugin", "source": digest_of(folder)}
    lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in entry.items())
    (data / f"{LATER}.toml").write_text(f"[greets]\n{lines}\n")
    run = {"mode": "dir", "enabled": ["greets"], "env": [], "memory_provider": None, "loads": True, "registered": None}
    (data / LATER).mkdir()
    (data / LATER / "greets.json").write_text(json.dumps({"name": "greets", "version": "", "runs": [run]}))
    (data / "locks").mkdir()
    (data / "locks" / "greets.txt").write_text("")
    return data, place


LATER_SOURCE = """
def register(ctx):
    ctx.register_system_prompt_section("greeting", "Greet.")
    try:
        import tools.of_a_later_host
    except ImportError:
        pass
"""


def test_what_a_plugin_of_the_later_contract_registers_is_recorded_here_and_compared(tmp_path: Path) -> None:
    data, place = later_plugin(tmp_path, LATER_SOURCE)
    [plugin] = plugins(data=data, later=place)

    assert expect.recorded(plugin, data=data) == "greets: dir loads"
    [plugin] = plugins(data=data, later=place)
    assert plugin.runs[0].refused == ("tools.of_a_later_host",)
    assert plugin.runs[0].registered["registrations"] == {
        "greets": {"made": ["system_prompt_section greeting"], "refused": []}
    }
    assert [(row.verdict, row.lines) for row in rows_of(plugin)] == [("same", ())]

    file = data / LATER / "greets.json"
    content = json.loads(file.read_text())
    content["runs"][0]["registered"]["registrations"]["greets"]["made"] = []
    content["runs"][0]["refused"] = []
    file.write_text(json.dumps(content))
    [plugin] = plugins(data=data, later=place)
    [row] = rows_of(plugin)
    assert row.lines == (
        "registrations.greets.made: [] there, ['system_prompt_section greeting'] here",
        "import of tools.of_a_later_host failed",
    )

    (place / "owner+name" / "plugin" / "__init__.py").write_text(LATER_SOURCE + "# later\n")
    [row] = rows_of(plugin)
    assert row.lines == (f"this is another version than the recorded one, commit {'c' * 40}",)
    [plugin] = plugins(data=data)
    [row] = rows_of(plugin)
    assert (row.verdict, row.lines) == ("skipped", (f"LATER_PLUGINS=DIR has no owner/name, commit {'c' * 40}",))


def test_a_plugin_that_is_known_to_fail_must_fail_for_the_same_reason(tmp_path: Path) -> None:
    data, place = later_plugin(tmp_path, "def register(ctx):\n    raise RuntimeError('no daemon')\n")
    [plugin] = plugins(data=data, later=place)
    assert expect.recorded(plugin, data=data).startswith("greets: dir does not load greets: ")
    assert rows_of(plugins(data=data, later=place)[0]) == []

    file = data / LATER / "greets.json"
    content = json.loads(file.read_text())
    content["runs"][0]["reason"] = "it needs its daemon"
    file.write_text(json.dumps(content))
    [plugin] = plugins(data=data, later=place)
    [row] = rows_of(plugin)
    assert (row.verdict, row.lines, row.green) == ("fails as known", ("it needs its daemon",), True)

    run = plugin.runs[0]
    there = {"registered": {"plugins": {"greets": {"enabled": True, "error": None}}}}
    other = {"registered": {"plugins": {"greets": {"enabled": False, "error": "another"}}}}
    assert expected_failure(there, run) == ["plugin greets loads now: record it"]
    assert expected_failure(other, run) == ["plugin greets fails for another reason: another"]


def test_a_name_of_the_host_that_is_served_now_makes_the_record_stale() -> None:
    assert refusals(["tools.a"], {"refused": ["tools.a"]}) == []
    assert refusals(["tools.a"], {"refused": ["tools.b"]}) == [
        "import of tools.b failed",
        "import of tools.a is served: record it",
    ]


def test_each_plugin_of_the_later_contract_is_recorded_and_loads_or_has_a_reason() -> None:
    recorded = [plugin for plugin in plugins() if plugin.listing.startswith(LATER)]

    assert len(recorded) >= 32
    runs = [(plugin.name, run) for plugin in recorded for run in plugin.runs]
    assert [name for name, run in runs if not run.loads and not run.reason] == []
    assert [name for name, run in runs if not run.registered or run.refused is None] == []
    assert [plugin.name for plugin in recorded if not plugin.lock.exists()] == []


def test_no_published_plugin_is_named_in_the_source() -> None:
    names = [plugin.name for plugin in plugins()]
    pattern = re.compile("|".join(map(re.escape, names + [n.replace("-", "_") for n in names])))

    named = {
        str(path.relative_to(ROOT)): found.group()
        for folder in ("hermes", "plugins")
        for path in (ROOT / folder).rglob("*.py")
        if (found := pattern.search(path.read_text(encoding="utf-8")))
    }

    assert named == {}


def test_an_unknown_name_is_refused_with_the_list() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "compat.corpus", "no-such-plugin"],
        cwd=ROOT / "tests",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 1
    assert done.stderr.startswith("no plugin of the lists is named no-such-plugin: see ")
