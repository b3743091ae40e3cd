"""Sites that the operator forbids, however their names are written."""

from __future__ import annotations

import pytest

from hermes_agent.policy.network import blocked_site

BLOCK = {"domains": ["bücher.example", "bad.example", "*.worse.example", "w?rst.example"]}


@pytest.mark.parametrize(
    "url",
    [
        "https://bücher.example/",
        "https://xn--bcher-kva.example/",
        "https://www.BÜCHER.example./x",
        "https://ｂad.example/",
        "bad.example",
        "http://me@bad.example:80",
        "http://a.worse.example",
        "http://worst.example",
    ],
)
def test_a_site_is_forbidden_in_every_spelling(url: str) -> None:
    assert blocked_site(BLOCK, url) is not None


@pytest.mark.parametrize("url", ["https://notbad.example/", "https://bad.example.org/", "https://bcher.example/"])
def test_another_site_is_not(url: str) -> None:
    assert blocked_site(BLOCK, url) is None
