"""SIGKILL at random moments: nothing is lost, nothing is doubled, nothing runs twice without a word."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from hermes_agent.agent.transcript_writer import repaired
from hermes_agent.sessions import Transcript

KILLS = int(os.environ.get("HERMES_CHAOS_KILLS", "10"))
"""`make chaos-turns` kills 200 times."""


def test_a_session_survives_processes_that_are_killed_at_random_moments(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    script = Path(__file__).with_name("killed_turns.py")
    command = [sys.executable, str(script), str(tmp_path), str(KILLS), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60 + KILLS, check=False)
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-3000:]}"
    messages = Transcript(tmp_path / "state.db").messages("s1")
    assert repaired(messages) == messages, f"seed {seed}: a provider would not take it as it is"

    said = [int(n) for m in messages if m.role == "user" for n in re.findall(r"message (\d+)", m.text)]
    assert said == list(range(1, len(said) + 1)), f"seed {seed}: a message is lost or doubled"
    answered = [m.text for m in messages if m.role == "assistant" and not m.tool_calls]
    assert answered == [f"done {n}" for n in said], f"seed {seed}"

    ran = Counter((tmp_path / "tokens").read_text().split())
    wanted = {f"{n}.{i}" for n in said for i in range(3)}
    assert set(ran) <= wanted
    assert max(ran.values()) == 1, f"seed {seed}: a call ran twice: {ran.most_common(3)}"
    results = [m.text for m in messages if m.role == "tool"]
    told = [text for text in results if "end of this call is unknown" in text]
    assert {text.removeprefix("ran ") for text in results if text not in told} <= set(ran), f"seed {seed}"
    assert len(results) == len(wanted)
    notices = (tmp_path / "notices").read_text().splitlines()
    # a process may be killed between two notices and their results; then they come again
    assert len(notices) >= len(told), f"seed {seed}: a call of unknown end was not told to the person"
    assert len(said) > 3
