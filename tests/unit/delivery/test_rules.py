"""No loss, nothing twice, order, one owner: over crashes at any step, and shown to be found when it is broken."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from hermes_agent.delivery import InboundMessage, Mailbox
from unit.delivery.machine import Daemon, DeliveryRules

FACTOR = int(os.environ.get("HERMES_CHAOS_FACTOR", "1"))


class AcknowledgedBeforeWritten(DeliveryRules):
    def take_in(self, chat, number, crash):
        self.world.acknowledge(chat, number)
        super().take_in(chat, number, crash)


class DuplicatesKept(DeliveryRules):
    def open_mailbox(self):
        class Forgetful(Mailbox):
            def receive(self, message, now):
                return super().receive(
                    InboundMessage(message.platform, message.chat, "", message.conversation, payload=message.payload),
                    now,
                )

        return Forgetful(self.path)


class NotFenced(DeliveryRules):
    def open_mailbox(self):
        class Trusting(Mailbox):
            def record_outcome(self, sending, outcome, now, wait_s=0.0):
                self._owner.check = lambda db: None
                with self._db.write() as db:
                    db.execute(
                        "UPDATE outbox SET state = 'sending', token = ?, finished_at = NULL WHERE id = ?",
                        (sending.token, sending.id),
                    )
                return super().record_outcome(sending, outcome, now, wait_s)

        return Trusting(self.path)


class RetriedUnderAnotherId(DeliveryRules):
    class daemon(Daemon):
        def key(self, part):
            return f"{part.key}#{part.attempt}"


class FailedGoesToTheBack(DeliveryRules):
    def open_mailbox(self):
        class Unfair(Mailbox):
            def requeue(self, claim, now, wait_s=0.0, *, error=""):
                super().requeue(claim, now, wait_s, error=error)
                with self._db.write() as db:
                    db.execute("UPDATE inbox SET id = (SELECT max(id) + 1 FROM inbox) WHERE id = ?", (claim.id,))

        return Unfair(self.path)


def run(machine, examples, **more):
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            **more,
        ),
    )


def test_no_loss_nothing_twice_order_and_one_owner_over_crashes_at_any_step():
    run(DeliveryRules, 50 * FACTOR, derandomize=FACTOR == 1)


@pytest.mark.parametrize(
    ("machine", "words", "begin"),
    [
        (AcknowledgedBeforeWritten, "never answered|out of order", 0),
        (DuplicatesKept, "seen twice|or twice", 0),
        (NotFenced, "a superseded daemon changed the store", 18),
        (RetriedUnderAnotherId, "seen twice", 0),
        (FailedGoesToTheBack, "out of order", 0),
    ],
)
def test_a_seeded_fault_is_found(machine, words, begin):
    # any beginning of the search finds each fault within 500 examples; these find it within a few
    with pytest.raises(AssertionError, match=words):
        run(
            seed(begin)(type("Seeded", (machine,), {})),
            500,
            derandomize=True,
            phases=[Phase.generate],
            report_multiple_bugs=False,
        )
