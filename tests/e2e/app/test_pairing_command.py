"""`hermes pairing`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes_agent.app.main import main
from hermes_agent.gateway.access import PairingStore


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    return tmp_path


def test_a_code_is_listed_approved_and_taken_back(capsys: pytest.CaptureFixture[str]) -> None:
    code = PairingStore().generate_code("irc", "ann", "Ann")
    assert code is not None

    assert main(["pairing", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(one["platform"], one["user_id"]) for one in listed["pending"]] == [("irc", "ann")]
    assert code not in json.dumps(listed)

    assert main(["pairing", "approve", "irc", code.lower()]) == 0
    assert "ann (Ann) may use the agent on irc." in capsys.readouterr().out
    assert PairingStore().is_approved("irc", "ann")
    assert main(["pairing", "list"]) == 0
    assert "Allowed:\n  irc          ann Ann" in capsys.readouterr().out

    assert main(["pairing", "revoke", "irc", "ann"]) == 0
    assert not PairingStore().is_approved("irc", "ann")


def test_mistakes_are_named_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pairing", "approve", "irc", "NOTACODE"]) == 1
    assert "no user of irc has a pending request with this code" in capsys.readouterr().err
    assert main(["pairing", "revoke", "irc", "bob"]) == 1
    assert "was not allowed" in capsys.readouterr().err
    assert main(["pairing", "approve", "../x", "A"]) == 1
    assert "no valid name of a platform" in capsys.readouterr().err
    assert main(["pairing", "list"]) == 0
    assert "no pending requests" in capsys.readouterr().out


def test_codes_that_wait_are_voided(capsys: pytest.CaptureFixture[str]) -> None:
    PairingStore().generate_code("irc", "ann")
    assert main(["pairing", "clear-pending"]) == 0
    assert capsys.readouterr().out == "1 code voided.\n"
