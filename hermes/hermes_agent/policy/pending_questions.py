"""Pending questions: approval requests and clarifications that are answered later from another place.

The caller adds a question and waits. The answer names the question by its id, or only the session.
Source: plugin contract §10.6.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import field
from typing import Generic, TypeVar

from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.messages import new_id
from hermes_agent.policy.approvals import Choice, Refusal

T = TypeVar("T")

QUESTION_PREFIX = "question_"
"""Prefix of the ids of questions."""
CODE_LENGTH = 5
FRESH_S = 2.0
"""Seconds after which an answer without an id can no longer mean the previous question."""


@lazy_dataclass(eq=False)
class PendingQuestion(Generic[T]):
    """A question that waits for its answer."""

    id: str
    session_key: str
    text: str = ""
    choices: Sequence[str] = ()
    awaiting_text: bool = False
    """Whether the next message of the conversation is the answer."""
    put_at: float = 0.0
    """Whether the next message of the session is the answer."""
    request: ApprovalRequest | None = None
    """The request for an approval; None for another question."""
    _answer: Future[T] = field(default_factory=Future, repr=False)

    @property
    def code(self) -> str:
        """The code by which a user names the question."""
        return self.id[-CODE_LENGTH:]

    def wait(self, timeout_s: float | None = None) -> T:
        """Wait in this thread for the answer.

        Raises:
            TimeoutError: no answer arrived within `timeout_s`.
        """
        return self._answer.result(timeout_s)

    async def await_answer(self) -> T:
        """Await the answer."""
        return await asyncio.wrap_future(self._answer)

    def answer(self, answer: T) -> bool:
        """Answer the question; return False when it was already answered or cancelled."""
        try:
            self._answer.set_result(answer)
        except InvalidStateError:  # already answered, or cancelled by the waiting code
            return False
        return True


class PendingQuestions(Generic[T]):
    """The open questions, oldest first. Safe for threads.

    An answer without an id belongs to the question that the user sees. While `is_ambiguous` is true, an answer
    without an id or code must not allow anything.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._closed: dict[str, bool] = {}
        """Sessions with earlier questions; true where a question was closed without an answer."""
        self._questions: dict[str, PendingQuestion[T]] = {}
        self._lock = threading.Lock()

    def put(
        self, session_key: str, text: str = "", *, choices: Sequence[str] = (), question_id: str = ""
    ) -> PendingQuestion[T]:
        """Add a question and return it; it replaces a question with the same id."""
        question: PendingQuestion[T] = PendingQuestion(
            question_id or new_id("question"), session_key, text, tuple(choices)
        )
        question.put_at = self._clock()
        with self._lock:
            self._questions[question.id] = question
        return question

    def get(self, question_id: str) -> PendingQuestion[T] | None:
        """Return an open question, or None."""
        return self._questions.get(question_id)

    def ids(self) -> list[str]:
        """Return the ids of all open questions, oldest first."""
        with self._lock:
            return list(self._questions)

    def questions_for(self, session_key: str) -> list[PendingQuestion[T]]:
        """Return the open questions of a session, oldest first."""
        with self._lock:
            return [q for q in self._questions.values() if q.session_key == session_key]

    def answer(self, question_id: str, answer: T) -> bool:
        """Answer a question; return False when it is not open."""
        with self._lock:
            question = self._questions.pop(question_id, None)
            if question is not None:
                self._closed[question.session_key] = False
        return question is not None and question.answer(answer)

    def answer_session(self, session_key: str, answer: T, *, everything: bool = False) -> int:
        """Answer the oldest question of a session, or all of them; return how many were answered."""
        open_ = self.questions_for(session_key)
        return sum(self.answer(question.id, answer) for question in (open_ if everything else open_[:1]))

    def drop(self, question: PendingQuestion[T]) -> None:
        """Remove a question that no code waits for any more."""
        with self._lock:
            if self._questions.get(question.id) is question:
                del self._questions[question.id]
                self._closed[question.session_key] = True

    def find_by_code(self, session_key: str, code: str) -> PendingQuestion[T] | None:
        """Return the open question of a session with this code, or None."""
        return next((q for q in self.questions_for(session_key) if q.code == code.lower()), None)

    def is_ambiguous(self, session_key: str) -> bool:
        """Return whether an answer without a code may mean another question than the open one.

        True where a question was closed without an answer (also before a restart: `mark_unanswered`), where several
        are open, and while the only one is so new that the user may have answered before seeing it.
        """
        asked_before = session_key in self._closed
        fresh = asked_before and any(self._clock() - q.put_at < FRESH_S for q in self.questions_for(session_key))
        return fresh or self.needs_code(session_key)

    def needs_code(self, session_key: str) -> bool:
        """Return whether the open question must show its code, because an answer without one is ambiguous."""
        return self.has_unanswered(session_key) or len(self.questions_for(session_key)) > 1

    def has_unanswered(self, session_key: str) -> bool:
        """Return whether a question of a session was closed without an answer."""
        return bool(self._closed.get(session_key))

    def mark_unanswered(self, session_key: str) -> None:
        """Record that a question of a session was closed without an answer."""
        with self._lock:
            self._closed[session_key] = True

    def clear_unanswered(self, session_key: str) -> None:
        """Record that an answer arrived while no question was open: it meant the closed question."""
        with self._lock:
            self._closed.pop(session_key, None)


class QueuedApprover:
    """Approver that adds each request to `PendingQuestions`.

    Args:
        announce: shows the question to the user.
    """

    def __init__(
        self,
        waiting: PendingQuestions[Choice | Refusal],
        session_key: str,
        announce: Callable[[PendingQuestion[Choice | Refusal], ApprovalRequest], Awaitable[None]],
    ) -> None:
        self._questions, self._session_key, self._announce = waiting, session_key, announce

    async def ask(self, request: ApprovalRequest) -> Choice | Refusal:
        """Announce the request and wait for the answer; the caller sets the deadline."""
        text = f"{request.summary}: {request.detail}"
        question = self._questions.put(self._session_key, text, choices=request.answers)
        question.request = request
        try:
            await self._announce(question, request)
            return await question.await_answer()
        finally:
            self._questions.drop(question)
