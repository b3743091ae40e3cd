"""Where the weights are, whether the model can run, and what the person is told."""

from __future__ import annotations

import io
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hermes_agent.core.errors import EXIT_USAGE, UserError
from hermes_agent.models.client_profiles import missing_model_error
from local_model import (
    DEFAULT,
    PINS,
    DownloadBar,
    DownloadProgress,
    LocalModelAvailability,
    MachineMemory,
    Weights,
    check_availability,
    describe_setup,
    find_pin,
    format_bytes,
    free_disk,
    installed_weights,
    make_progress,
    models_dir,
    read_memory,
    weights_path,
)

THERE = LocalModelAvailability(
    model=DEFAULT,
    path=Path("/cache/w.gguf"),
    weights=True,
    own_file=False,
    runtime=True,
    memory_needed=2_300_000_000,
    memory=MachineMemory(8_000_000_000, 4_000_000_000),
)


def missing(found: LocalModelAvailability, *, wanted: str = "") -> UserError:
    return missing_model_error([describe_setup(found)], wanted=wanted)


def lay(weights: Weights, environ: dict[str, str]) -> Path:
    """Put a file of the right length (and without content) where the weights belong."""
    path = weights_path(weights, environ)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(weights.size)
    return path


def test_the_weights_lie_in_the_cache_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    assert models_dir({"XDG_CACHE_HOME": "/c"}) == Path("/c/hermes/models")
    monkeypatch.setenv("HOME", "/home/ann")
    assert models_dir({}) == Path("/home/ann/.cache/hermes/models")
    assert models_dir({"XDG_CACHE_HOME": "relative"}) == Path("/home/ann/.cache/hermes/models")


def test_every_pin_has_all_that_a_pull_needs() -> None:
    for weights in PINS.values():
        assert len(weights.sha256) == 64
        assert weights.url.endswith(weights.file)
        assert weights.licence == "Apache-2.0"
        assert weights.memory > weights.size
        count = len(weights.packages)
        if weights.part_size:
            assert (count - 1) * weights.part_size < weights.size <= count * weights.part_size
        else:
            assert count == 1
    assert find_pin("") is PINS[DEFAULT]
    assert (find_pin("").sha256, find_pin("").size) == (
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        1_117_320_768,
    )


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UserError) as refused:
        find_pin("gpt-9")
    assert str(refused.value) == f"No embedded model is called 'gpt-9'.\nKnown: {', '.join(PINS)}."


def test_nothing_is_available_in_an_empty_cache(tmp_path: Path) -> None:
    there = check_availability({}, environ={"XDG_CACHE_HOME": str(tmp_path)})
    assert (there.model, there.weights, there.is_usable, there.own_file) == (DEFAULT, False, False, False)
    assert there.path == tmp_path / "hermes" / "models" / PINS[DEFAULT].file


