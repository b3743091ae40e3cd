"""The rules of delivery as a state machine: daemons that crash at any step over one real store, and what people see.

Two platforms. `keyed` drops a second message with the same key, so that each answer must be seen once, in order,
whatever happens. `plain` cannot: an answer may be seen a second time, marked, and be missing only if noted as failed.
A daemon that was superseded goes on with what it holds: nothing that it does may be seen.
"""

from __future__ import annotations

import dataclasses
import shutil
import sqlite3
import tempfile
from collections import defaultdict
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hermes_agent.delivery import InboundMessage, Mailbox, OutboundReply, ReplyTarget, SendOutcome, StaleClaim

CHATS = [("keyed", "a"), ("plain", "b")]
FAST_DISK = "/dev/shm" if Path("/dev/shm").is_dir() else None


class ChatRecord:
    """The platforms and the people: what they wrote, and what they see."""

    def __init__(self) -> None:
        self.written: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.unacknowledged: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.acknowledged: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.seen: dict[tuple[str, str], list[tuple[str, bool]]] = defaultdict(list)
        """By chat, in order: what was answered, and whether it was marked as a repeat."""
        self.keys: set[str] = set()

    def write(self, chat: tuple[str, str]) -> None:
        number = len(self.written[chat])
        self.written[chat].append(number)
        self.unacknowledged[chat].append(number)

    def acknowledge(self, chat: tuple[str, str], number: int) -> None:
        if number in self.unacknowledged[chat]:
            self.unacknowledged[chat].remove(number)
            self.acknowledged[chat].append(number)

    def show(self, chat: tuple[str, str], key: str, text: str, repeat: bool) -> None:
        if chat[0] == "keyed":
            if key in self.keys:
                return
            self.keys.add(key)
        self.seen[chat].append((text, repeat))


class Daemon:
    """One process: its connection and what it holds in memory."""

    def __init__(self, mailbox: Mailbox) -> None:
        self.mailbox = mailbox
        self.claims = []
        self.parts = []
        """What was claimed and not tried yet."""
        self.tried = []
        """What was tried, with what became of it."""

    def key(self, part):
        return part.key


