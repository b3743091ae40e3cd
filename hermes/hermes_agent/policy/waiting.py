"""Questions that wait for an answer from somewhere else: a chat, a button, another process's request.

Who asks puts a question and waits; who hears the answer knows the question's id, or the conversation alone. Source:
plugin contract §10.6.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.core.ids import new_id
from hermes_agent.policy.approval import Choice, Refused

__all__ = ["QUESTION", "Question", "QueuedApprover", "Waiting"]

T = TypeVar("T")

QUESTION = "question_"
"""What the ids of questions begin with."""


@dataclass(eq=False)
class Question(Generic[T]):
    """A question that somebody was asked."""

    id: str
    session_key: str
    text: str = ""
    choices: Sequence[str] = ()
    awaiting_text: bool = False
    """Whether the next message of the conversation is the answer."""
    _answer: Future[T] = field(default_factory=Future, repr=False)

    def wait(self, timeout_s: float | None = None) -> T:
        """Wait in this thread for the answer.

        Raises:
            TimeoutError: there was none in time.
        """
        return self._answer.result(timeout_s)

    async def answered(self) -> T:
        """Await the answer."""
        return await asyncio.wrap_future(self._answer)

    def give(self, answer: T) -> bool:
        """Answer; false when somebody has done so before, or nobody waits any more."""
        try:
            self._answer.set_result(answer)
        except InvalidStateError:  # answered, or cancelled by who waited
            return False
        return True


class Waiting(Generic[T]):
    """The open questions, oldest first. Safe for threads."""

    def __init__(self) -> None:
        self._questions: dict[str, Question[T]] = {}
        self._lock = threading.Lock()

    def put(
        self, session_key: str, text: str = "", *, choices: Sequence[str] = (), question_id: str = ""
    ) -> Question[T]:
        """Add a question and return it; one of the same id is replaced."""
        question: Question[T] = Question(question_id or new_id("question"), session_key, text, tuple(choices))
        with self._lock:
            self._questions[question.id] = question
        return question

    def get(self, question_id: str) -> Question[T] | None:
        """Return an open question."""
        return self._questions.get(question_id)

    def ids(self) -> list[str]:
        """Return the ids of all open questions, oldest first."""
        with self._lock:
            return list(self._questions)

    def of(self, session_key: str) -> list[Question[T]]:
        """Return a conversation's open questions, oldest first."""
        with self._lock:
            return [q for q in self._questions.values() if q.session_key == session_key]

    def answer(self, question_id: str, answer: T) -> bool:
        """Answer one question; false when it is not open."""
        with self._lock:
            question = self._questions.pop(question_id, None)
        return question is not None and question.give(answer)

    def answer_session(self, session_key: str, answer: T, *, everything: bool = False) -> int:
        """Answer a conversation's oldest question, or all of them, and return how many that were."""
        open_ = self.of(session_key)
        return sum(self.answer(question.id, answer) for question in (open_ if everything else open_[:1]))

    def drop(self, question: Question[T]) -> None:
        """Forget a question that nobody waits for any more."""
        with self._lock:
            if self._questions.get(question.id) is question:
                del self._questions[question.id]


class QueuedApprover:
    """Asks a person who answers elsewhere.

    Args:
        announce: shows the question to the person.
    """

    def __init__(
        self,
        waiting: Waiting[Choice | Refused],
        session_key: str,
        announce: Callable[[Question[Choice | Refused], ApprovalRequest], Awaitable[None]],
    ) -> None:
        self._waiting, self._session_key, self._announce = waiting, session_key, announce

    async def ask(self, request: ApprovalRequest) -> Choice | Refused:
        """Announce the request and wait; who calls sets the deadline."""
        text = f"{request.summary}: {request.detail}"
        question = self._waiting.put(self._session_key, text, choices=request.answers)
        try:
            await self._announce(question, request)
            return await question.answered()
        finally:
            self._waiting.drop(question)
