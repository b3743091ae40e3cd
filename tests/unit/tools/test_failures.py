"""What is left of the words of a tool that failed."""

from __future__ import annotations

import json

import pytest

from hermes_agent.tools.results import ERROR_LIMIT, failure


@pytest.mark.parametrize("text", ["<sys<system>tem>", "<![CD<![CDATA[ATA[", "<user<<system>/user>>", "<``````system>"])
def test_taking_a_tag_out_makes_no_other_tag(text: str) -> None:
    said = json.loads(failure(f"a {text} b"))["error"]
    assert not any(tag in said for tag in ("<system>", "<![CDATA[", "<user>", "</user>"))


def test_a_long_text_without_ends_is_cut_before_it_is_looked_at() -> None:
    said = json.loads(failure("<system " * 200_000))["error"]
    assert len(said) <= ERROR_LIMIT + len("[TOOL_ERROR] ")
