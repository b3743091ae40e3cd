"""Rules that choose among models (`model.routes`): by task, person, length, pictures, hour and price.

The first rule that applies decides, at the first turn of a session. The session keeps that model, for the provider's
prompt cache. It changes once more, and never back, when a message has pictures, or the conversation grows beyond the
length of a rule.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from hermes_agent.core.caches import LruDict
from hermes_agent.core.errors import UserError
from hermes_agent.models.model_catalog import ModelCatalog
from hermes_agent.models.selection import ModelSelection

logger = logging.getLogger(__name__)

CONVERSATION, JOB = "conversation", "job"
"""Tasks of turns; the others are those of `auxiliary`."""
MOST_SESSIONS = 4096
"""Sessions with a remembered rule."""
CONDITIONS = ("task", "person", "vision", "longer_than", "hours", "max_price")
"""Keys of a rule that are no part of the model's block."""
NO_RULE = -1


class RouteQuestion(NamedTuple):
    """What a rule is compared with."""

    task: str
    person: str = ""
    """Principal of the session."""
    session_id: str = ""
    has_images: bool = False
    tokens: Callable[[], int] = int
    """Returns the approximate tokens of the conversation; called only if a rule needs it."""


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
        self._of_session: LruDict[str, int] = LruDict(MOST_SESSIONS)

    def find(self, question: RouteQuestion) -> ModelSelection | None:
        """Return the model for a turn or a side task, or None if no rule applies."""
        rules: Sequence[Mapping[str, Any]] = self._rules() or ()
        if not rules:
            return None
        known = self._of_session.get(question.session_id) if question.session_id else None
        if known is None or known >= len(rules):
            number, selection = self._first(rules, range(len(rules)), question)
        else:
            number, selection = self._kept(rules, known, question)
        if question.session_id:
            self._of_session[question.session_id] = number
        return selection

    def _first(
        self, rules: Sequence[Mapping[str, Any]], numbers: Sequence[int], question: RouteQuestion
    ) -> tuple[int, ModelSelection | None]:
        for number in numbers:
            if self._applies(rules[number], question) and (selection := self._selection(rules[number])) is not None:
                return number, selection
        return NO_RULE, None

    def _kept(
        self, rules: Sequence[Mapping[str, Any]], known: int, question: RouteQuestion
    ) -> tuple[int, ModelSelection | None]:
        """Return the session's rule, or another one that it needs for a picture or its length."""
        present = rules[known] if known != NO_RULE else {}
        needs = [
            number
            for number, rule in enumerate(rules)
            if (question.has_images and rule.get("vision") and not present.get("vision"))
            or (rule.get("longer_than") or 0) > (present.get("longer_than") or 0)
        ]
        number, selection = self._first(rules, needs, question)
        if selection is not None:
            return number, selection
        return known, None if known == NO_RULE else self._selection(present)

    def _applies(self, rule: Mapping[str, Any], question: RouteQuestion) -> bool:
        tasks = [rule["task"]] if rule.get("task") else [CONVERSATION, JOB]
        return (
            question.task in tasks
            and fnmatchcase(question.person, rule.get("person") or "*")
            and (not rule.get("vision") or question.has_images)
            and (not rule.get("hours") or _is_within(rule["hours"], self._now()))
            and (not rule.get("longer_than") or question.tokens() > rule["longer_than"])
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
