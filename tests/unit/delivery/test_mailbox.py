from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import replace

import pytest

from hermes_agent.delivery import (
    SCHEMA,
    InboundMessage,
    Mailbox,
    OutboundReply,
    ReplyTarget,
    SendOutcome,
    StaleClaim,
)
from hermes_agent.delivery.outbox import MAX_ATTEMPTS
from hermes_agent.store import Database, Schema

ROOM = ReplyTarget("irc", "#room")
TALK = ("irc", "talk")
TEXT = ({"text": "hello"},)


@contextlib.contextmanager
def interrupted_at(path, change):
    """Let a transaction fail in the block at a change of the tables, as if the process were killed there."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(f"CREATE TRIGGER kill BEFORE {change} BEGIN SELECT RAISE(ABORT, 'killed'); END")
        yield
        db.execute("DROP TRIGGER kill")


def message(number="1", conversation="talk", chat="#room"):
    return InboundMessage("irc", chat, number, conversation, "ann", {"text": f"message {number}"})


def reply(*texts, target=ROOM, name=""):
    return OutboundReply(target, tuple({"text": text} for text in texts), id=name)


def test_a_message_comes_back_as_it_was_stored(box):
    receipt = box.receive(message(), 5.0)
    claim = box.claim_message(TALK, 6.0)

    assert receipt.new
    assert (claim.id, claim.chat, claim.message_id, claim.sender) == (receipt.id, "#room", "1", "ann")
    assert (claim.payload, claim.received_at, claim.attempt) == ({"text": "message 1"}, 5.0, 1)


def test_a_message_that_comes_again_is_dropped_also_after_it_was_answered(box):
    first = box.receive(message(), 0)
    assert box.receive(message(), 1) == type(first)(first.id, False)
    box.finish(box.claim_message(TALK, 2), [], 2)

    assert box.receive(message(), 3) == type(first)(first.id, False)
    assert box.claim_message(TALK, 4) is None


def test_the_same_id_in_another_chat_or_no_id_is_another_message(box):
    assert all(box.receive(one, 0).new for one in (message(), message(chat="#other"), message(""), message("")))


@pytest.mark.attack("interfaces")
def test_the_same_content_is_a_duplicate_within_its_time_whatever_its_id(box, path):
    def sent(number, chat="#room"):
        return replace(message(number, chat=chat), fingerprint="f", same_s=100.0)

    first = box.receive(sent("1"), 0)
    assert [box.receive(sent(number), 99).new for number in ("", "2")] == [False, False]
    assert box.receive(sent("3"), 99).id == first.id
    assert box.receive(sent("1", "#other"), 99).new and box.receive(message("4"), 99).new
    box.finish(box.claim_message(TALK, 99), [], 99)
    again = Mailbox(path)
    assert not again.receive(sent("5"), 99).new, "known after a restart, too"
    again.close()
    assert box.receive(sent("6"), 101).new
    assert not box.receive(sent("7"), 102).new, "counted from the one that was taken last"


def test_what_an_older_release_stored_has_no_fingerprint(path):
    old = Database(path, (Schema("delivery", SCHEMA.steps[:3]),))
    with old.write() as db:
        db.execute(
            "INSERT INTO inbox (platform, chat, message_id, conversation, sender, payload, received_at)"
            " VALUES ('irc', '#room', '1', 'talk', 'ann', '{}', 0)"
        )
    old.close()
    box = Mailbox(path)
    assert box.receive(replace(message("2"), fingerprint="f", same_s=100.0), 1).new
    assert not box.receive(message("1"), 1).new
    box.close()


def test_a_conversation_is_served_in_order_and_others_beside_it(box):
    for number in ("1", "2"):
        box.receive(message(number), 0)
    box.receive(message("3", "other"), 0)
    first = box.claim_message(TALK, 0)

    assert first.message_id == "1"
    assert box.claim_message(TALK, 0) is None
    assert box.count_waiting(TALK) == 1
    assert box.claim_message(("irc", "other"), 0).message_id == "3"
    box.finish(first, [], 0)
    assert box.claim_message(TALK, 0).message_id == "2"


def test_an_answer_and_the_end_of_its_message_are_stored_together_or_not_at_all(box):
    box.receive(message(), 0)
    claim = box.claim_message(TALK, 0)
    with pytest.raises(TypeError):
        box.finish(claim, [OutboundReply(ROOM, ({"text": object()},))], 0)

    assert box.counts()["inbox_claimed"] == 1
    assert [one.id for one in box.finish(claim, [reply("a"), reply("b")], 0)] == ["in-1-0", "in-1-1"]
    assert box.counts() | {"inbox_claimed": 0} == box.counts()
    assert [box.claim_part(ROOM, 0).part, box.claim_part(ROOM, 0)] == [{"text": "a"}, None]


def test_what_another_daemon_took_over_cannot_be_finished(box, path):
    box.receive(message(), 0)
    stale = box.claim_message(TALK, 0)
    other = Mailbox(path)
    assert other.acquire() == ([TALK], [])
    for step in (
        lambda: box.finish(stale, [reply("old")], 0),
        lambda: box.save_notes(stale, {}),
        lambda: box.absorb(stale, 1),
        lambda: box.requeue(stale, 0),
        lambda: box.claim_message(TALK, 0),
        lambda: box.claim_part(ROOM, 0),
    ):
        with pytest.raises(StaleClaim):
            step()

    again = other.claim_message(TALK, 0)
    assert (again.attempt, again.message_id) == (2, "1")
    other.finish(again, [reply("new")], 0)
    assert other.claim_part(ROOM, 0).part == {"text": "new"}
    other.close()


def test_a_worker_whose_message_was_given_to_another_cannot_finish_it(box):
    box.receive(message(), 0)
    slow = box.claim_message(TALK, 0)
    box.requeue(slow, 0)
    quick = box.claim_message(TALK, 0)
    with pytest.raises(StaleClaim):
        box.finish(slow, [reply("slow")], 0)

    box.finish(quick, [reply("quick")], 0)
    assert box.claim_part(ROOM, 0).part == {"text": "quick"}


def test_a_message_that_failed_waits_and_keeps_its_place(box):
    box.receive(message("1"), 0)
    box.receive(message("2"), 0)
    box.requeue(box.claim_message(TALK, 0), 10, 5, error="boom")

    assert box.claim_message(TALK, 12) == 3.0
    claim = box.claim_message(TALK, 15)
    assert (claim.message_id, claim.attempt, claim.errors) == ("1", 2, 1)


def test_notes_are_there_at_the_next_attempt(box):
    box.receive(message(), 0)
    claim = box.claim_message(TALK, 0)
    box.save_notes(claim, {"preview": "77"})
    box.requeue(claim, 0)

    assert box.claim_message(TALK, 0).notes == {"preview": "77"}


def test_a_message_that_was_absorbed_ends_with_the_other_or_waits_with_it(box):
    ids = [box.receive(message(number), 0).id for number in ("1", "2", "3")]
    claim = box.claim_message(TALK, 0)
    assert not box.absorb(claim, ids[2])  # it is not the next
    assert box.absorb(claim, ids[1])
    assert not box.absorb(claim, ids[1])
    box.requeue(claim, 0)
    assert box.count_waiting(TALK) == 3
    claim = box.claim_message(TALK, 0)
    assert claim.message_id == "1"
    box.absorb(claim, ids[1])
    box.finish(claim, [], 0)

    assert box.claim_message(TALK, 0).message_id == "3"


def test_parts_go_out_in_order_and_one_at_a_time_to_a_target(box):
    box.enqueue(reply("1", "2", name="a"), 0)
    box.enqueue(reply("3", name="b"), 0)
    box.enqueue(reply("x", target=ReplyTarget("irc", "ann")), 0)
    sent = []
    while (part := box.claim_part(ROOM, 0)) is not None:
        assert box.claim_part(ROOM, 0) is None
        sent.append((part.key, part.part["text"], part.index, part.count))
        assert box.record_outcome(part, SendOutcome.sent("id"), 0) == "sent"

    assert sent == [("a/0", "1", 0, 2), ("a/1", "2", 1, 2), ("b/0", "3", 0, 1)]
    assert box.reply_state("a") == "sent"
    assert box.open_work() == ([], [ReplyTarget("irc", "ann")])


def test_a_reply_with_a_known_id_is_dropped(box):
    assert box.enqueue(reply("1", name="a"), 0).id == box.enqueue(reply("2", name="a"), 0).id
    box.record_outcome(box.claim_part(ROOM, 0), SendOutcome.sent(), 0)
    box.enqueue(reply("3", name="a"), 0)

    assert box.claim_part(ROOM, 0) is None


def test_a_part_that_did_not_arrive_holds_up_the_next_until_it_does(box):
    box.enqueue(reply("1"), 0)
    box.enqueue(reply("2"), 0)
    assert box.record_outcome(box.claim_part(ROOM, 0), SendOutcome.retry("no network"), 0, 4.0) == "pending"

    assert box.claim_part(ROOM, 1.0) == 3.0
    part = box.claim_part(ROOM, 4.0)
    assert (part.part["text"], part.attempt, part.uncertain) == ("1", 2, False)


def test_what_was_being_sent_when_the_process_ended_may_have_arrived_and_is_repeated_once_at_most(box, path):
    box.enqueue(reply("1"), 0)
    for uncertain, repeated in ((False, False), (True, False), (True, True)):
        part = box.claim_part(ROOM, 0)
        assert (part.uncertain, part.repeated) == (uncertain, repeated)
        if not repeated:
            box.begin_sending(replace(part, repeat=uncertain))
            box.close()
            box = Mailbox(path)
            box.acquire()

    assert box.record_outcome(part, SendOutcome.unknown("the repeat was not confirmed either"), 0) == "failed"
    assert box.open_work() == ([], [])
    box.close()


def test_what_was_claimed_and_not_begun_when_the_process_ended_did_not_arrive(box, path):
    box.enqueue(reply("1"), 0)
    for _ in range(3):
        part = box.claim_part(ROOM, 0)
        box.close()
        box = Mailbox(path)
        box.acquire()

    assert not box.claim_part(ROOM, 0).uncertain
    with pytest.raises(StaleClaim):
        box.begin_sending(part)
    box.close()


@pytest.mark.parametrize(
    ("done", "boots", "repeated"),
    [
        ("armed", ["one", "one"], False),  # it was killed before the repeat began
        ("armed", ["one", "two"], True),  # whether it began may have been forgotten
        ("armed", ["", ""], True),
        ("claimed", ["one", "two"], False),
        ("begun", ["one", "one"], True),
    ],
)
def test_a_repeat_counts_from_its_beginning_and_after_a_power_cut_from_before_it(path, done, boots, repeated):
    boot = iter(boots)
    box = Mailbox(path, read_boot_id=lambda: next(boot))
    box.acquire()
    box.enqueue(reply("1"), 0)
    box.record_outcome(box.claim_part(ROOM, 0), SendOutcome.unknown("timeout"), 0)
    part = replace(box.claim_part(ROOM, 0), repeat=True)
    if done == "armed":
        with interrupted_at(path, "UPDATE OF uncertain ON outbox"), pytest.raises(sqlite3.IntegrityError):
            box.begin_sending(part)
    elif done == "begun":
        box.begin_sending(part)
    box.close()
    box = Mailbox(path, read_boot_id=lambda: next(boot))
    box.acquire()

    part = box.claim_part(ROOM, 0)
    assert (part.uncertain, part.repeated) == (True, repeated)
    box.close()


def test_what_is_held_was_no_attempt_and_keeps_its_doubt(box):
    box.enqueue(reply("1"), 0)
    box.record_outcome(box.claim_part(ROOM, 0), SendOutcome.unknown("timeout"), 0)
    for _ in range(MAX_ATTEMPTS + 1):
        part = box.claim_part(ROOM, 0)
        assert box.record_outcome(part, SendOutcome.not_attempted("not yet", 3.0), 0, 3.0) == "pending"

    assert (part.attempt, part.uncertain, part.repeated) == (2, True, False)


def test_a_repeat_that_certainly_did_not_arrive_was_none(box):
    box.enqueue(reply("1"), 0)
    box.record_outcome(box.claim_part(ROOM, 0), SendOutcome.unknown("timeout"), 0)
    part = box.claim_part(ROOM, 0)
    box.begin_sending(replace(part, repeat=True))
    box.record_outcome(part, SendOutcome.retry("refused connection"), 0)

    part = box.claim_part(ROOM, 0)
    assert (part.uncertain, part.repeated) == (True, False)


def test_a_repeat_is_not_forgotten_by_a_later_attempt_that_did_not_come_to_it(box, path):
    box.enqueue(reply("1"), 0)
    box.record_outcome(box.claim_part(ROOM, 0), SendOutcome.unknown("timeout"), 0)
    box.begin_sending(replace(box.claim_part(ROOM, 0), repeat=True))
    box.close()
    box = Mailbox(path)
    box.acquire()
    box.record_outcome(box.claim_part(ROOM, 0), SendOutcome.retry("it cannot be looked for"), 0)

    part = box.claim_part(ROOM, 0)
    assert (part.uncertain, part.repeated) == (True, True)
    box.close()


def test_a_begun_attempt_that_certainly_did_not_arrive_leaves_no_doubt(box):
    box.enqueue(reply("1"), 0)
    part = box.claim_part(ROOM, 0)
    box.begin_sending(part)
    box.record_outcome(part, SendOutcome.retry("refused connection"), 0)

    assert not box.claim_part(ROOM, 0).uncertain


def test_what_the_release_before_was_sending_may_have_arrived(path):
    old = Database(path, (Schema("delivery", SCHEMA.steps[:1]),))
    with old.write() as db:
        db.execute(
            "INSERT INTO outbox (reply, part, parts, platform, chat, thread, content, reply_to, state, created_at)"
            " VALUES ('a', 0, 1, 'irc', '#room', '', '{}', '', 'sending', 0)"
        )
    old.close()
    box = Mailbox(path)
    box.acquire()

    assert box.claim_part(ROOM, 0).uncertain
    box.close()


def test_a_part_that_can_never_be_sent_ends_its_reply_but_not_the_next(box):
    box.enqueue(reply("1", "2", name="a"), 0)
    box.enqueue(reply("3", name="b"), 0)
    assert box.record_outcome(box.claim_part(ROOM, 0), SendOutcome.refused("too long"), 0) == "failed"

    assert box.reply_state("a") == "failed"
    assert box.claim_part(ROOM, 0).key == "b/0"


def test_a_dead_target_is_parked_with_everything_for_it_until_its_chat_speaks(box):
    box.enqueue(reply("1"), 0)
    box.enqueue(reply("2"), 0)
    assert box.record_outcome(box.claim_part(ROOM, 0), SendOutcome.park("kicked"), 7.0) == "parked"
    box.enqueue(reply("3"), 8.0)

    assert box.claim_part(ROOM, 9.0) is None
    assert [(str(p.target), p.reason, p.since, p.count) for p in box.list_parked()] == [("irc:#room", "kicked", 7.0, 3)]
    assert box.receive(message(), 10.0).revived == (ROOM,)
    assert box.list_parked() == []
    assert box.claim_part(ROOM, 11.0).part == {"text": "1"}


@pytest.mark.parametrize("before", [SendOutcome.unknown("timed out"), SendOutcome.retry("throttled")])
def test_a_part_that_was_refused_is_no_repeat_when_its_target_is_revived(box, before):
    box.enqueue(reply("1"), 0)
    first = box.claim_part(ROOM, 0)
    box.begin_sending(first)
    box.record_outcome(first, before, 0)
    doubted = before.kind == "unknown"
    again = box.claim_part(ROOM, 0)
    assert again.uncertain is doubted
    box.begin_sending(replace(again, repeat=doubted))
    box.record_outcome(again, SendOutcome.park("404 cannot send"), 0)
    box.revive(ROOM)

    last = box.claim_part(ROOM, 0)
    assert (last.uncertain, last.repeated) == (doubted, False)  # the refused attempt was none


def test_the_operator_revives_a_target(box):
    box.enqueue(reply("1"), 0)
    box.record_outcome(box.claim_part(ROOM, 0), SendOutcome.park("kicked"), 0)

    assert box.revive(ReplyTarget("irc", "#other")) == ()
    assert box.revive(ROOM) == (ROOM,)
    assert box.claim_part(ROOM, 0) is not None


def test_thirty_failed_attempts_park_a_target(box):
    box.enqueue(reply("1", name="a"), 0)
    states = [box.record_outcome(box.claim_part(ROOM, n), SendOutcome.retry("refused"), n) for n in range(30)]

    assert set(states[:-1]) == {"pending"}
    assert states[-1] == box.reply_state("a") == "parked"
    assert box.list_parked()[0].reason == "30 attempts failed; the last: refused"


def test_a_clock_that_was_set_back_delays_nothing(box):
    box.receive(message(), 1_000_000)
    box.requeue(box.claim_message(TALK, 1_000_000), 1_000_000, 60)
    box.enqueue(reply("1"), 1_000_000)
    box.record_outcome(box.claim_part(ROOM, 1_000_000), SendOutcome.retry("later"), 1_000_000, 60)

    assert box.claim_message(TALK, 5).attempt == 2
    assert box.claim_part(ROOM, 5).attempt == 2


def test_old_rows_go_but_a_clock_that_was_set_ahead_forgets_no_recent_message(box):
    for number in range(12):
        box.receive(message(str(number)), number)
        box.finish(box.claim_message(TALK, number), [], number)
    box.receive(message("open"), 0)

    assert box.prune(1e9, at_least=5) == 7
    assert not box.receive(message("11"), 1e9).new
    assert box.prune(12, at_most=3) == 2
    assert box.claim_message(TALK, 1e9).message_id == "open"
