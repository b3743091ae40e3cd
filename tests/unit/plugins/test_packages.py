"""Python packages that fight for a name, as `hermes plugins check` sees them."""

from __future__ import annotations

from pathlib import Path

from hermes_agent.app.plugins.check import package_findings


def install(place: Path, name: str, version: str, *files: str, plugin: bool = False) -> None:
    """Put a distribution there as pip would: its files, and their list."""
    info = place / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    if plugin:
        (info / "entry_points.txt").write_text(f"[hermes_agent.plugins]\n{name} = {name.replace('-', '_')}\n")
    for file in files:
        (place / file).parent.mkdir(parents=True, exist_ok=True)
        (place / file).write_text("")


def test_packages_that_share_nothing_are_no_finding(tmp_path: Path) -> None:
    install(tmp_path, "one", "1.0", "one/__init__.py", "space/one.py", plugin=True)
    install(tmp_path, "two", "1.0", "two/__init__.py", "space/two.py")
    assert package_findings([str(tmp_path)]) == []


def test_one_import_name_of_two_packages_is_an_error_that_names_both_where_a_plugin_is_concerned(
    tmp_path: Path,
) -> None:
    install(tmp_path, "weather", "1.0", "tools_of_it/__init__.py", plugin=True)
    install(tmp_path, "climate", "2.0", "tools_of_it/__init__.py")

    (found,) = package_findings([str(tmp_path)])

    assert (found.level, found.name) == ("error", "tools_of_it")
    assert found.render("error").split("\n")[:3] == [
        "error: hermes-agent: the import name `tools_of_it` belongs to 2 Python packages that brought the same files:",
        f"  climate 2.0  {tmp_path}",
        f"  weather 1.0  {tmp_path}",
    ]
    assert "uninstall the other" in found.hint


def test_two_packages_that_no_plugin_lives_in_are_a_warning(tmp_path: Path) -> None:
    install(tmp_path, "left", "1.0", "tests/__init__.py")
    install(tmp_path, "right", "1.0", "tests/__init__.py")
    assert [f.level for f in package_findings([str(tmp_path)])] == ["warning"]


def test_two_versions_of_a_plugin_s_package_are_an_error_that_says_which_is_imported(tmp_path: Path) -> None:
    install(tmp_path / "a", "weather", "1.0", "weather/__init__.py", plugin=True)
    install(tmp_path / "b", "Weather", "2.0", "weather/__init__.py", plugin=True)

    (found,) = package_findings([str(tmp_path / "a"), str(tmp_path / "b")])

    assert found.level == "error" and "in 2 versions, and the first is imported" in found.text
    assert found.details == (f"weather 1.0  {tmp_path / 'a'}", f"weather 2.0  {tmp_path / 'b'}")


def test_the_same_place_twice_on_the_path_is_one(tmp_path: Path) -> None:
    install(tmp_path, "weather", "1.0", "weather/__init__.py", plugin=True)
    assert package_findings([str(tmp_path), str(tmp_path / ".")]) == []
