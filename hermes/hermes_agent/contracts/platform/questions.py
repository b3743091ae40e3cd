"""What people are asked in a chat, and what their button or reaction stands for. Source: contract §8.2.2, §10.6."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from hermes_agent.contracts.platform.adapter import BasePlatformAdapter

__all__ = [
    "APPROVALS",
    "CHOICE",
    "CONFIRM",
    "ReactionQuestion",
    "ReactionQuestions",
    "approval_buttons",
    "answer_text",
    "approval_text",
    "confirmation_buttons",
    "may_answer",
]

APPROVALS = {
    "approve": ("✅", "Once"),
    "approve session": ("🕐", "This session"),
    "approve always": ("♾️", "Always"),
    "deny": ("⛔", "Deny"),
}
"""The commands that answer a request, with the reaction and the label of each."""
CHOICE = "choice:"
"""What the value of a button begins with that is a choice, and no command."""
CONFIRM = "confirm-"
"""What the gateway's ids of questions about commands begin with."""
NUMBERS = [f"{number}\ufe0f\u20e3" for number in range(1, 10)]
MAX_QUESTIONS = 100


def approval_buttons(*, permanent: bool, approval_id: str = "", session: bool = True) -> dict[str, tuple[str, str]]:
    """Return reaction and label of an approval's buttons, by command.

    Args:
        permanent: it may be allowed for good.
        session: it may be allowed until the conversation ends.
        approval_id: of the question, which the commands then answer and no other.
    """
    return {
        f"{command} {approval_id}".strip(): both
        for command, both in APPROVALS.items()
        if (permanent or command != "approve always") and (session or command != "approve session")
    }


def confirmation_buttons(confirm_id: str) -> dict[str, str]:
    """Return the labels of the buttons that ask whether a slash command is meant, by command."""
    return {f"approve {confirm_id}": "Yes", f"always {confirm_id}": "Always", f"cancel {confirm_id}": "Cancel"}


def answer_text(value: str, choice: str) -> str:
    """Return what the presser of a button would have written: its command, or the choice that it is."""
    return choice if value.startswith(CHOICE) else f"/{value}"


def may_answer(
    adapter: BasePlatformAdapter, value: str, user_id: str, chat_type: str | None = None, chat_id: str | None = None
) -> bool:
    """Say whether somebody may press a button: one that asks about a command is for who gave it."""
    of = getattr(adapter.gateway_runner, "asker_of", None)
    asker = of(value) if callable(of) else None
    return asker == user_id if asker else adapter._is_sender_authorized(user_id, chat_type, chat_id) is not False


def approval_text(command: str, description: str, *, limit: int) -> str:
    """Return the text of a request. `limit`: characters of the command that are shown."""
    return f"⚠️ The agent wants to {description or 'run this'}:\n```\n{command[:limit]}\n```"


class ReactionQuestion(NamedTuple):
    """A question that reactions answer: what each stands for, and the thread that it was asked in."""

    answers: Mapping[str, str]
    thread: str | None = None


class ReactionQuestions:
    """The last questions of an adapter that has no buttons: people answer them with a reaction."""

    def __init__(self) -> None:
        self._questions: dict[str, ReactionQuestion] = {}

    @staticmethod
    def approval_question(
        command: str, description: str, *, permanent: bool, approval_id: str, limit: int, session: bool = True
    ) -> tuple[str, dict[str, str]]:
        """Return the text of a request, and what each reaction to it stands for."""
        offered = approval_buttons(permanent=permanent, approval_id=approval_id, session=session)
        answers = {emoji: f"/{said}" for said, (emoji, _) in offered.items()}
        names = approval_buttons(permanent=permanent, session=session)
        legend = ", ".join(f"{emoji} {name}" for name, (emoji, _) in names.items())
        return f"{approval_text(command, description, limit=limit)}\nReact with {legend}.", answers

    @staticmethod
    def choice_question(question: str, choices: Sequence[str] | None) -> tuple[str, dict[str, str]]:
        """Return the text of a question with numbered choices, and what each reaction to it stands for."""
        offered = [str(choice) for choice in choices or ()]
        lines = [f"❓ {question}", *(f"{number}. {choice}" for number, choice in enumerate(offered, 1))]
        return "\n".join(lines), dict(zip(NUMBERS, offered, strict=False))

    def remember(self, message_id: str, answers: Mapping[str, str], thread: str | None) -> None:
        """Remember a question that was sent."""
        self._questions[message_id] = ReactionQuestion(answers, thread)
        while len(self._questions) > MAX_QUESTIONS:
            del self._questions[next(iter(self._questions))]

    def find(self, message_id: str) -> ReactionQuestion | None:
        """Return the question that a message is; None when it is none."""
        return self._questions.get(message_id)
