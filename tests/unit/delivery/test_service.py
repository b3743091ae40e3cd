from __future__ import annotations

import asyncio
import itertools
import logging
import sqlite3
import time
from dataclasses import replace

import pytest

from hermes_agent.core.errors import RetryLater
from hermes_agent.delivery import (
    Backoff,
    DeliveryCheck,
    DeliveryService,
    InboundMessage,
    Mailbox,
    OutboundReply,
    ReplyTarget,
    SendOutcome,
)
from hermes_agent.runtime.bridge import Bridge

ROOM = ReplyTarget("irc", "#room")


def message(number="1", conversation="talk"):
    return InboundMessage("irc", "#room", number, conversation, "ann", {"n": number})


def answer(text, target=ROOM):
    return [OutboundReply(target, ({"text": text},))]


class Running:
    """A daemon's inbox and outbox, and what its platform was sent."""

    def __init__(self, path, bridge, clock=time.time, lasting_s=0.0):
        self.delivery = DeliveryService(
            lambda: Mailbox(path),
            bridge.serial_executor("delivery"),
            clock=clock,
            backoff=Backoff(0.001, 0.002),
            min_lifetime_s=lasting_s,
        )
        self.sent: list[str] = []
        self.changed = asyncio.Condition()
        self.before = self.on_send = None

    async def take(self, sending, begin):
        if self.before is not None:
            await self.before(sending)
        await begin()
        self.sent.append(("again: " if sending.repeat else "") + sending.part["text"])
        async with self.changed:
            self.changed.notify_all()
        return SendOutcome.sent(str(len(self.sent))) if self.on_send is None else await self.on_send(sending)


BEGINS = "UPDATE OF uncertain ON outbox WHEN new.uncertain = 1"
"""The statement that records the beginning of an attempt."""
NO_TABLE = "INSERT INTO no_such_table VALUES (1)"
NOT_ALLOWED = "SELECT RAISE(ABORT, 'not allowed')"


class StoreFault:
    """A statement that fails, because a trigger of another connection goes wrong, until the end of the block."""

    def __init__(self, path, statement, wrong=NOT_ALLOWED):
        self.statement, self.wrong = statement, wrong
        self.other = sqlite3.connect(path, isolation_level=None)

    def __enter__(self):
        self.other.execute(f"CREATE TRIGGER fault BEFORE {self.statement} BEGIN {self.wrong}; END")
        return self

    def __exit__(self, *exc):
        self.end()
        self.other.close()

    def end(self):
        self.other.execute("DROP TRIGGER IF EXISTS fault")


@pytest.fixture
def bridge():
    made = Bridge()
    yield made
    made.close()


@pytest.fixture
def running(path, bridge):
    return Running(path, bridge)


async def sent(running, count):
    async with asyncio.timeout(20), running.changed:
        await running.changed.wait_for(lambda: len(running.sent) >= count)


async def test_a_message_is_answered_and_the_answer_sent(running):
    async def serve(claimed):
        return answer(f"answer to {claimed.payload['n']} of {claimed.sender}")

    running.delivery.serve("irc", serve)
    running.delivery.deliver("irc", running.take)
    await running.delivery.start()
    receipt = await running.delivery.receive(message())
    await sent(running, 1)

    assert await running.delivery.wait_settled(f"in-{receipt.id}-0", 20) == "sent"
    assert running.sent == ["answer to 1 of ann"]
    assert not (await running.delivery.receive(message())).new
    assert set((await running.delivery.counts()).values()) == {0}
    await running.delivery.drain(5)


async def test_what_nobody_serves_or_delivers_yet_waits(running):
    await running.delivery.start()
    await running.delivery.receive(message())
    await running.delivery.send(*answer("hello"))

    async def serve(claimed):
        return answer("served")

    running.delivery.serve("irc", serve)
    running.delivery.deliver("irc", running.take)
    await sent(running, 2)

    assert sorted(running.sent) == ["hello", "served"]
    await running.delivery.drain(5)


async def test_conversations_run_side_by_side_and_each_in_order(running):
    both = asyncio.Barrier(2)
    order = []

    async def serve(claimed):
        if claimed.payload["n"] in ("a1", "b1"):
            await both.wait()  # never passed unless both run at once
        order.append(claimed.payload["n"])
        return answer(claimed.payload["n"])

    running.delivery.serve("irc", serve)
    running.delivery.deliver("irc", running.take)
    await running.delivery.start()
    for number, talk in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")):
        await running.delivery.receive(message(number, talk))
    await sent(running, 4)

    assert [n for n in order if n[0] == "a"] == ["a1", "a2"]
    assert [n for n in order if n[0] == "b"] == ["b1", "b2"]
    await running.delivery.drain(5)


