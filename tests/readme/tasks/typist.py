"""Someone at a terminal: `typist.py COMMAND… -- PROMPT ANSWER …` answers each question whose text has PROMPT.

A question is an end of the output without a line break. One that no PROMPT fits is answered with the return key.
What the terminal shows is printed; the status is the command's own.
"""

from __future__ import annotations

import os
import pty
import select
import sys

SILENCE_S = 1.0
"""So long nothing is printed when a question waits for its answer."""

split = sys.argv.index("--")
command, told = sys.argv[1:split], sys.argv[split + 1 :]
answers = list(zip(told[::2], told[1::2], strict=True))
pid, terminal = pty.fork()
if not pid:
    os.execvp(command[0], command)
shown = b""
while True:
    if select.select([terminal], [], [], SILENCE_S)[0]:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        sys.stdout.buffer.write(piece)
        sys.stdout.flush()
        shown += piece
        continue
    question = shown.rpartition(b"\n")[2].decode(errors="replace")
    if question.strip():
        answer = next((answer for prompt, answer in answers if prompt in question), "")
        answers = [(prompt, text) for prompt, text in answers if prompt not in question or text != answer]
        os.write(terminal, answer.encode() + b"\n")
        shown = b""
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
