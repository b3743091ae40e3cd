"""What people are asked in a chat, and what their button or reaction stands for. Source: contract §8.2.2, §10.6.

Handlers of Slack's buttons that plugins registered; the Slack adapter binds them. Source: plugin contract §2.2.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes_agent.adapters.registry import SLACK_ACTION
from hermes_agent.core.registry import Registry, StoreGroup

if TYPE_CHECKING:
    from hermes_agent.adapters.base import BasePlatformAdapter

__all__ = [
    "APPROVALS",
    "CHOICE",
    "CONFIRM",
    "ReactionQuestion",
    "ReactionQuestions",
    "SlackAction",
    "SlackActions",
    "answer_text",
    "approval_buttons",
    "approval_text",
    "callbacks_for",
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


ActionId = str | re.Pattern[str] | Mapping[str, Any]
"""An id, a pattern of ids, or constraints: what `slack_bolt.App.action()` takes."""


class SlackAction(NamedTuple):
    """`await callback(ack, body, action)` when somebody uses the button."""

    action_id: ActionId
    callback: Callable[..., Any]
    plugin: str

    @property
    def display_id(self) -> str:
        """The id as people write it."""
        return self.action_id.pattern if isinstance(self.action_id, re.Pattern) else str(self.action_id)


_action_stores: weakref.WeakSet[SlackActions] = weakref.WeakSet()


def callbacks_for(action: Mapping[str, Any]) -> list[Callable[..., Any]]:
    """Return the handlers of a button that somebody pressed.

    Args:
        action: as Slack tells it, with `action_id`, `block_id` and `type`.
    """
    return [
        one.callback
        for known in tuple(_action_stores)
        for one in known.items()
        if _matches_action(one.action_id, action)
    ]


def _matches_action(wanted: Any, action: Mapping[str, Any]) -> bool:
    if not isinstance(wanted, Mapping):
        wanted = {"action_id": wanted}
    told = ((said, str(action.get(key) or "")) for key, said in wanted.items())
    return all(said.search(has) is not None if isinstance(said, re.Pattern) else said == has for said, has in told)


class SlackActions(StoreGroup):
    """In order of registration; two plugins may handle one id."""

    def __init__(self) -> None:
        _action_stores.add(self)
        self._entries: Registry[SlackAction] = Registry(SLACK_ACTION.label)

    def add(self, action_id: Any, callback: Any, *, plugin: str) -> SlackAction:
        """Register a handler; the same plugin's handler for the same id is replaced.

        Raises:
            ValueError: there is no id, or the callback cannot be called.
        """
        if action_id is None or (isinstance(action_id, str) and not action_id.strip()) or action_id == {}:
            raise ValueError(f"a Slack action needs an id: {action_id!r} is none")
        if not isinstance(action_id, (str, re.Pattern, Mapping)):
            raise ValueError(f"a Slack action's id is a text, a compiled pattern or a dict: {action_id!r} is none")
        if not callable(callback):
            raise ValueError(f"the callback of the Slack action {action_id!r} cannot be called: {callback!r}")
        action = SlackAction(action_id, callback, plugin)
        self._entries.add(f"{plugin}: {action_id!r}", action, owner=plugin)
        return action

    def withdraw(self, action: SlackAction) -> bool:
        """Remove one handler, and return whether it was there."""
        return self._entries.withdraw(f"{action.plugin}: {action.action_id!r}", action)

    def items(self) -> list[SlackAction]:
        """Return the handlers."""
        return [action for _, action in self._entries.items()]