async def test_a_message_that_fails_is_tried_again_and_given_up_at_last(running, caplog):
    tries = []

    async def serve(claimed):
        tries.append(claimed.attempt)
        raise ValueError("boom")

    async def give_up(claimed, error):
        return answer(f"sorry: {error}")

    running.delivery.serve("irc", serve, abandon=give_up)
    running.delivery.deliver("irc", running.take)
    await running.delivery.start()
    await running.delivery.receive(message())
    await sent(running, 1)

    assert (tries, running.sent) == ([1, 2, 3], ["sorry: boom"])
    await running.delivery.drain(5)


async def test_an_answer_that_cannot_be_stored_is_its_servers_fault_and_ends_the_message(running, caplog):
    async def serve(claimed):
        return [OutboundReply(ROOM, ({"text": object()},))]

    async def give_up(claimed, error):
        return answer(str(error))

    running.delivery.serve("irc", serve, abandon=give_up)
    running.delivery.deliver("irc", running.take)
    await running.delivery.start()
    await running.delivery.receive(message())
    await sent(running, 1)

    assert running.sent == ["Object of type object is not JSON serializable"]
    assert (await running.delivery.counts())["inbox_pending"] == 0
    await running.delivery.drain(5)


async def test_who_asks_for_a_later_attempt_gets_it_without_losing_a_life(running):
    tries = []

    async def serve(claimed):
        tries.append(claimed.attempt)
        if len(tries) < 6:
            raise RetryLater("no model yet", after_s=0.001)
        return answer("at last")

    running.delivery.serve("irc", serve)
    running.delivery.deliver("irc", running.take)
    await running.delivery.start()
    await running.delivery.receive(message())
    await sent(running, 1)

    assert (tries, running.sent) == ([1, 2, 3, 4, 5, 6], ["at last"])
    await running.delivery.drain(5)


async def test_a_stop_hands_what_runs_to_the_next_start(running, path, bridge):
    begun = asyncio.Event()

    async def never(claimed):
        await claimed.save_notes(preview="9")
        begun.set()
        await asyncio.Event().wait()

    running.delivery.serve("irc", never)
    await running.delivery.start()
    await running.delivery.receive(message())
    await begun.wait()
    await running.delivery.drain(0)
    assert (await running.delivery.counts())["inbox_pending"] == 1

    async def serve(claimed):
        return answer(f"attempt {claimed.attempt}, {claimed.notes}")

    after = Running(path, bridge)
    after.delivery.serve("irc", serve)
    after.delivery.deliver("irc", after.take)
    await after.delivery.start()
    await sent(after, 1)

    assert after.sent == ["attempt 2, {'preview': '9'}"]
    await after.delivery.drain(5)


async def test_a_stop_lets_a_running_turn_finish_and_sends_its_answer(running):
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def serve(claimed):
        begun.set()
        await go_on.wait()
        return [*answer(f"answer to {claimed.payload['n']}"), *answer("and more")]

    running.delivery.serve("irc", serve)
    running.delivery.deliver("irc", running.take)
    await running.delivery.start()
    await running.delivery.receive(message("1"))
    await running.delivery.receive(message("2"))
    await begun.wait()
    drained = asyncio.create_task(running.delivery.drain(30))
    await asyncio.sleep(0)
    assert (await running.delivery.receive(message("3"))).new
    go_on.set()
    await drained

    assert running.sent == ["answer to 1", "and more"]
    assert (await running.delivery.counts())["inbox_pending"] == 2


async def test_a_later_message_is_taken_into_the_one_that_runs(running):
    go_on = asyncio.Event()
    second = []

    async def serve(claimed):
        await go_on.wait()
        taken = await claimed.absorb(second[0])
        return answer(f"{claimed.payload['n']}, absorbed: {taken}")

    running.delivery.serve("irc", serve)
    running.delivery.deliver("irc", running.take)
    await running.delivery.start()
    await running.delivery.receive(message("1"))
    second.append((await running.delivery.receive(message("2"))).id)
    go_on.set()
    await sent(running, 1)

    assert running.sent == ["1, absorbed: True"]
    assert (await running.delivery.counts())["inbox_pending"] == 0
    await running.delivery.drain(5)


