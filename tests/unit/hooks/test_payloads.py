"""What observers of model requests are shown of a payload."""

from __future__ import annotations

import pytest

from hermes_agent.core.redaction import redactor
from hermes_agent.hooks.observers import MAX_CHARS, VARIABLE, redact_payload


@pytest.mark.parametrize(
    "name", ["api_key", "OPENAI_API_KEY", "x-api-key", "Authorization", "proxy-authorization", "cookie", "Set-Cookie"]
)
def test_what_stands_under_the_name_of_a_secret_is_masked(name):
    assert redact_payload({"headers": {name: "hidden-value"}, "keyboard": "seen"}) == {
        "headers": {name: "[redacted]"},
        "keyboard": "seen",
    }


def test_secrets_that_the_agent_knows_are_masked_wherever_they_stand():
    redactor.learn(["a-secret-of-the-test"])
    assert redact_payload(["say a-secret-of-the-test"]) == ["say [redacted]"]


def test_depth_strings_and_sequences_have_an_end():
    deep = [[[[[[[[["too deep"]]]]]]]]]
    assert redact_payload(deep) == [[[[[[[["…"]]]]]]]]
    assert redact_payload("x" * 9_000) == "x" * 8_000 + "… (9000 characters)"
    assert redact_payload(list(range(300)))[199:] == [199, "… (300 items)"]


def test_the_whole_has_an_end_that_the_environment_sets_and_that_is_read_each_time(monkeypatch):
    payload = ["y" * 5_000] * 20
    cut = redact_payload(payload)
    assert (cut["truncated"], len(cut["preview"])) == (True, MAX_CHARS)

    monkeypatch.setenv(VARIABLE, "100")
    assert len(redact_payload(payload)["preview"]) == 100
    monkeypatch.setenv(VARIABLE, "1000000")
    assert redact_payload(payload) == payload
    monkeypatch.setenv(VARIABLE, "much")
    assert len(redact_payload(payload)["preview"]) == MAX_CHARS


def test_what_is_given_stays_as_it_was():
    given = {"api_key": "k", "list": [object()]}
    redact_payload(given)
    assert given["api_key"] == "k"
