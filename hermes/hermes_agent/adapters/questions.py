"""Questions in chats and their buttons and reactions; Slack action handlers of plugins.

Source: plugin contract §2.2, §8.2.2, §10.6.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hermes_agent.adapters.registry import SLACK_ACTION
from hermes_agent.core.lazy_types import LazyNamedTuple
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
"""The commands that answer an approval request, with the reaction and label of each."""
CHOICE = "choice:"
"""Prefix of the value of a button that is a choice and no command."""
CONFIRM = "confirm-"
"""Prefix of the gateway's ids of confirmations."""
NUMBERS = [f"{number}\ufe0f\u20e3" for number in range(1, 10)]
MAX_QUESTIONS = 100


def approval_buttons(*, permanent: bool, approval_id: str = "", session: bool = True) -> dict[str, tuple[str, str]]:
    """Return reaction and label of the buttons of an approval request, by command.

    Args:
        permanent: whether `always` is offered.
        session: whether `session` is offered.
        approval_id: id of the request, which the commands then answer.
    """
    return {
        f"{command} {approval_id}".strip(): both
        for command, both in APPROVALS.items()
        if (permanent or command != "approve always") and (session or command != "approve session")
    }


def confirmation_buttons(confirm_id: str) -> dict[str, str]:
    """Return the labels of the buttons of a confirmation, by command."""
    return {f"approve {confirm_id}": "Yes", f"always {confirm_id}": "Always", f"cancel {confirm_id}": "Cancel"}


def answer_text(value: str, choice: str) -> str:
    """Return the text that a button stands for: its command, or the choice."""
    return choice if value.startswith(CHOICE) else f"/{value}"


def may_answer(
    adapter: BasePlatformAdapter, value: str, user_id: str, chat_type: str | None = None, chat_id: str | None = None
) -> bool:
    """Return whether a user may press a button; only the sender of a command may confirm it."""
    find_asker = getattr(adapter.gateway_runner, "asker_of", None)
    asker = find_asker(value) if callable(find_asker) else None
    return asker == user_id if asker else adapter._is_sender_authorized(user_id, chat_type, chat_id) is not False


def approval_text(command: str, description: str, *, limit: int) -> str:
    """Return the text of an approval request. `limit`: shown characters of the command."""
    return f"⚠️ The agent wants to {description or 'run this'}:\n```\n{command[:limit]}\n```"


class ReactionQuestion(LazyNamedTuple):
    """A question that is answered by reactions: the answer of each, and the thread of the question."""

    answers: Mapping[str, str]
    thread: str | None = None


class ReactionQuestions:
    """The last questions of an adapter without buttons; users answer them with reactions."""

    def __init__(self) -> None:
        self._questions: dict[str, ReactionQuestion] = {}

    @staticmethod
    def approval_question(
        command: str, description: str, *, permanent: bool, approval_id: str, limit: int, session: bool = True
    ) -> tuple[str, dict[str, str]]:
        """Return the text of an approval request, and the answer of each reaction."""
        offered = approval_buttons(permanent=permanent, approval_id=approval_id, session=session)
        answers = {emoji: f"/{answer}" for answer, (emoji, _) in offered.items()}
        names = approval_buttons(permanent=permanent, session=session)
        legend = ", ".join(f"{emoji} {name}" for name, (emoji, _) in names.items())
        return f"{approval_text(command, description, limit=limit)}\nReact with {legend}.", answers

    @staticmethod
    def choice_question(question: str, choices: Sequence[str] | None) -> tuple[str, dict[str, str]]:
        """Return the text of a question with numbered choices, and the answer of each reaction."""
        offered = [str(choice) for choice in choices or ()]
        lines = [f"❓ {question}", *(f"{number}. {choice}" for number, choice in enumerate(offered, 1))]
        return "\n".join(lines), dict(zip(NUMBERS, offered, strict=False))

    def remember(self, message_id: str, answers: Mapping[str, str], thread: str | None) -> None:
        """Add a question that was sent."""
        self._questions[message_id] = ReactionQuestion(answers, thread)
        while len(self._questions) > MAX_QUESTIONS:
            del self._questions[next(iter(self._questions))]

    def find(self, message_id: str) -> ReactionQuestion | None:
        """Return the question of a message, or None."""
        return self._questions.get(message_id)


ActionId = str | re.Pattern[str] | Mapping[str, Any]
"""An id, a pattern of ids, or constraints: the argument of `slack_bolt.App.action()`."""


class SlackAction(LazyNamedTuple):
    """A registered handler: `await callback(ack, body, action)` when a user presses the button."""

    action_id: ActionId
    callback: Callable[..., Any]
    plugin: str

    @property
    def display_id(self) -> str:
        """The id as text."""
        return self.action_id.pattern if isinstance(self.action_id, re.Pattern) else str(self.action_id)


_action_stores: weakref.WeakSet[SlackActions] = weakref.WeakSet()


def callbacks_for(action: Mapping[str, Any]) -> list[Callable[..., Any]]:
    """Return the handlers of a button that a user pressed.

    Args:
        action: the action of Slack, with its `action_id` and `type`.
    """
    return [
        item.callback
        for store in tuple(_action_stores)
        for item in store.items()
        if _matches_action(item.action_id, action)
    ]


def _matches_action(wanted: Any, action: Mapping[str, Any]) -> bool:
    if not isinstance(wanted, Mapping):
        wanted = {"action_id": wanted}
    pairs = ((pattern, str(action.get(key) or "")) for key, pattern in wanted.items())
    return all(p.search(value) is not None if isinstance(p, re.Pattern) else p == value for p, value in pairs)


class SlackActions(StoreGroup):
    """Store of Slack action handlers in order of registration; two plugins may handle the same id."""

    def __init__(self) -> None:
        _action_stores.add(self)
        self._entries: Registry[SlackAction] = Registry(SLACK_ACTION.label)

    def add(self, action_id: Any, callback: Any, *, plugin: str) -> SlackAction:
        """Register a handler; it replaces the handler of the same plugin for the same id.

        Raises:
            ValueError: the id is missing or invalid, or the callback is not callable.
        """
        if action_id is None or (isinstance(action_id, str) and not action_id.strip()) or action_id == {}:
            raise ValueError(f"invalid id of a Slack action: {action_id!r}")
        if not isinstance(action_id, (str, re.Pattern, Mapping)):
            raise ValueError(
                f"invalid id of a Slack action: {action_id!r}: expected a text, a compiled pattern or a dict"
            )
        if not callable(callback):
            raise ValueError(f"the callback of Slack action {action_id!r} is not callable: {callback!r}")
        action = SlackAction(action_id, callback, plugin)
        self._entries.add(f"{plugin}: {action_id!r}", action, owner=plugin)
        return action

    def withdraw(self, action: SlackAction) -> bool:
        """Remove one handler, and return whether it was there."""
        return self._entries.withdraw(f"{action.plugin}: {action.action_id!r}", action)

    def items(self) -> list[SlackAction]:
        """Return the handlers."""
        return [action for _, action in self._entries.items()]
