"""Markdown that grows: what is finished stays, and a frame costs little."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_agent.console.markdown_blocks import MAX_REST_CHARS, BlockSplitter
from hermes_agent.console.markdown_view import MarkdownView, load_renderer, render_markdown
from hermes_agent.console.styled import Piece, cells, line, plain, wrap

TEXT = """\
# Title

Some *intro* with `code` and a [link](https://example.com/x) and **bold text** that goes on for a while.
A second line.

- one
- two
  - nested

  more of two
- three

  ```python
  def f(x):
      return x  # comment
  ```

3. third
4. fourth

| name | size |
|------|-----:|
| a | 12 |
| `b` | 3 |

> quoted

---
```sh
ls | wc
```
End.
"""


def shown(text: str, width: int = 60) -> str:
    return "\n".join(plain(each).rstrip() for each in render_markdown(text, width))


def test_every_kind_of_block_is_rendered_as_plain_text_that_can_be_copied() -> None:
    assert (
        shown(TEXT)
        == """\
Title

Some intro with code and a link (https://example.com/x) and
bold text that goes on for a while.
A second line.

• one
• two
  • nested

  more of two
• three

  def f(x):
      return x  # comment

3. third
4. fourth

name │ size
─────┼─────
a    │   12
b    │    3

│ quoted

────────────────────────────────────────

ls | wc

End."""
    )


def test_a_finished_line_is_the_same_however_the_text_arrives() -> None:
    whole = render_markdown(TEXT, 60)
    source = random.Random(7)
    for _ in range(20):
        view, lines, start = MarkdownView(), [], 0
        while start < len(TEXT):
            end = start + source.randrange(1, 40)
            view.feed(TEXT[start:end])
            for finished in view.finished(60):
                lines += finished
            view.rest(60)
            start = end
        for finished in view.finish(60):
            lines += finished
        assert lines == whole


@given(st.text(alphabet="ab |-#>*`_1.[]()\n\t日é", max_size=200), st.integers(1, 50))
def test_no_text_breaks_the_renderer_and_no_line_is_too_long(text: str, width: int) -> None:
    view, lines = MarkdownView(), []
    for character in text:
        view.feed(character)
        for finished in view.finished(width):
            lines += finished
        view.rest(width)
    for finished in view.finish(width):
        lines += finished
    letters = [c for c in text if c in "ab日é"]
    assert (
        [c for each in lines for c in plain(each) if c in "ab日é"] == letters
        or "`" in text
        or "[" in text
        or "|" in text
    )


@given(st.text(alphabet="ab 日", max_size=80), st.integers(2, 30))
def test_wrapping_keeps_all_words_and_fits_the_width(text: str, width: int) -> None:
    lines = wrap([Piece("", text)], width)
    assert "".join(plain(each) for each in lines).replace(" ", "") == text.replace(" ", "")
    assert all(cells(each) <= width for each in lines) or " " in text


def test_a_table_becomes_records_where_its_columns_would_be_too_narrow() -> None:
    table = (
        "| name | what it does | where it is |\n|---|---|---|\n| alpha | first of all letters | in the beginning |\n"
    )
    assert shown(table, 20) == "name: alpha\nwhat it does: first\n  of all letters\nwhere it is: in the\n  beginning"


def test_links_and_control_characters_are_shown_and_not_followed() -> None:
    assert shown("see <https://example.org> and [x](https://example.org)") == (
        "see https://example.org and x (https://example.org)"
    )
    assert shown("a\x1b[2Jb\x9b31m") == "a\N{REPLACEMENT CHARACTER}[2Jb\N{REPLACEMENT CHARACTER}31m"


@pytest.mark.parametrize(
    "text",
    ["word " * 20_000, "x" * 100_000, "- " + "item text " * 10_000, "| a | b |\n|---|---|\n" + "| c | d |\n" * 9_000],
)
def test_the_unfinished_part_stays_short(text: str) -> None:
    splitter = BlockSplitter()
    for start in range(0, len(text), 500):
        list(splitter.feed(text[start : start + 500]))
        assert sum(len(block.text) for block in splitter.rest()) <= MAX_REST_CHARS + 10


def test_a_frame_of_an_answer_of_100_kb_takes_less_than_10_ms_of_the_processor() -> None:
    load_renderer()
    text = TEXT * (100_000 // len(TEXT) + 1)
    runs = []
    for _ in range(3):  # the least of three: other work on the machine adds to each
        view, frames = MarkdownView(), []
        for start in range(0, len(text), 100):
            began = time.thread_time()
            view.feed(text[start : start + 100])
            for _lines in view.finished(80):
                pass
            view.rest(80)
            frames.append(time.thread_time() - began)
        runs.append(frames)
    worst = max(min(each) for each in zip(*runs, strict=True))
    assert worst < 0.010


def test_a_style_never_changes_the_text() -> None:
    assert plain(line("a", "strong")) == "a"
    assert shown("**bold** *it* ~~gone~~ `c`") == "bold it gone c"
