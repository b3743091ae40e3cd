"""Someone at a terminal: `typist.py COMMAND… -- PROMPT ANSWER …` answers each question whose text has PROMPT.

A question is an end of the output without a line break. The first of the answers whose PROMPT is in it is typed, and
is used up; a question that none fits is answered with the return key. What the terminal shows is printed; the status
is the command's own, and 1 when it asks more than any setup does or is silent for a minute.
"""

from __future__ import annotations

import os
import pty
import select
import signal
import sys

SILENCE_S = 0.4
"""So long nothing is printed when a question waits for its answer."""
QUESTIONS, SILENCES = 40, 150
"""More than these are a command that does not end."""

split = sys.argv.index("--")
command, told = sys.argv[1:split], sys.argv[split + 1 :]
answers = list(zip(told[::2], told[1::2], strict=True))
pid, terminal = pty.fork()
if not pid:
    os.execvp(command[0], command)
shown, questions, silences = b"", 0, 0
while questions <= QUESTIONS and silences <= SILENCES:
    if select.select([terminal], [], [], SILENCE_S)[0]:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        sys.stdout.buffer.write(piece)
        sys.stdout.flush()
        shown, silences = shown + piece, 0
        continue
    silences += 1
    question = shown.rpartition(b"\n")[2].decode(errors="replace")
    if question.strip():
        fits = next((one for one in answers if one[0] in question), None)
        if fits is not None:
            answers.remove(fits)
        os.write(terminal, (fits[1] if fits else "").encode() + b"\n")
        shown, questions = b"", questions + 1
os.kill(pid, signal.SIGKILL)
sys.exit(f"\ngiven up after {questions} answers; not asked for: {[prompt for prompt, _ in answers]}")
