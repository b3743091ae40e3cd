"""Questions that wait for an answer from somewhere else: a chat, a button, another process's request.

Who asks puts a question and waits; who hears the answer knows the question's id, or the conversation alone. Source:
plugin contract §10.6.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.core.messages import new_id
from hermes_agent.policy.approvals import Choice, Refusal

T = TypeVar("T")

QUESTION_PREFIX = "question_"
"""What the ids of questions begin with."""
CODE_LENGTH = 5
FRESH_S = 2.0
"""Within this time an answer that names no question may be meant for the one before."""


@dataclass(eq=False)
class PendingQuestion(Generic[T]):
    """A question that somebody was asked."""

    id: str
    session_key: str
    text: str = ""
    choices: Sequence[str] = ()
    awaiting_text: bool = False
    """Whether the next message of the conversation is the answer."""
    put_at: float = 0.0
    """Monotonic seconds."""
    _answer: Future[T] = field(default_factory=Future, repr=False)

    @property
    def code(self) -> str:
        """What a user writes to name it."""
        return self.id[-CODE_LENGTH:]

    def wait(self, timeout_s: float | None = None) -> T:
        """Wait in this thread for the answer.

        Raises:
            TimeoutError: there was none in time.
        """
        return self._answer.result(timeout_s)

    async def await_answer(self) -> T:
        """Await the answer."""
        return await asyncio.wrap_future(self._answer)

    def answer(self, answer: T) -> bool:
        """Answer; false when somebody has done so before, or nobody waits any more."""
        try:
            self._answer.set_result(answer)
        except InvalidStateError:  # answered, or cancelled by who waited
            return False
        return True


class PendingQuestions(Generic[T]):
    """The open questions, oldest first. Safe for threads.

    An answer that names no question is for the one that the user sees. Where that is not certain (`is_unclear`), who
    takes answers lets none allow anything without a name.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._closed: dict[str, bool] = {}
        """Conversations that were asked before; true where a question was closed without an answer."""
        self._questions: dict[str, PendingQuestion[T]] = {}
        self._lock = threading.Lock()

    def put(
        self, session_key: str, text: str = "", *, choices: Sequence[str] = (), question_id: str = ""
    ) -> PendingQuestion[T]:
        """Add a question and return it; one of the same id is replaced."""
        question: PendingQuestion[T] = PendingQuestion(
            question_id or new_id("question"), session_key, text, tuple(choices)
        )
        question.put_at = self._clock()
        with self._lock:
            self._questions[question.id] = question
        return question

    def get(self, question_id: str) -> PendingQuestion[T] | None:
        """Return an open question."""
        return self._questions.get(question_id)

    def ids(self) -> list[str]:
        """Return the ids of all open questions, oldest first."""
        with self._lock:
            return list(self._questions)

    def questions_for(self, session_key: str) -> list[PendingQuestion[T]]:
        """Return a conversation's open questions, oldest first."""
        with self._lock:
            return [q for q in self._questions.values() if q.session_key == session_key]

    def answer(self, question_id: str, answer: T) -> bool:
        """Answer one question; false when it is not open."""
        with self._lock:
            question = self._questions.pop(question_id, None)
            if question is not None:
                self._closed[question.session_key] = False
        return question is not None and question.answer(answer)

    def answer_session(self, session_key: str, answer: T, *, everything: bool = False) -> int:
        """Answer a conversation's oldest question, or all of them, and return how many that were."""
        open_ = self.questions_for(session_key)
        return sum(self.answer(question.id, answer) for question in (open_ if everything else open_[:1]))

    def drop(self, question: PendingQuestion[T]) -> None:
        """Forget a question that nobody waits for any more."""
        with self._lock:
            if self._questions.get(question.id) is question:
                del self._questions[question.id]
                self._closed[question.session_key] = True

    def find_by_code(self, session_key: str, code: str) -> PendingQuestion[T] | None:
        """Return the open question of a conversation that a code names."""
        return next((q for q in self.questions_for(session_key) if q.code == code.lower()), None)

    def is_ambiguous(self, session_key: str) -> bool:
        """Say whether an answer without a name may be meant for another question than the open one.

        So it is where a question was closed without an answer (also before a restart: `mark`), where several are open,
        and while the only one is so new that the answer may have been written before it was seen.
        """
        asked_before = session_key in self._closed
        fresh = asked_before and any(self._clock() - q.put_at < FRESH_S for q in self.questions_for(session_key))
        return fresh or self.needs_code(session_key)

    def needs_code(self, session_key: str) -> bool:
        """Say whether the open question has to show its code: an answer without a name is unclear, now and later."""
        return self.has_unanswered(session_key) or len(self.questions_for(session_key)) > 1

    def has_unanswered(self, session_key: str) -> bool:
        """Say whether a question of a conversation was closed without an answer."""
        return bool(self._closed.get(session_key))

    def mark_unanswered(self, session_key: str) -> None:
        """Note that a question of a conversation was closed without an answer."""
        with self._lock:
            self._closed[session_key] = True

    def clear_unanswered(self, session_key: str) -> None:
        """Note that an answer came when nothing was open: it was for the question that was closed."""
        with self._lock:
            self._closed.pop(session_key, None)


class QueuedApprover:
    """Asks a person who answers elsewhere.

    Args:
        announce: shows the question to the person.
    """

    def __init__(
        self,
        waiting: PendingQuestions[Choice | Refusal],
        session_key: str,
        announce: Callable[[PendingQuestion[Choice | Refusal], ApprovalRequest], Awaitable[None]],
    ) -> None:
        self._questions, self._session_key, self._announce = waiting, session_key, announce

    async def ask(self, request: ApprovalRequest) -> Choice | Refusal:
        """Announce the request and wait; who calls sets the deadline."""
        text = f"{request.summary}: {request.detail}"
        question = self._questions.put(self._session_key, text, choices=request.answers)
        try:
            await self._announce(question, request)
            return await question.await_answer()
        finally:
            self._questions.drop(question)