async def test_a_daemon_that_was_superseded_serves_no_more(running, path, bridge, monkeypatch):
    served = []
    told = asyncio.Event()
    log = logging.getLogger("hermes_agent.delivery.mailbox")
    monkeypatch.setattr(
        log, "filters", [lambda record: "this daemon processes nothing more" in record.msg and told.set()]
    )

    async def serve(claimed):
        served.append(claimed.id)
        return []

    await running.delivery.start()
    after = Running(path, bridge)
    await after.delivery.start()
    running.delivery.serve("irc", serve)
    await running.delivery.receive(message())
    async with asyncio.timeout(20):
        await told.wait()
    assert served == []
    await running.delivery.drain(5)
    await after.delivery.drain(5)


@pytest.mark.parametrize(
    ("finding", "expected"),
    [
        (None, ["1", "again: 1", "2"]),
        (DeliveryCheck.unknown(), ["1", "again: 1", "2"]),
        (DeliveryCheck.safe(), ["1", "1", "2"]),
        (DeliveryCheck.arrived("77"), ["1", "2"]),
    ],
)
async def test_what_may_have_arrived_is_looked_for_or_repeated_with_a_mark(running, finding, expected):
    async def first_breaks(sending):
        if len(running.sent) == 1:
            raise ConnectionResetError("in the middle")
        return SendOutcome.sent("5")

    async def check(sending):
        assert sending.key == "a/0"
        return finding

    running.on_send = first_breaks
    running.delivery.deliver("irc", running.take, check if finding else None)
    await running.delivery.start()
    await running.delivery.send(OutboundReply(ROOM, ({"text": "1"},), id="a"))
    await running.delivery.send(*answer("2"))
    await sent(running, len(expected))

    assert running.sent == expected
    assert await running.delivery.wait_settled("a", 20) == "sent"
    await running.delivery.drain(5)


async def test_a_platform_that_takes_and_answers_nothing_gets_one_repeat_and_no_more(running):
    async def drops(sending):
        raise TimeoutError

    running.on_send = drops
    running.delivery.deliver("irc", running.take)
    await running.delivery.start()
    name = await running.delivery.send(*answer("1"))

    assert await running.delivery.wait_settled(name, 20) == "failed"
    assert running.sent == ["1", "again: 1"]
    await running.delivery.drain(5)


@pytest.mark.parametrize("wrong", [ConnectionResetError, TimeoutError])
async def test_what_failed_before_its_first_byte_went_out_is_sent_again_without_a_mark(running, wrong):
    async def fails_thrice(sending):
        if sending.attempt <= 3:
            raise wrong

    running.before = fails_thrice
    running.delivery.deliver("irc", running.take)
    await running.delivery.start()
    name = await running.delivery.send(*answer("1"))

    assert await running.delivery.wait_settled(name, 20) == "sent"
    assert running.sent == ["1"]
    await running.delivery.drain(5)


async def test_nothing_goes_out_while_its_beginning_cannot_be_noted(running, path):
    tried = []

    async def takes(sending, begin):
        tried.append(sending.part["text"])
        if len(tried) == 3:
            fault.end()
        return await running.take(sending, begin)

    running.delivery.deliver("irc", takes)
    await running.delivery.start()
    with StoreFault(path, BEGINS) as fault:
        name = await running.delivery.send(*answer("1"))

        assert await running.delivery.wait_settled(name, 20) == "sent"
    assert (tried, running.sent) == (["1"] * 3, ["1"])
    await running.delivery.drain(5)


async def test_a_process_that_ends_again_and_again_keeps_the_only_repeat_for_the_one_that_lasts(path, bridge):
    begun = Mailbox(path)
    begun.acquire()
    begun.enqueue(*answer("1"), 0)
    begun.begin_sending(begun.claim_part(ROOM, 0))
    begun.close()

    seen, attempts = [], []
    for lasting_s in (600.0, 600.0, 0.05):
        running = Running(path, bridge, lasting_s=lasting_s)
        looked = asyncio.Event()

        async def check(sending, looked=looked):
            attempts.append(sending.attempt)
            looked.set()
            return DeliveryCheck.unknown()

        running.delivery.deliver("irc", running.take, check)
        await running.delivery.start()
        await running.delivery.send(*answer("after it"))
        async with asyncio.timeout(20):
            await looked.wait()
        if lasting_s < 1:
            await sent(running, 4)
        await running.delivery.drain(20)  # nothing that is held delays it
        seen.append(running.sent)

    assert seen == [[], [], ["again: 1", *["after it"] * 3]]
    assert set(attempts) == {2}


