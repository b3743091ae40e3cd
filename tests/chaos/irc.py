"""Somebody who talks to the agent at a real IRC server, and says again what a daemon that was killed cannot have read.

IRC keeps nothing and confirms nothing: what was on its way when the daemon's connection ended is lost with it, whoever
wrote the daemon. So a person here asks the server after each line (PING), and knows from the answers' order whether a
line came before the daemon left (QUIT); one that did and is not in the daemon's inbox is said again. One that is in
the inbox never is. Nobody hears that a daemon leaves which has not joined the room yet, so a person speaks only while
the daemon is in the room.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from peers.irc import IrcServer

__all__ = ["ROOM", "IrcPerson"]

AGENT = "hermes"
ROOM = "#room"
REPEATED = "(repeated) "


class IrcPerson:
    """One nick, in a private chat with the agent.

    Args:
        heard: called with what the agent says, without the mark of a repeat that follows its original.
        stored: says whether the agent's inbox has a word; asked while no daemon runs.
    """

    def __init__(
        self, nick: str, server: IrcServer, heard: Callable[[str], None], stored: Callable[[str], bool]
    ) -> None:
        self.order: list[str] = []
        """What was said, in the order in which it reached the agent."""
        self._nick, self._heard, self._stored = nick, heard, stored
        self._socket = socket.create_connection((server.host, server.port), timeout=600)
        self._lock = threading.Lock()
        self._flying: list[str] = []
        self._arrived: list[str] = []
        self._lost: list[str] = []
        self._last = ""
        self._is_there = False
        """Whether the agent is in the room."""
        self._is_closed = False
        self._failure = ""
        """Why nothing more is heard."""
        self._send(f"NICK {nick}", f"USER {nick} 0 * :{nick}", f"JOIN {ROOM}")
        threading.Thread(target=self._read, daemon=True).start()

    def say(self, word: str) -> None:
        """Say something to the agent, now or as soon as it is there."""
        with self._lock:
            if self._is_there and not self._lost:
                self._say(word)
            else:
                self._lost.append(word)

    @property
    def state(self) -> str:
        """What is open, for the message of a failed test."""
        seen = {"flying": self._flying, "arrived": self._arrived, "lost": self._lost, "there": self._is_there}
        return f"{self._nick}: {seen}, last heard {self._last!r}, {self._failure or 'still listening'}"

    def close(self) -> None:
        """Leave."""
        self._is_closed = True
        self._socket.close()

    def _say(self, word: str) -> None:
        self._flying.append(word)
        self._send(f"PRIVMSG {AGENT} :{word}", f"PING :{word}")

    def _send(self, *lines: str) -> None:
        self._socket.sendall("".join(f"{line}\r\n" for line in lines).encode())

    def _read(self) -> None:
        failure = "the server closed the connection"
        try:
            with self._socket.makefile("rb") as lines:
                for raw in lines:
                    with self._lock:
                        self._take(raw.decode().rstrip("\r\n"))
        except Exception as exc:  # also one of the inbox's database: without a reader every later answer is missed
            failure = f"{type(exc).__name__}: {exc}"
        if not self._is_closed:
            self._failure = failure

    def _take(self, line: str) -> None:
        source, _, rest = line.partition(" ")
        command, _, text = rest.partition(" ")
        who = source[1:].partition("!")[0]
        if source == "PING":
            self._send(f"PONG {rest}")
        elif command == "401":  # the server answers in order: it is about the first that it has not confirmed
            self._lost.append(self._flying.pop(0))
        elif command == "PONG" and text.rpartition(":")[2] in self._flying:
            self._confirm(text.rpartition(":")[2])
        elif command == "353" and AGENT in [name.lstrip("@+") for name in text.partition(" :")[2].split()]:
            self._meet()
        elif who != AGENT:
            return
        elif command == "QUIT":
            self._is_there = False
            arrived, self._arrived = self._arrived, []  # what is stored once stays so
            for word in [one for one in arrived if not self._stored(one)]:
                self.order.remove(word)
                self._lost.append(word)
        elif command == "JOIN":
            self._meet()
        elif command == "PRIVMSG":
            said = text.partition(":")[2]
            plain = said.removeprefix(REPEATED)
            if said == plain or plain != self._last:
                self._heard(plain)
            self._last = plain

    def _confirm(self, word: str) -> None:
        self._flying.remove(word)
        if self._is_there:
            self._arrived.append(word)
            self.order.append(word)
        elif self._stored(word):  # the agent left between the line and its confirmation
            self.order.append(word)
        else:
            self._lost.append(word)

    def _meet(self) -> None:
        self._is_there = True
        lost, self._lost = self._lost, []
        for word in lost:
            self._say(word)
