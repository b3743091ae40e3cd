"""Long texts of `pre_llm_call` go to a file; the message has a preview that names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hermes_agent.hooks.bus import AnswerSpill
from hermes_agent.testing import plugin_host


def adds(text: str) -> Any:
    return lambda ctx: ctx.register_hook("pre_llm_call", lambda **kw: {"context": text})


def test_a_long_text_is_kept_in_the_home_and_the_model_sees_its_ends() -> None:
    text = "a" * 600 + "b" * 9_000 + "c" * 600
    with plugin_host(adds(text), model=["ok"]) as host:
        host.ask("hi")
        (file,) = (host.home / "hook_outputs" / host.conversation.session_id).iterdir()
        kept, sent = file.read_text(), host.model.messages[-1]["content"]

    assert kept == text
    assert sent == f"hi\n\n{'a' * 500}\n[… 10,200 characters; all of it is in {file} …]\n{'c' * 500}"


def test_a_short_text_and_one_that_may_be_long_stay_as_they_are() -> None:
    for size, spill in ((10_000, True), (10_001, False)):
        config = {"hooks": {"output_spill": {"enabled": spill}}}
        with plugin_host(adds("x" * size), model=["ok"], config=config) as host:
            host.ask("hi")
            assert host.model.messages[-1]["content"] == "hi\n\n" + "x" * size


def test_the_settings_hold(tmp_path: Path) -> None:
    spill = AnswerSpill(tmp_path, max_chars=4, head=2, tail=0)

    assert spill.fit("s", "four") == "four"
    assert spill.fit("../s", "fives").startswith("fi\n[… 5 characters; all of it is in ")
    assert [p.name for p in tmp_path.iterdir()] == [".._s"]


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    assert "the rest is lost, it could not be saved" in AnswerSpill(tmp_path / "file", max_chars=1).fit("s", "long")