class DeliveryRules(RuleBasedStateMachine):
    """Seeded faults override `open_mailbox`, `daemon` or `take_in`."""

    daemon = Daemon

    def open_mailbox(self) -> Mailbox:
        return Mailbox(self.path)

    @initialize()
    def begin(self):
        self.folder = tempfile.mkdtemp(dir=FAST_DISK)
        self.path = Path(self.folder) / "state.db"
        self.world = ChatRecord()
        self.now = 1_000_000.0
        self.zombies = []
        self.haunted = False
        self.current = self._start()

    def teardown(self):
        if not hasattr(self, "folder"):
            return
        try:
            self._go_on_to_the_end()
            self._everything_was_answered()
        finally:
            for daemon in (self.current, *self.zombies):
                daemon.mailbox.close()
            shutil.rmtree(self.folder)

    # -- what happens in the world -------------------------------------------------------------------------------

    @rule(chat=st.sampled_from(CHATS), count=st.integers(1, 3), crash=st.sampled_from(["no", "no", "before", "after"]))
    def somebody_writes(self, chat, count, crash):
        for _ in range(count):
            self.world.write(chat)
            self.take_in(chat, self.world.unacknowledged[chat][0], crash)

    @precondition(lambda self: any(self.world.acknowledged.values()))
    @rule(pick=st.integers(0, 99))
    def the_platform_hands_over_again(self, pick):
        known = [(chat, number) for chat, numbers in self.world.acknowledged.items() for number in numbers]
        self.take_in(*known[pick % len(known)], "no")

    @rule(step=st.sampled_from([-100_000.0, 1.0, 30.0, 5000.0]))
    def the_clock_jumps(self, step):
        self.now = max(0.0, self.now + step)

    @rule()
    def the_daemon_is_killed(self):
        self.current.mailbox.close()
        self.current = self._start()

    @precondition(lambda self: len(self.zombies) < 2)
    @rule()
    def another_daemon_takes_over(self):
        self.zombies.append(self.current)
        self.haunted = True
        self.current = self._start()

    # -- what a daemon does --------------------------------------------------------------------------------------

    def take_in(self, chat, number, crash):
        """Store first, then acknowledge."""
        if crash == "before":
            return self.the_daemon_is_killed()
        self.receive(chat, number)
        if crash == "after":
            return self.the_daemon_is_killed()
        return self.world.acknowledge(chat, number)

    def receive(self, chat, number):
        platform, name = chat
        self.current.mailbox.receive(
            InboundMessage(platform, name, f"m{number}", "talk " + name, payload={"number": number}), self.now
        )

    @rule(
        who=st.integers(-1, 1),
        steps=st.integers(1, 6),
        what=st.sampled_from(["confirmed", "shown, answer lost", "lost", "no connection", "never begun"]),
    )
    def works(self, who, steps, what):
        """Do the next few things, and leave off anywhere."""
        daemon = self._one(who)
        before = self._version()
        for _ in range(steps):
            if daemon.tried:
                part, outcome = daemon.tried.pop(0)
                self._try(daemon.mailbox.record_outcome, part, outcome, self.now, 5.0)
            elif daemon.parts:
                part = daemon.parts.pop(0)
                daemon.tried.append((part, self._send(daemon, part, what)))
            elif daemon.claims:
                self._finish(daemon, daemon.claims.pop(0))
            else:
                self._claim(daemon)
        assert daemon is self.current or self._version() == before, "a superseded daemon changed the store"

    def _version(self):
        """Return a number that changes when another connection than the current daemon's has written."""
        return self.current.mailbox._db.read("PRAGMA data_version")[0][0]

    @rule()
    def fails_to_serve(self):
        if not self.current.claims:
            self._claim(self.current)
        for claim in self.current.claims:
            self._try(self.current.mailbox.requeue, claim, self.now, 5.0, error="boom")
        self.current.claims.clear()

    def _claim(self, daemon):
        for chat in CHATS:
            claim = self._try(daemon.mailbox.claim_message, (chat[0], "talk " + chat[1]), self.now)
            if claim is not None and not isinstance(claim, float):
                daemon.claims.append(claim)
            part = self._try(daemon.mailbox.claim_part, ReplyTarget(*chat), self.now)
            if part is not None and not isinstance(part, float):
                daemon.parts.append(part)

    def _finish(self, daemon, claim):
        texts = [f"{claim.payload['number']}.{part}" for part in range(2)]
        reply = OutboundReply(ReplyTarget(claim.platform, claim.chat), tuple({"text": text} for text in texts))
        self._try(daemon.mailbox.finish, claim, [reply], self.now)

    def _send(self, daemon, part, what):
        chat = (part.target.platform, part.target.chat)
        key = daemon.key(part)
        if part.uncertain:
            if chat[0] == "keyed":
                if key in self.world.keys:
                    return SendOutcome.sent()
            elif part.repeated:
                return SendOutcome.unknown("repeated before")
            else:
                part = dataclasses.replace(part, repeat=True)
        if what == "never begun":
            return SendOutcome.retry(what)
        try:
            daemon.mailbox.begin_sending(part)
        except StaleClaim:
            return SendOutcome.retry("nothing may go out")
        if what == "no connection":
            return SendOutcome.retry(what)
        if what != "lost":
            self.world.show(chat, key, part.part["text"], part.repeat)
        return SendOutcome.sent() if what == "confirmed" else SendOutcome.unknown(what)

    # -- what must hold ------------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_seen_twice_or_in_another_order(self):
        for chat, seen in self.world.seen.items():
            texts = [text for text, _ in seen]
            firsts = list(dict.fromkeys(texts))
            if chat[0] == "keyed":
                assert texts == firsts, f"{chat}: seen twice: {texts}"
            else:
                assert len(seen) == len(set(seen)), f"{chat}: repeated without a mark, or twice: {seen}"
            if chat[0] == "keyed" or not self.haunted:
                assert firsts == sorted(firsts, key=_place), f"{chat}: out of order: {texts}"

    def _everything_was_answered(self):
        self.nothing_is_seen_twice_or_in_another_order()
        for chat, numbers in self.world.written.items():
            expected = [f"{number}.{part}" for number in numbers for part in range(2)]
            seen = {text for text, _ in self.world.seen[chat]}
            missing = [text for text in expected if text not in seen and text not in self._failed(chat)]
            assert not missing, f"{chat}: never answered: {missing}"

    def _failed(self, chat):
        """What is noted as perhaps lost; where the platform knows keys, nothing may be."""
        if chat[0] == "keyed":
            return set()
        with sqlite3.connect(self.path) as db:
            rows = db.execute(
                "SELECT json_extract(content, '$.text') FROM outbox WHERE state = 'failed' AND chat = ?", chat[1:]
            )
            return {row[0] for row in rows}

    def _go_on_to_the_end(self):
        """Nobody crashes any more: everything must come to its end."""
        self.another_daemon_takes_over()
        for chat in CHATS:
            for number in list(self.world.unacknowledged[chat]):
                self.receive(chat, number)
        for _ in range(3 * sum(len(numbers) for numbers in self.world.written.values()) + 3):
            self.now += 4000.0
            mailbox = self.current.mailbox
            for platform, name in CHATS:
                claim = mailbox.claim_message((platform, "talk " + name), self.now)
                if claim is not None:
                    self._finish(self.current, claim)
                while (part := mailbox.claim_part(ReplyTarget(platform, name), self.now)) is not None:
                    mailbox.record_outcome(part, self._send(self.current, part, "confirmed"), self.now)
        counts = self.current.mailbox.counts()
        assert not any(counts.values()), f"something never ends: {counts}"

    # -- below ---------------------------------------------------------------------------------------------------

    def _start(self):
        daemon = self.daemon(self.open_mailbox())
        daemon.mailbox.acquire()
        return daemon

    def _one(self, who):
        """Return the daemon that acts: mostly the current one."""
        return self.zombies[who] if 0 <= who < len(self.zombies) else self.current

    def _try(self, step, *args, **kwargs):
        try:
            return step(*args, **kwargs)
        except StaleClaim:
            return None


def _place(text):
    return tuple(int(number) for number in text.split("."))
