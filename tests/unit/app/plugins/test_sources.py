"""What people type as the source of a plugin: plugin contract §1.13."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_agent.app.plugins.sources import PluginSource, parse_source
from hermes_agent.core.errors import UserError

GITHUB = "https://github.com/o/r.git"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("o/r", PluginSource("git", GITHUB)),
        ("o/r/sub/dir", PluginSource("git", GITHUB, subdir="sub/dir")),
        ("o/r@v1#sub", PluginSource("git", GITHUB, "v1", "sub")),
        ("https://github.com/o/r/tree/main/a/b", PluginSource("git", GITHUB, "main", "a/b")),
        ("https://h.example/x.git/sub", PluginSource("git", "https://h.example/x.git", subdir="sub")),
        ("https://h.example/x.git@v1#sub", PluginSource("git", "https://h.example/x.git", "v1", "sub")),
        ("git+https://h.example/x.git", PluginSource("git", "https://h.example/x.git")),
        ("https://user@h.example/x.git", PluginSource("git", "https://user@h.example/x.git")),
        ("git@h.example:o/r.git@v1", PluginSource("git", "git@h.example:o/r.git", "v1")),
        ("git@h.example:o/r.git", PluginSource("git", "git@h.example:o/r.git")),
        ("ssh://git@h.example/o/r.git@v2", PluginSource("git", "ssh://git@h.example/o/r.git", "v2")),
        ("pip:some-plugin>=1", PluginSource("pip", "some-plugin>=1")),
        ("some-plugin", PluginSource("pip", "some-plugin")),
        ("some-plugin[extra]==1.0", PluginSource("pip", "some-plugin[extra]==1.0")),
    ],
)
def test_every_form_is_understood(text: str, expected: PluginSource, tmp_path: Path) -> None:
    assert parse_source(text, cwd=tmp_path) == expected


def test_what_is_there_is_meant_before_a_repository_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "o" / "r").mkdir(parents=True)
    (tmp_path / "p.zip").write_text("")
    (tmp_path / "p-1-py3-none-any.whl").write_text("")

    assert parse_source("o/r", cwd=tmp_path) == PluginSource("directory", f"{tmp_path}/o/r")
    assert parse_source("./o#r", cwd=tmp_path) == PluginSource("directory", f"{tmp_path}/o", subdir="r")
    assert parse_source("p.zip#sub", cwd=tmp_path) == PluginSource("archive", f"{tmp_path}/p.zip", subdir="sub")
    assert parse_source("p-1-py3-none-any.whl", cwd=tmp_path).kind == "pip"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no source"),
        ("./nix", "is not there"),
        ("ext::sh -c id", "no source"),
        ("ext://x/y", "ext:// is no way to fetch"),
        ("o/../r", "no source"),
        ("o/r#../../etc", "leads out of the source"),
        ("o/r@-x", "do not begin with"),
        ("pip:--index-url=x", "do not begin with"),
        ("pip:", "not empty"),
    ],
)
def test_what_is_no_source_is_refused_with_the_forms(text: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=reason):
        parse_source(text, cwd=tmp_path)


def test_a_ref_is_named_once_and_for_git_alone(tmp_path: Path) -> None:
    assert parse_source("o/r", ref="v1", cwd=tmp_path).ref == "v1"
    for text in ("o/r@v2", "pip:x"):
        with pytest.raises(UserError):
            parse_source(text, ref="v1", cwd=tmp_path)


def test_a_password_is_not_shown_and_not_recorded(tmp_path: Path) -> None:
    source = parse_source("https://me:hunter2@h.example/x.git@v1", cwd=tmp_path)

    assert source.location == "https://me:hunter2@h.example/x.git"
    assert source.label == "https://me@h.example/x.git@v1"
    assert "hunter2" not in str(source.as_origin())
