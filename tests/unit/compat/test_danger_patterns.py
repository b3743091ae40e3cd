"""Upstream's lists of regular expressions: plugin contract §10.3, §10.4."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from hermes_agent.compat.approval import DANGEROUS
from hermes_agent.compat.approval import HARDLINE as NEVER
from hermes_agent.policy.shell.rules import HARDLINE, RULES

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # without libyaml this file takes a second
CORPUS = yaml.load((Path(__file__).parents[2] / "data" / "policy" / "commands.yaml").read_text(), LOADER)
DANGEROUS_PATTERNS, HARDLINE_PATTERNS = list(DANGEROUS), list(NEVER)
DESCRIPTIONS = {description for _, description in DANGEROUS_PATTERNS}


def test_there_are_seventy_dangerous_patterns_and_twelve_hard_line_ones_in_the_contracts_words() -> None:
    assert (len(DANGEROUS_PATTERNS), len(HARDLINE_PATTERNS)) == (70, 12)
    rules = {rule.key for rule in (*RULES, *HARDLINE)} | {"fork bomb", "chmod +x followed by immediate execution"}
    same = "kill process via backtick pgrep/pidof expansion (self-termination)"  # one rule for both ways to write it
    assert rules >= DESCRIPTIONS - {same}
    ours = {rule.key for rule in HARDLINE} - {description for _, description in HARDLINE_PATTERNS}
    assert ours == {"write to raw block device", "change the permissions of the whole system"}


REFUSED = "write to block device"
"""What upstream's pattern of this name finds is refused altogether here."""


PLAIN = 3
"""Commands of a description that its pattern finds at least, where there are more."""


@pytest.mark.parametrize("description", sorted((DESCRIPTIONS & set(CORPUS["dangerous"])) - {REFUSED}))
def test_a_pattern_finds_what_its_description_says(description: str) -> None:
    patterns = [re.compile(pattern) for pattern, text in DANGEROUS_PATTERNS if text == description]
    commands = CORPUS["dangerous"][description]
    found = [command for command in commands if any(pattern.search(command) for pattern in patterns)]
    # the plain spellings; what only the grammar of the detector finds stands under the same description
    assert len(found) >= min(PLAIN, len(commands) - 1) > 0 or found == commands


def test_patterns_leave_harmless_commands_alone_unless_they_quote_a_dangerous_one() -> None:
    alarms = {c for c in CORPUS["harmless"] for pattern, _ in DANGEROUS_PATTERNS if re.search(pattern, c)}
    assert len(alarms) <= 0.05 * len(CORPUS["harmless"]), alarms


def test_no_pattern_needs_long_for_a_long_text() -> None:
    for text in ("rm " * 2_000, "a" * 10_000, "(){" * 2_000, "git -x " * 1_000, "kill -x " * 1_000):
        assert [p for p, _ in (*DANGEROUS_PATTERNS, *HARDLINE_PATTERNS) if re.search(p, text)] == []