@pytest.mark.parametrize("looks", [False, True])
async def test_a_process_that_ended_in_the_middle_of_a_repeat_does_not_hold_up_what_follows(path, bridge, looks):
    for repeat in (False, True):
        ended = Mailbox(path)
        ended.acquire()
        ended.enqueue(OutboundReply(ROOM, ({"text": "1"},), id="a"), 0)
        ended.begin_sending(replace(ended.claim_part(ROOM, 0), repeat=repeat))
        ended.close()

    async def check(sending):
        return DeliveryCheck.unknown()

    running = Running(path, bridge)
    running.delivery.deliver("irc", running.take, check if looks else None)
    await running.delivery.start()
    await running.delivery.send(*answer("2"))

    assert await running.delivery.wait_settled("a", 20) == "failed"
    await sent(running, 1)
    assert running.sent == ["2"]
    await running.delivery.drain(5)


async def test_an_adapter_that_asks_once_more_and_may_then_has_sent(running, path):
    async def asks_again(sending, begin):
        with pytest.raises(sqlite3.DatabaseError, match="not allowed"):
            await begin()
        fault.end()
        return await running.take(sending, begin)

    running.delivery.deliver("irc", asks_again)
    await running.delivery.start()
    with StoreFault(path, BEGINS) as fault:
        name = await running.delivery.send(*answer("1"))

        assert await running.delivery.wait_settled(name, 20) == "sent"
    assert running.sent == ["1"]
    await running.delivery.drain(5)


async def test_a_disconnected_platform_spends_no_attempts(running):
    async def lost(sending):
        running.delivery.deliver("irc", None)
        return SendOutcome.retry("connection lost")

    running.on_send = lost
    running.delivery.deliver("irc", running.take)
    await running.delivery.start()
    await running.delivery.send(*answer("1"))
    await sent(running, 1)
    running.on_send = None
    running.delivery.deliver("irc", running.take)
    await sent(running, 2)

    assert running.sent == ["1", "1"]
    await running.delivery.drain(5)


async def test_a_dead_target_is_listed_and_revived(running):
    async def kicked(sending):
        return SendOutcome.park("kicked")

    running.on_send = kicked
    running.delivery.deliver("irc", running.take)
    await running.delivery.start()
    name = await running.delivery.send(*answer("1"))
    assert await running.delivery.wait_settled(name, 20) == "parked"
    running.on_send = None

    assert [(p.target, p.reason, p.count) for p in await running.delivery.list_parked()] == [(ROOM, "kicked", 1)]
    assert await running.delivery.revive(ROOM) == (ROOM,)
    assert await running.delivery.wait_settled(name, 20) == "sent"
    await running.delivery.drain(5)


async def test_what_another_process_stored_is_sent_when_asked_to_look(running, path):
    running.delivery.deliver("irc", running.take)
    await running.delivery.start()
    other = Mailbox(path)
    other.enqueue(answer("from the shell")[0], 0)
    other.close()
    await running.delivery.refresh()
    await sent(running, 1)

    assert running.sent == ["from the shell"]
    await running.delivery.drain(5)


async def test_a_message_that_ended_the_process_again_and_again_is_given_up_once_it_is_old(path, bridge):
    now = 1_000_000.0
    for _ in range(20):
        mailbox = Mailbox(path)
        mailbox.acquire()
        mailbox.receive(message(), now)
        mailbox.claim_message(("irc", "talk"), now)
        mailbox.close()

    async def serve(claimed):
        return answer("served")

    async def give_up(claimed, error):
        return answer(str(error))

    told = []
    for later in (10.0, 4000.0):
        running = Running(path, bridge, clock=lambda later=later: now + later)
        running.delivery.serve("irc", serve if later > 10 else never_ends, abandon=give_up)
        running.delivery.deliver("irc", running.take)
        await running.delivery.start()
        if later > 10:
            await sent(running, 1)
        await running.delivery.drain(0)
        told += running.sent

    assert told == ["it was started 20 times and never finished"]


async def never_ends(claimed):
    await asyncio.Event().wait()


