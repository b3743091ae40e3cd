"""The wheel, built and installed as people do it: what comes with the agent is in it, and answers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from wheels import build, call, copy_source, install_wheel, make_environment
from worlds import ROOT


@pytest.mark.parametrize("over_an_archive", [False, True], ids=["from the sources", "from an archive of the sources"])
def test_the_installed_wheel_has_the_bundled_plugins_as_files_and_a_bundled_provider_answers(
    tmp_path: Path, scripted, over_an_archive: bool
) -> None:
    source = copy_source(tmp_path / "source")
    if over_an_archive:
        shutil.unpack_archive(build("build_sdist", source, tmp_path / "dist"), tmp_path / "unpacked")
        (source,) = (tmp_path / "unpacked").iterdir()
    wheel = build("build_wheel", source, tmp_path / "wheels")

    environment = tmp_path / "environment"
    site = make_environment(environment)
    install_wheel(wheel, environment)

    bundled = site / "hermes_agent" / "_bundled"
    suffixes = (".py", ".yaml")
    expected = {p.relative_to(ROOT / "plugins") for p in (ROOT / "plugins").rglob("*") if p.suffix in suffixes}
    found = {p.relative_to(bundled) for p in bundled.rglob("*") if p.suffix in suffixes and not p.is_symlink()}
    assert len(expected) > 20 and found == expected
    assert not bundled.is_symlink()

    with scripted([{"match": {"userMessage": "Hello"}, "response": {"content": "Good day."}}]) as model:
        home = tmp_path / "home"
        home.mkdir()
        (home / "config.yaml").write_text(
            f"model: {{provider: custom, base_url: '{model.base_url}', default: scripted}}\n"
        )
        where = {"HERMES_HOME": str(home), "OPENAI_API_KEY": model.key}
        said = call(environment / "bin" / "hermes", "-z", "Hello", cwd=tmp_path, **where)
        assert (said.returncode, said.stdout) == (0, "Good day.\n"), said.stderr