def test_the_smaller_model_answers_where_it_alone_was_pulled(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    small = PINS["qwen2.5-coder-0.5b"]
    path = lay(small, environ)
    there = check_availability(None, environ=environ)
    assert (there.model, there.path, there.weights) == (small.name, path, True)
    lay(PINS[DEFAULT], environ)
    assert check_availability(None, environ=environ).model == DEFAULT
    assert check_availability(None, small.name, environ=environ).model == small.name
    assert installed_weights(environ) == [PINS[DEFAULT], small]


def test_half_a_file_is_not_there(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    path = lay(PINS[DEFAULT], environ)
    with path.open("r+b") as file:
        file.truncate(1000)
    assert not check_availability({}, environ=environ).weights


def test_a_file_of_the_own_takes_the_place_of_the_pulled_one(tmp_path: Path) -> None:
    own = tmp_path / "my-model.gguf"
    own.write_bytes(b"GGUF")
    there = check_availability({"path": str(own)})
    assert (there.model, there.path, there.weights, there.own_file) == ("my-model", own, True, True)
    missing = check_availability({"path": str(tmp_path / "other.gguf")})
    assert (missing.weights, missing.is_usable) == (False, False)


def test_it_is_usable_with_weights_runtime_and_memory() -> None:
    assert THERE.is_usable
    assert replace(THERE, memory=None).is_usable
    assert not replace(THERE, runtime=False).is_usable
    assert not replace(THERE, weights=False).is_usable
    assert not replace(THERE, memory=MachineMemory(2_000_000_000, 2_000_000_000)).is_usable


def test_the_ways_to_a_model_name_only_the_steps_that_are_missing() -> None:
    error = missing(replace(THERE, weights=False, runtime=False))
    assert error.exit_status == EXIT_USAGE
    assert error.message == "There is no model."
    assert "OPENROUTER_API_KEY" in error.hint
    assert "model.base_url" in error.hint
    assert f"{sys.executable} -m pip install" in error.hint and "[local]" in error.hint
    assert "hermes model pull        (1.12 GB to /cache)" in error.hint
    assert "services.hermes-agent" in error.hint
    runtime_only = missing(replace(THERE, runtime=False)).hint
    assert "hermes model pull" not in runtime_only
    weights_only = missing(replace(THERE, weights=False)).hint
    assert "pip install" not in weights_only


def test_too_little_memory_is_said_with_numbers() -> None:
    hint = missing(replace(THERE, memory=MachineMemory(2_000_000_000, 1))).hint
    assert "it takes 2.30 GB of memory and this machine gives 2.00 GB" in hint


def test_a_wrong_path_is_named() -> None:
    hint = missing(replace(THERE, own_file=True, weights=False)).hint
    assert "model.local.path is '/cache/w.gguf', where no file is" in hint
    assert "hermes model pull" not in hint


def test_a_named_model_without_a_provider_is_named_and_the_embedded_one_is_offered() -> None:
    error = missing(THERE, wanted="gpt-5")
    assert error.message.startswith("The model 'gpt-5' is named")
    assert "hermes config set model.provider local" in error.hint


def test_memory_is_the_smaller_of_machine_and_control_group(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       16000000 kB\nMemFree: 1 kB\nMemAvailable:   12000000 kB\n")
    assert read_memory(meminfo, tmp_path / "none") == MachineMemory(16_384_000_000, 12_288_000_000)
    (tmp_path / "memory.max").write_text("4000000000\n")
    (tmp_path / "memory.current").write_text("1000000000\n")
    assert read_memory(meminfo, tmp_path) == MachineMemory(4_000_000_000, 3_000_000_000)
    (tmp_path / "memory.max").write_text("max\n")
    assert read_memory(meminfo, tmp_path) == MachineMemory(16_384_000_000, 12_288_000_000)
    assert read_memory(tmp_path / "missing", tmp_path) is None


def test_free_disk_is_that_of_the_nearest_directory_that_is_there(tmp_path: Path) -> None:
    assert free_disk(tmp_path / "not" / "yet" / "there") > 0


def test_progress_is_a_line_every_ten_percent() -> None:
    said = io.StringIO()
    with DownloadProgress("w", 1000, said) as progress:
        for done in range(0, 1001, 25):
            progress.advance(done)
        progress.advance(100)  # started anew
    lines = said.getvalue().splitlines()
    assert len(lines) == 11
    assert lines[0] == "w: 0 % (0 B of 1.0 kB)"
    assert lines[-1] == "w: 100 % (1.0 kB of 1.0 kB)"


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_progress_is_a_bar_in_a_terminal(monkeypatch: pytest.MonkeyPatch, no_color: str, coloured: bool) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", "xterm-256color")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    said = Terminal()
    progress = make_progress("weights", 1000, said)
    assert isinstance(progress, DownloadBar)
    with progress:
        progress.advance(500)
        progress.note("half [of] it")
    assert "weights" in said.getvalue()
    assert "half [of] it" in said.getvalue()
    assert bool(re.search(r"\x1b\[[\d;]*m", said.getvalue())) is coloured
    assert isinstance(make_progress("w", 1, io.StringIO()), DownloadProgress)


@pytest.mark.parametrize(
    ("count", "shown"), [(512, "512 B"), (2048, "2.0 kB"), (98_362_432, "98.4 MB"), (1_117_320_768, "1.12 GB")]
)
def test_bytes_in_words(count: int, shown: str) -> None:
    assert format_bytes(count) == shown