async def test_a_message_whose_bringer_is_cancelled_while_it_is_stored_is_served_all_the_same(running, path):
    async def serve(claimed):
        return answer(claimed.payload["n"])

    running.delivery.serve("irc", serve)
    running.delivery.deliver("irc", running.take)
    await running.delivery.start()
    await running.delivery.receive(message("1"))
    await sent(running, 1)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    brings = asyncio.create_task(running.delivery.receive(message("2")))
    await asyncio.sleep(0.3)  # it waits for the other's lock; sooner, and it would be cancelled before it is stored
    brings.cancel()
    await asyncio.wait([brings])
    other.execute("ROLLBACK")
    other.close()

    receipt = await running.delivery.receive(message("2"))  # the platform brings it again

    await sent(running, 2)
    assert (receipt.new, running.sent) == (False, ["1", "2"])
    await running.delivery.drain(5)


async def test_a_message_whose_caller_is_cancelled_while_it_is_claimed_can_be_begun_again(running, path):
    await running.delivery.start()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    begins = asyncio.create_task(running.delivery.begin(message("1")))
    await asyncio.sleep(0.3)  # it waits for the other's lock
    begins.cancel()
    await asyncio.wait([begins])
    other.execute("ROLLBACK")
    other.close()

    async with asyncio.timeout(20):
        while (again := await running.delivery.begin(message("1"))) is None:  # noqa: ASYNC110 - nothing tells that it was let go
            await asyncio.sleep(0.01)

    await again.done()
    await running.delivery.drain(5)


@pytest.mark.parametrize("wrong", [NO_TABLE, NOT_ALLOWED], ids=["operational", "other"])
async def test_a_message_whose_caller_is_cancelled_while_it_cannot_be_given_back_is_given_back_all_the_same(
    running, path, caplog, wrong
):
    tried = asyncio.Event()
    caplog.handler.addFilter(lambda record: "cannot write the state" not in record.msg or tried.set() or True)
    await running.delivery.start()
    claimed = await running.delivery.begin(message("1"))
    with StoreFault(path, "UPDATE OF not_before ON inbox", wrong):
        gives_back = asyncio.create_task(claimed.release())
        async with asyncio.timeout(20):
            await tried.wait()
        gives_back.cancel()
        await asyncio.wait([gives_back])
        assert await running.delivery.begin(message("1")) is None

    async with asyncio.timeout(20):
        while (again := await running.delivery.begin(message("1"))) is None:  # noqa: ASYNC110 - nothing tells it
            await asyncio.sleep(0.01)
    await again.done()
    await running.delivery.drain(5)


async def test_a_full_disk_delays_an_answer_and_neither_loses_nor_repeats_it(running, caplog):
    served, told = [], asyncio.Event()
    caplog.handler.addFilter(lambda record: "cannot write the state" not in record.msg or told.set() or True)

    def pages(box, most):
        return box._db.read(f"PRAGMA max_page_count = {most}")

    async def serve(claimed):
        served.append(claimed.id)
        await running.delivery._mailbox.call(pages, 1)  # what is there stays, and nothing more
        return answer("x" * 100_000)

    running.delivery.serve("irc", serve)
    running.delivery.deliver("irc", running.take)
    await running.delivery.start()
    await running.delivery.receive(message("1"))
    async with asyncio.timeout(20):
        await told.wait()
    with pytest.raises(sqlite3.OperationalError, match="full"):  # the platform is not told that it was received
        await running.delivery.receive(InboundMessage("irc", "#room", "2", "talk", payload={"text": "y" * 100_000}))
    await running.delivery._mailbox.call(pages, 1 << 30)
    await sent(running, 1)

    assert (len(served), len(running.sent)) == (1, 1)
    await running.delivery.drain(5)


async def test_a_clock_that_jumps_at_every_look_delays_repeats_and_reorders_nothing(path, bridge):
    jumps = itertools.cycle([0.0, 40 * 86400.0, -400 * 86400.0, 3600.0, -7200.0])
    running = Running(path, bridge, clock=lambda: 1_800_000_000.0 + next(jumps))
    tried = set()

    async def serve(claimed):
        if claimed.id % 3 == 0 and claimed.id not in tried:
            tried.add(claimed.id)
            raise RetryLater("not now", after_s=0.001)
        return answer(claimed.payload["n"])

    async def deliver(sending, begin):
        if sending.id % 4 == 0 and sending.key not in tried:
            tried.add(sending.key)
            return SendOutcome.retry("not now")
        return await running.take(sending, begin)

    running.delivery.serve("irc", serve)
    running.delivery.deliver("irc", deliver)
    await running.delivery.start()
    for number in range(30):
        await running.delivery.receive(message(str(number)))
    await sent(running, 30)
    assert running.sent == [str(number) for number in range(30)]
    await running.delivery.drain(5)
