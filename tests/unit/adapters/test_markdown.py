"""Markdown in the markup of platforms: marks are translated, lines and words stay."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_agent.adapters.markdown import MATRIX, PLAIN, TELEGRAM, XMPP, Dialect, render
from hermes_agent.adapters.text import convert_table_to_bullets, strip_markdown

TABLE = "| Name | Age |\n| --- | --- |\n| *Ann* | 5 |\n| Bob | |"


@pytest.mark.parametrize(
    ("text", "telegram", "xmpp", "matrix", "plain"),
    [
        (
            "a *b* **c** ~~d~~",
            "a _b_ *c* ~d~",
            "a _b_ *c* ~d~",
            "a <em>b</em> <strong>c</strong> <del>d</del>",
            "a b c d",
        ),
        ("2*3*4 a_b_c", r"2\*3\*4 a\_b\_c", "2*3*4 a_b_c", "2*3*4 a_b_c", "2*3*4 a_b_c"),
        ("# Go *now*", "*Go now*", "*Go now*", "<h1>Go <em>now</em></h1>", "Go now"),
        (
            "[x](https://e.org)",
            "[x](https://e.org)",
            "x (https://e.org)",
            '<a href="https://e.org">x</a>',
            "x (https://e.org)",
        ),
        (
            "![x](https://e.org/i)",
            "[x](https://e.org/i)",
            "x (https://e.org/i)",
            '<a href="https://e.org/i">x</a>',
            "x",
        ),
        (
            "1. a\n2. b\n   - c",
            "1\\. a\n2\\. b\n  • c",
            "1. a\n2. b\n  - c",
            "<ol><li>a</li><li>b<ul><li>c</li></ul></li></ol>",
            "1. a\n2. b\n  - c",
        ),
        ("> a\n> b\n\nc", ">a\n>b\n\nc", "> a\n> b\n\nc", "<blockquote>a<br>b</blockquote>c", "a\nb\n\nc"),
        (
            "```py\n*a* `b`\n```",
            "```py\n*a* \\`b\\`\n```",
            "```py\n*a* `b`\n```",
            '<pre><code class="language-py">*a* `b`\n</code></pre>',
            "*a* `b`",
        ),
        ("<b>&amp;", r"<b\>&amp;", "<b>&amp;", "&lt;b&gt;&amp;amp;", "<b>&amp;"),
        (
            TABLE,
            "• Name: _Ann_; Age: 5\n• Name: Bob",
            "• Name: _Ann_; Age: 5\n• Name: Bob",
            "<ul><li>Name: <em>Ann</em>; Age: 5</li><li>Name: Bob</li></ul>",
            "• Name: Ann; Age: 5\n• Name: Bob",
        ),
        ("a\nb\n\n\nc", "a\nb\n\n\nc", "a\nb\n\n\nc", "a<br>b<br><br><br>c", "a\nb\n\n\nc"),
    ],
)
def test_marks_are_those_of_the_platform(text: str, telegram: str, xmpp: str, matrix: str, plain: str) -> None:
    assert render(text, TELEGRAM) == telegram
    assert render(text, XMPP) == xmpp
    assert render(text, MATRIX) == matrix
    assert render(text, PLAIN) == plain == strip_markdown(text)


@pytest.mark.parametrize("text", ["-", "1.", "#", ">", "***", "``", "[]()", "- \n- b"])
@pytest.mark.parametrize("dialect", [TELEGRAM, XMPP, MATRIX, PLAIN], ids=["telegram", "xmpp", "matrix", "plain"])
def test_marks_without_content_are_not_an_empty_message(text: str, dialect: Dialect) -> None:
    assert render(text, dialect).strip()


def test_a_link_to_another_scheme_is_no_link_in_matrix_and_a_bare_address_is_one() -> None:
    assert render("[x](javascript:y) data:z", MATRIX) == "x data:z"
    assert render("see https://e.org/a.", MATRIX) == 'see <a href="https://e.org/a">https://e.org/a</a>.'
    assert render("[https://e.org](https://e.org)", MATRIX) == '<a href="https://e.org">https://e.org</a>'


def test_a_table_becomes_a_list_and_the_text_around_it_stays_as_it_was() -> None:
    text = f"See  **this**:\n\n{TABLE}\n\n    code | x\n```\n{TABLE}\n```"
    assert convert_table_to_bullets(text) == text.replace(TABLE, "• Name: *Ann*; Age: 5\n• Name: Bob", 1)


def test_a_table_without_rows_keeps_its_head() -> None:
    assert render("| a | b |\n| - | - |\nc", PLAIN).startswith("• a: c")
    assert render("| a | b |\n| - | - |", PLAIN) == convert_table_to_bullets("| a | b |\n| - | - |") == "• a; b"


WORDS = st.sampled_from(["alpha", "beta", "*", "**", "_", "`", "\n", "> ", "- ", "1. ", "# ", "\\", " "])


@given(st.lists(WORDS, max_size=25).map("".join))
def test_no_word_is_lost_and_none_comes_twice(text: str) -> None:
    for dialect in (TELEGRAM, XMPP, MATRIX, PLAIN):
        assert re.findall("alpha|beta", render(text, dialect)) == re.findall("alpha|beta", text)
