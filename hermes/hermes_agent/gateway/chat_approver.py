"""Asking in a chat whether a tool may do something, or what somebody means. Source: plugin contract §8.2.2, §10.6.

The question goes out with buttons where the adapter has them (`send_exec_approval`), else as a text; the answer is
`/approve`, `/deny` or a button, which is for its own question alone. Where `/approve` may be meant for a question that
is closed (no answer in time, a restart), it needs the code of the one that is open. Silence is a no.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from hermes_agent.adapters.events import as_send_result, call_optional, call_send
from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.core.calls import accepts, call_supported
from hermes_agent.gateway.adapter_connection import AdapterConnection
from hermes_agent.policy import Choice, PendingQuestion, PendingQuestions, QueuedApprover, Refusal
from hermes_agent.runtime.bridge import Bridge

SEND_S = 30.0
LONGEST_DETAIL = 1500


class ChatApprover:
    """Asks the person of one chat.

    Args:
        chat: where the question is put, with the metadata of a message there.
        on_ask: told true when a question is put, and false when it is settled.
        keep: writes down whether a question of the session waits for its answer.
    """

    def __init__(
        self,
        link: AdapterConnection,
        bridge: Bridge,
        waiting: PendingQuestions[Choice | Refusal],
        questions: PendingQuestions[str],
        session_key: str,
        chat: str,
        metadata: Mapping[str, Any],
        on_ask: Callable[[bool], None],
        keep: Callable[[], Awaitable[None]],
    ) -> None:
        self._link, self._bridge = link, bridge
        self._session_key, self._chat, self._metadata = session_key, chat, dict(metadata)
        self._on_ask, self._keep, self._waiting = on_ask, keep, waiting
        self._questions = questions
        self._queued = QueuedApprover(waiting, session_key, self._announce)

    async def ask(self, request: ApprovalRequest) -> Choice | Refusal:
        """Put the question and wait; who calls sets the deadline."""
        self._on_ask(True)
        await self._without_typing("pause_typing_for_chat")
        try:
            answer = await self._queued.ask(request)
            await self._keep()  # not where it was closed without an answer: then one may still come
            return answer
        except _QuestionNotSent as exc:
            return Refusal(f"BLOCKED: Failed to send approval request to user. Do NOT retry. ({exc})")
        finally:
            self._on_ask(False)
            await self._without_typing("resume_typing_for_chat")

    async def clarify(self, question: str, choices: Sequence[str] = ()) -> str | Refusal:
        """Ask something and wait for the answer (`policy.Clarifier`); who calls sets the deadline.

        The answer is a button, the number of a choice, or the next message of the conversation.
        """
        asked = self._questions.put(self._session_key, question, choices=choices)
        asked.awaiting_text = True
        self._on_ask(True)
        await self._without_typing("pause_typing_for_chat")
        try:
            leading: tuple[tuple[str, Any], ...] = (
                ("chat_id", self._chat),
                ("question", question),
                ("choices", list(choices) or None),
                ("clarify_id", asked.id),
                ("session_key", self._session_key),
            )
            await self._bridge.on_plugin(self._send_clarification(leading), deadline_s=SEND_S)
            return await asked.await_answer()
        except (TimeoutError, _QuestionNotSent) as exc:
            return Refusal(f"the question did not reach the chat: {exc}")
        finally:
            self._questions.drop(asked)
            self._on_ask(False)
            await self._without_typing("resume_typing_for_chat")

    async def _send_clarification(self, leading: tuple[tuple[str, Any], ...]) -> None:
        adapter = self._link.adapter
        value = call_supported(adapter.send_clarify, leading, {"metadata": self._metadata or None})
        result = as_send_result(await value)
        if not result.success:
            raise _QuestionNotSent(result.error or "send_clarify() failed")

    async def _without_typing(self, method: str) -> None:
        """Show no typing while somebody is asked."""
        with contextlib.suppress(Exception):  # `answers` has logged it
            work = call_optional(self._link.adapter, method, self._chat)
            await self._bridge.on_plugin(work, deadline_s=SEND_S)

    async def _announce(self, question: PendingQuestion[Choice | Refusal], request: ApprovalRequest) -> None:
        if not self._link.is_connected:
            raise _QuestionNotSent(f"{self._link.name} is not connected")
        await self._keep()
        try:
            await self._bridge.on_plugin(self._send_question(request, question), deadline_s=SEND_S)
        except _QuestionNotSent:
            raise
        except Exception as exc:
            raise _QuestionNotSent(f"{type(exc).__name__}: {exc}") from exc

    async def _send_question(self, request: ApprovalRequest, question: PendingQuestion[Choice | Refusal]) -> None:
        adapter = self._link.adapter
        detail = request.detail[:LONGEST_DETAIL]
        buttons = getattr(adapter, "send_exec_approval", None)
        unclear = self._waiting.needs_code(self._session_key)
        if callable(buttons) and (not unclear or accepts(buttons, "approval_id")):  # else they answer whatever is open
            offered = {
                "description": request.summary,
                "metadata": self._metadata or None,
                "allow_permanent": request.is_always_offered,
                "allow_session": request.is_lasting,
                "smart_denied": False,
                "approval_id": question.id,
            }
            leading = (("chat_id", self._chat), ("command", detail), ("session_key", self._session_key))
            if as_send_result(await call_supported(buttons, leading, offered)).success:
                return
        sign = getattr(adapter, "typed_command_prefix", "/")
        approve = f"{sign}approve {question.code}" if unclear else f"{sign}approve"
        more = " or ".join(f"{approve} {word}" for word in request.answers if word in ("session", "always"))
        more = f", {more} also what is like it" if more else ""
        who = f"plugin `{request.plugin}`: {request.tool}" if request.plugin else request.tool
        text = (
            f"⚠️ {who} wants to {request.summary}:\n```\n{detail}\n```\n"
            f"{approve} allows it this once{more}; {sign}deny refuses."
        )
        result = await call_send(adapter, self._chat, text, None, self._metadata or None)
        if not result.success:
            raise _QuestionNotSent(result.error or "send() failed")


class _QuestionNotSent(Exception):
    """The question did not reach the chat."""
