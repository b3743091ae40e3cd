"""A person on IRC: `irc_person.py PORT NICK BOT STEP…`; a step is `say:TEXT` or `hear:REGEX`.

What the bot writes is printed. The status is 1 when a minute was not enough to hear what a step waits for.
"""

from __future__ import annotations

import re
import socket
import sys
import time

port, nick, bot, *steps = sys.argv[1:]
connection = socket.create_connection(("127.0.0.1", int(port)), timeout=60)
lines = connection.makefile("r", encoding="utf-8", newline="\r\n")


def send(line: str) -> None:
    connection.sendall(f"{line}\r\n".encode())


def read() -> tuple[str, str, str]:
    """Return sender, command and text of the next line that is no ping."""
    while True:
        line = lines.readline().rstrip("\r\n")
        if not line:
            sys.exit("the server closed the connection")
        if line.startswith("PING"):
            send(line.replace("PING", "PONG", 1))
            continue
        prefix, _, rest = line[1:].partition(" ") if line.startswith(":") else ("", "", line)
        return prefix.partition("!")[0], rest.split(" ", 1)[0], rest.partition(" :")[2]


send(f"NICK {nick}")
send(f"USER {nick} 0 * :{nick}")
while read()[1] != "001":
    pass
heard = ""
for step in steps:
    what, _, text = step.partition(":")
    if what == "say":
        send(f"PRIVMSG {bot} :{text}")
        heard = ""
        continue
    end = time.monotonic() + 60
    while not re.search(text, heard):
        if time.monotonic() > end:
            sys.exit(f"{text!r} was not heard")
        sender, command, said = read()
        if sender == bot and command in ("PRIVMSG", "NOTICE"):
            print(f"<{bot}> {said}", flush=True)
            heard += said + "\n"
send("QUIT")
