"""Rules that choose among models (`model.routes`): by task, person, length, pictures, hour and price.

The first rule that applies decides, at the first turn of a session. The session keeps that model, for the provider's
prompt cache: the rule is stored with it. It changes once more, and never back, when a message has pictures, or the
conversation grows beyond the length of a rule. A rule that the config no longer has decides nothing.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any

from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.messages import Message
from hermes_agent.models.model_catalog import ModelCatalog
from hermes_agent.models.selection import ModelSelection

logger = logging.getLogger(__name__)

CONVERSATION, JOB = "conversation", "job"
"""Tasks of turns; the others are those of `auxiliary`."""
CONDITIONS = ("task", "person", "vision", "longer_than", "hours", "max_price")
"""Keys of a rule that are no part of the model's block."""
NO_RULE = "none"
"""Stands for the rule of a session to which none applied."""


class RouteQuestion(LazyNamedTuple):
    """What a rule is compared with."""

    task: str
    person: str = ""
    """Principal of the session."""
    kept: str = ""
    """Id of the session's rule, `NO_RULE`, or "" if none is decided."""
    history: Sequence[Message] = ()
    """The conversation without the new messages."""
    new: Sequence[Message] = ()

    @property
    def tokens(self) -> int:
        """Approximate tokens of the conversation."""
        return sum(len(message.text) for message in chain(self.history, self.new)) // 4


class RouteChoice(LazyNamedTuple):
    """The rule of a session, and its model."""

    rule: str
    """Id of the rule, or `NO_RULE`; "" without any rules."""
    selection: ModelSelection | None


def rule_id(rule: Mapping[str, Any]) -> str:
    """Return a digest of a rule: it names the rule as long as its text is the same."""
    text = json.dumps({key: value for key, value in rule.items() if value is not None}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def has_images(messages: Iterable[Message]) -> bool:
    """Return whether a message has a picture."""
    return any(part.get("type") == "image_url" for m in messages if isinstance(m.content, list) for part in m.content)


class ModelRoutes:
    """Finds the model of a rule.

    Args:
        rules: returns the present `model.routes`.
        select: returns the selection of a block in the form of `model`.
        infos: prices of models.
        now: returns the local time.
    """

    def __init__(
        self,
        rules: Callable[[], Any],
        select: Callable[[Mapping[str, Any]], ModelSelection],
        infos: ModelCatalog,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        self._rules, self._select, self._infos, self._now = rules, select, infos, now

    def find(self, question: RouteQuestion) -> RouteChoice:
        """Return the rule and the model for a turn or a side task."""
        rules: Sequence[Mapping[str, Any]] = self._rules() or ()
        if not rules:
            return RouteChoice("", None)
        present = next((rule for rule in rules if question.kept == rule_id(rule)), None)
        if present is None and question.kept != NO_RULE:
            return self._first(rules, question, has_images(chain(question.history, question.new)))
        return self._kept(rules, present or {}, question)

    def selections(self) -> Iterator[tuple[int, ModelSelection]]:
        """Yield the model of each rule that can be used, with the rule's place."""
        for number, rule in enumerate(self._rules() or ()):
            if (selection := self._selection(rule)) is not None:
                yield number, selection

    def _first(self, rules: Iterable[Mapping[str, Any]], question: RouteQuestion, sees: bool) -> RouteChoice:
        for rule in rules:
            if self._applies(rule, question, sees) and (selection := self._selection(rule)) is not None:
                return RouteChoice(rule_id(rule), selection)
        return RouteChoice(NO_RULE, None)

    def _kept(
        self, rules: Sequence[Mapping[str, Any]], present: Mapping[str, Any], question: RouteQuestion
    ) -> RouteChoice:
        """Return the session's rule, or another one that it needs for a new picture or its length."""
        sees = has_images(question.new or question.history[-1:])
        needs = (
            rule
            for rule in rules
            if (sees and rule.get("vision") and not present.get("vision"))
            or (rule.get("longer_than") or 0) > (present.get("longer_than") or 0)
        )
        choice = self._first(needs, question, sees)
        if choice.selection is not None:
            return choice
        return RouteChoice(question.kept, self._selection(present) if present else None)

    def _applies(self, rule: Mapping[str, Any], question: RouteQuestion, sees: bool) -> bool:
        tasks = [rule["task"]] if rule.get("task") else [CONVERSATION, JOB]
        return (
            question.task in tasks
            and fnmatchcase(question.person, rule.get("person") or "*")
            and (not rule.get("vision") or sees)
            and (not rule.get("hours") or _is_within(rule["hours"], self._now()))
            and (not rule.get("longer_than") or question.tokens > rule["longer_than"])
        )

    def _selection(self, rule: Mapping[str, Any]) -> ModelSelection | None:
        """Return the model of a rule, or None if it is not available or costs more than the rule allows."""
        block = {key: value for key, value in rule.items() if key not in CONDITIONS and value is not None}
        block["default"] = block.pop("model", "")
        try:
            selection = self._select(block)
        except UserError as exc:
            logger.warning("model.routes: rule skipped: %s: %s", rule.get("provider") or rule.get("model"), exc)
            return None
        limit = rule.get("max_price")
        if limit is None:
            return selection
        own = selection.client_profile
        price = self._infos.known_info(selection.endpoint, selection.model).output_price
        price = 0.0 if own is not None and own.is_free else price
        return selection if price is not None and price * 1e6 <= limit else None


def _is_within(hours: str, now: datetime) -> bool:
    begin, _, end = hours.partition("-")
    time = now.strftime("%H:%M")
    return begin <= time < end if begin <= end else (time >= begin or time < end)
