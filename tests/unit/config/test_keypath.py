from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_agent.config.schema import parse_path, render_path

NAMES = st.text(st.characters(blacklist_characters='"', blacklist_categories=["Cs"]), min_size=1, max_size=8)


@given(st.lists(NAMES, min_size=1, max_size=4))
def test_a_path_reads_back_as_it_was(names: list[str]) -> None:
    assert parse_path(render_path(tuple(names))) == tuple(names)


def test_indices_stand_in_brackets() -> None:
    assert parse_path('a."b.c"[0].d[12]') == ("a", "b.c", 0, "d", 12)
    assert render_path(("a", "b.c", 0, "d", 12)) == 'a."b.c"[0].d[12]'


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", 'a."b', "a[x]", "a[1", "a]"])
def test_a_text_that_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not the path of a key"):
        parse_path(text)
