"""Sources, layouts, and two with one key: plugin contract §1.1, §1.2; §14.1 row 10; §15 points 2 and 5."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_agent.plugins.discovery import Discovery, discover

Write = Callable[..., Path]


def sweep(home: Path, environ: dict[str, str] | None = None, path: list[str] | None = None) -> Discovery:
    return discover(home, {"HERMES_BUNDLED_PLUGINS": "/none", **(environ or {})}, Path.cwd(), path=path or [])


def test_both_layouts_are_found_and_a_third_level_is_not(
    home: Path, write_plugin: Write, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    write_plugin("flat")
    write_plugin("image_gen/foo", manifest="name: whatever")
    write_plugin("image_gen/deep/er")

    found = sweep(home)

    assert {key: m.name for key, m in found.plugins.items()} == {"flat": "flat", "image_gen/foo": "whatever"}
    assert f"skip {home}/plugins/image_gen/deep: no plugin.yaml, depth cap reached" in caplog.messages


def test_yml_is_read_and_yaml_is_preferred(home: Path, write_plugin: Write) -> None:
    (write_plugin("a", manifest="name: long") / "plugin.yml").write_text("name: short")
    b = home / "plugins" / "b"
    b.mkdir()
    (b / "plugin.yml").write_text("name: only")

    assert list(sweep(home).plugins) == ["long", "only"]


def test_the_sources_come_in_order(home: Path, write_plugin: Write, tmp_path: Path) -> None:
    write_plugin("from-home")
    write_plugin("from-bundle", root=tmp_path / "bundle")
    write_plugin("from-platforms", root=tmp_path / "bundle" / "platforms")
    write_plugin("from-build", root=tmp_path / "declared")
    write_plugin("from-project", root=Path.cwd() / ".hermes" / "plugins")
    installed(tmp_path / "site", "packaged", "packaged = x.y")
    environ = {
        "HERMES_BUNDLED_PLUGINS": f"{tmp_path}/bundle:{tmp_path}/declared",
        "HERMES_ENABLE_PROJECT_PLUGINS": "Yes",
    }

    found = sweep(home, environ, [str(tmp_path / "site")])

    assert [(m.key, m.source) for m in found.plugins.values()] == [
        ("from-bundle", "bundled"),
        ("from-platforms", "bundled"),
        ("from-build", "declared"),
        ("from-home", "user"),
        ("from-project", "project"),
        ("packaged", "entrypoint"),
    ]


def test_project_plugins_are_asked_for(home: Path, write_plugin: Write) -> None:
    write_plugin("p", root=Path.cwd() / ".hermes" / "plugins")

    assert list(sweep(home).plugins) == []
    assert list(sweep(home, {"HERMES_ENABLE_PROJECT_PLUGINS": "0"}).plugins) == []


def test_safe_mode_finds_nothing(home: Path, write_plugin: Write, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    write_plugin("p")

    assert list(sweep(home, {"HERMES_SAFE_MODE": "1"}).plugins) == []
    assert caplog.messages == ["HERMES_SAFE_MODE=1 — plugin discovery skipped"]


def test_a_bundled_key_may_be_replaced_with_a_warning_and_a_mark(
    home: Path, write_plugin: Write, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_plugin("first", root=tmp_path / "bundle")
    write_plugin("twin", root=tmp_path / "bundle")
    write_plugin("twin")
    write_plugin("a-later-one")

    found = sweep(home, {"HERMES_BUNDLED_PLUGINS": f"{tmp_path}/bundle"})

    assert list(found.plugins) == ["first", "twin", "a-later-one"]  # it keeps the place of the one it replaces
    assert found.plugins["twin"].source == "user"
    assert found.plugins["twin"].replaces == f"{tmp_path}/bundle/twin"
    assert caplog.messages == [f"the user plugin `twin` ({home}/plugins/twin) replaces the bundled one"]


def test_of_two_others_with_one_name_the_first_by_path_stays_and_both_are_named(
    home: Path, write_plugin: Write, caplog: pytest.LogCaptureFixture
) -> None:
    write_plugin("b-second", manifest="name: twin")
    write_plugin("a-first", manifest="name: twin")

    found = sweep(home)

    assert found.plugins["twin"].path == f"{home}/plugins/a-first"
    [rejected] = found.rejected
    assert (rejected.path, rejected.rival) == (f"{home}/plugins/b-second", f"{home}/plugins/a-first")
    assert caplog.messages == [
        f"the plugin at {home}/plugins/b-second is not used: `twin` is already the user plugin {home}/plugins/a-first"
    ]


def test_a_home_plugin_does_not_replace_a_declared_one(home: Path, write_plugin: Write, tmp_path: Path) -> None:
    write_plugin("twin", root=tmp_path / "declared")
    write_plugin("twin")

    found = sweep(home, {"HERMES_BUNDLED_PLUGINS": f"/none:{tmp_path}/declared"})

    assert found.plugins["twin"].source == "declared"
    assert [r.path for r in found.rejected] == [f"{home}/plugins/twin"]


def test_a_declared_path_may_be_a_plugin_itself(home: Path, write_plugin: Write, tmp_path: Path) -> None:
    place = write_plugin("one", root=tmp_path)

    assert list(sweep(home, {"HERMES_BUNDLED_PLUGINS": f"/none:{place}"}).plugins) == ["one"]


def test_one_plugin_that_is_found_twice_is_one_plugin(home: Path, write_plugin: Write, tmp_path: Path) -> None:
    place = write_plugin("real", root=tmp_path)
    (home / "plugins" / "link-a").symlink_to(place)
    (home / "plugins" / "link-b").symlink_to(place)

    found = sweep(home)

    assert list(found.plugins) == ["real"]
    assert found.rejected == []


def test_a_link_that_leads_nowhere_is_named(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    (home / "plugins" / "gone").symlink_to("/not/there")

    found = sweep(home)

    assert [(r.name, r.reason) for r in found.rejected] == [
        ("gone", "the link leads to /not/there, which is not there")
    ]
    assert caplog.messages == [
        f"the plugin at {home}/plugins/gone is not used: the link leads to /not/there, which is not there"
    ]


def test_one_bad_manifest_harms_no_other(home: Path, write_plugin: Write, caplog: pytest.LogCaptureFixture) -> None:
    write_plugin("a-bad", manifest="name: [")
    write_plugin("b-number", manifest="name: 123")
    write_plugin("c-huge", manifest="x" * 70_000)
    write_plugin("d-good")

    found = sweep(home)

    assert list(found.plugins) == ["123", "d-good"]
    assert [r.name for r in found.rejected] == ["a-bad", "c-huge"]
    assert caplog.messages[0].startswith(f"Failed to parse {home}/plugins/a-bad/plugin.yaml: line ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_folder_that_cannot_be_read_is_named(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    (home / "plugins").chmod(0)

    assert list(sweep(home).plugins) == []
    assert caplog.messages == [f"cannot read the plugin folder {home}/plugins: Permission denied"]


def test_caches_and_checkouts_are_no_categories(home: Path, write_plugin: Write) -> None:
    write_plugin("__pycache__/x")
    write_plugin(".git/y")

    assert list(sweep(home).plugins) == []


# -- entry points ----------------------------------------------------------------------------------------------


def installed(site: Path, distribution: str, *lines: str, version: str = "1.0") -> None:
    folder = site / f"{distribution}-{version}.dist-info"
    folder.mkdir(parents=True)
    text = "\n".join(["[console_scripts]", "a = b:c", "", "[hermes_agent.plugins]", *lines, "", "[other]", "x = y"])
    (folder / "entry_points.txt").write_text(text)


def test_entry_points_are_read_without_importing_anything(home: Path, tmp_path: Path) -> None:
    installed(tmp_path / "site", "acme_tools", "# ours", "acme = acme.plugin", "other=acme.other:Obj.register [extra]")

    found = sweep(home, path=[str(tmp_path / "site")])

    assert [(m.key, m.path, m.distribution, m.version, m.shown_version) for m in found.plugins.values()] == [
        ("acme", "acme.plugin", "acme_tools 1.0", "", "1.0"),
        ("other", "acme.other:Obj.register", "acme_tools 1.0", "", "1.0"),
    ]


def test_a_distribution_that_comes_again_on_the_path_is_shadowed(home: Path, tmp_path: Path) -> None:
    installed(tmp_path / "one", "Acme.Tools", "acme = new")
    installed(tmp_path / "two", "acme_tools", "acme = old", version="0.9")

    found = sweep(home, path=[str(tmp_path / "one"), str(tmp_path / "two"), str(tmp_path / "absent")])

    assert [m.path for m in found.plugins.values()] == ["new"]
    assert found.rejected == []


def test_of_two_packages_with_one_plugin_name_both_are_named(home: Path, tmp_path: Path) -> None:
    installed(tmp_path / "site", "acme", "twin = a")
    installed(tmp_path / "site", "bcme", "twin = b")

    found = sweep(home, path=[str(tmp_path / "site")])

    assert [(r.path, r.rival) for r in found.rejected] == [("bcme 1.0 (b)", "acme 1.0 (a)")]


def test_the_sweep_sees_what_importlib_metadata_sees(home: Path) -> None:
    from importlib.metadata import entry_points

    from hermes_agent.plugins.entry_points import find_entry_points

    assert {(p.name, p.value) for p in find_entry_points()} == {
        (p.name, p.value) for p in entry_points(group="hermes_agent.plugins")
    }
