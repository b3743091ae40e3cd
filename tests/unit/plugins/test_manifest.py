"""`plugin.yaml`: plugin contract §1.3, §1.4; §14.1 row 2."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hermes_agent.plugins.manifest import InvalidManifest, PluginManifest, read_manifest


def read(tmp_path: Path, text: str | bytes, init: str = "", *, category: str = "") -> PluginManifest:
    folder = tmp_path / "a-folder"
    folder.mkdir()
    (folder / "__init__.py").write_text(init)
    file = folder / "plugin.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_manifest(str(file), source="user", category=category)


def test_every_field_of_the_guide_is_read(tmp_path: Path) -> None:
    manifest = read(
        tmp_path,
        """
name: calculator
version: 1.0.0
description: Math calculator — evaluate expressions
author: Somebody
requires_env:
  - SOME_API_KEY
  - name: OTHER_KEY
    description: "Key for the Other service"
    secret: true
provides_tools: [calculate, unit_convert]
provides_hooks: [post_tool_call]
""",
    )

    assert manifest == PluginManifest(
        name="calculator",
        version="1.0.0",
        description="Math calculator — evaluate expressions",
        author="Somebody",
        requires_env=[
            "SOME_API_KEY",
            {"name": "OTHER_KEY", "description": "Key for the Other service", "secret": True},
        ],
        provides_tools=["calculate", "unit_convert"],
        provides_hooks=["post_tool_call"],
        optional_env=[],
        requires_plugins=[],
        python_dependencies=[],
        capabilities=[],
        tags=[],
        emits=[],
        listens=[],
        provides_middleware=[],
        provides_locales=[],
        source="user",
        path=str(tmp_path / "a-folder"),
        kind="standalone",
        key="calculator",
    )
    assert manifest.env_names == ["SOME_API_KEY", "OTHER_KEY"]


@pytest.mark.parametrize(
    ("text", "name"),
    [("", "a-folder"), ("name:", "a-folder"), ("name: 123", "123"), ("name: yes", "yes"), ("name: 1.50", "1.50")],
)
def test_a_name_that_is_no_text_is_taken_as_written(tmp_path: Path, text: str, name: str) -> None:
    assert read(tmp_path, text).name == name


@pytest.mark.parametrize(
    ("text", "version"), [("version: 1.10", "1.10"), ("version: 2024-01-02", "2024-01-02"), ("version: 3", "3")]
)
def test_a_version_keeps_its_zeros(tmp_path: Path, text: str, version: str) -> None:
    assert read(tmp_path, text).version == version


def test_a_plugin_in_a_category_has_the_key_of_its_folders(tmp_path: Path) -> None:
    assert read(tmp_path, "name: other", category="image_gen").key == "image_gen/a-folder"


@pytest.mark.parametrize(
    ("init", "kind"),
    [
        ("", "standalone"),
        ("# a MemoryProvider, in a comment", "exclusive"),
        ("ctx.register_memory_provider(x)", "exclusive"),
        ("from providers import register_provider, ProviderProfile", "model-provider"),
        ("register_provider", "standalone"),
        (" " * 8192 + "MemoryProvider", "standalone"),
    ],
)
def test_a_kind_that_is_not_written_is_told_by_words_in_the_source(tmp_path: Path, init: str, kind: str) -> None:
    assert read(tmp_path, "name: x", init).kind == kind


def test_a_written_kind_wins_over_the_source(tmp_path: Path) -> None:
    assert read(tmp_path, "kind: ' Standalone '", "MemoryProvider").kind == "standalone"


def test_an_unknown_kind_is_taken_as_standalone_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manifest = read(tmp_path, "name: x\nkind: gadget\n")

    assert manifest.kind == "standalone"
    assert caplog.messages == [
        "Plugin x: unknown kind 'gadget' (valid: standalone, backend, platform, exclusive, model-provider); "
        "treating as 'standalone'"
    ]
    assert manifest.notes[0].startswith("line 2: unknown kind 'gadget'")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name: good\n\tbad: 1\n", "line 2: found a tab character that violates indentation"),
        ("- a\n- b\n", "line 1: top level must be a mapping, got list"),
        ("just text", "line 1: top level must be a mapping, got str"),
        ("\nname: [a]\n", "line 2: name is a list: expected text"),
        ("name: ../../etc\n", "line 1: name '../../etc' cannot be used"),
        ("name: a/b\n", "line 1: name 'a/b' cannot be used"),
        ("name: builtin\n", "line 1: name 'builtin' is reserved for the agent itself"),
        (f"name: {'x' * 101}\n", "line 1: name 'xxx"),
        (b"name: caf\xe9\n", "line 1: is not UTF-8"),
        ("name: x\n" + "#" * 70_000, "has 70008 bytes: at most 65536 are read"),
        ("name: &a [*a]\n", "line 1: has an alias inside its own anchor"),
        ("name: !!python/object/apply:os.system [id]\n", "could not determine a constructor for the tag"),
        ("requires_env: " + "[" * 60_000, "is nested more than 60 deep"),
        ("requires_env:\n" + "- " * 30_000 + "x", "is nested more than 60 deep"),
    ],
)
def test_a_manifest_that_cannot_be_used_says_where_and_why(tmp_path: Path, text: str | bytes, problem: str) -> None:
    with pytest.raises(InvalidManifest) as caught:
        read(tmp_path, text)

    assert problem in str(caught.value)


def test_a_bomb_of_aliases_is_refused_before_it_goes_off(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    started = time.process_time()

    with pytest.raises(InvalidManifest) as caught:
        read(tmp_path, "\n".join([*lines, "requires_env: *a11"]))

    assert "grows to more than 20000 nodes by its aliases" in str(caught.value)
    assert time.process_time() - started < 5


def test_an_alias_that_is_used_decently_is_followed(tmp_path: Path) -> None:
    manifest = read(tmp_path, "provides_tools: &t [a, b]\nprovides_hooks: *t\n")

    assert (manifest.provides_tools, manifest.provides_hooks) == (["a", "b"], ["a", "b"])


def test_a_merge_key_is_followed(tmp_path: Path) -> None:
    manifest = read(tmp_path, "base: &b {name: merged, version: 2.0}\n<<: *b\n")

    assert (manifest.name, manifest.version) == ("merged", "2.0")


def test_a_pipe_in_the_place_of_a_manifest_does_not_hang(tmp_path: Path) -> None:
    import os

    (tmp_path / "x").mkdir()
    os.mkfifo(tmp_path / "x" / "plugin.yaml")

    with pytest.raises(InvalidManifest, match="is not a regular file"):
        read_manifest(str(tmp_path / "x" / "plugin.yaml"), source="user")


def test_odd_lists_are_passed_over_with_a_note(tmp_path: Path) -> None:
    manifest = read(tmp_path, "name: x\nprovides_tools: {a: 1}\nrequires_env:\n  - 5\n  - A_KEY\n  - {url: x}\n")

    assert manifest.provides_tools == []
    assert manifest.env_names == ["A_KEY"]
    assert list(manifest.notes) == [
        "line 3: requires_env has 5: expected a name, or a mapping with `name`",
        "line 3: requires_env has {'url': 'x'}: expected a name, or a mapping with `name`",
        "line 2: provides_tools is a mapping: expected a list of names; ignored",
    ]


def test_one_required_name_may_stand_alone(tmp_path: Path) -> None:
    assert read(tmp_path, "requires_env: A_KEY").env_names == ["A_KEY"]
