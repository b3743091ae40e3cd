"""Approvals and clarifications in a chat.

The question is sent with buttons if the adapter supports them (`send_exec_approval`), otherwise as a text. The answer
is `/approve`, `/deny` or a button, which answers its own question only. If `/approve` could refer to a closed question
(time limit, restart), it needs the code of the open question. No answer counts as a refusal.
Source: plugin contract §8.2.2, §10.6.
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
    """Approver that asks the user of one chat.

    Args:
        chat: id of the chat of the question, with the metadata of a message there.
        on_ask: called with True when a question is sent, and with False when it is closed.
        keep: stores whether a question of the session is pending.
    """

    def __init__(
        self,
        connection: AdapterConnection,
        bridge: Bridge,
        waiting: PendingQuestions[Choice | Refusal],
        questions: PendingQuestions[str],
        session_key: str,
        chat: str,
        metadata: Mapping[str, Any],
        on_ask: Callable[[bool], None],
        keep: Callable[[], Awaitable[None]],
    ) -> None:
        self._connection, self._bridge = connection, bridge
        self._session_key, self._chat, self._metadata = session_key, chat, dict(metadata)
        self._on_ask, self._keep, self._waiting = on_ask, keep, waiting
        self._questions = questions
        self._queued = QueuedApprover(waiting, session_key, self._announce)

    async def ask(self, request: ApprovalRequest) -> Choice | Refusal:
        """Ask the question and wait for the answer; the caller sets the deadline."""
        self._on_ask(True)
        await self._without_typing("pause_typing_for_chat")
        try:
            answer = await self._queued.ask(request)
            await self._keep()  # not after a time limit: an answer may still come
            return answer
        except _QuestionNotSent as exc:
            return Refusal(f"BLOCKED: Failed to send approval request to user. Do NOT retry. ({exc})")
        finally:
            self._on_ask(False)
            await self._without_typing("resume_typing_for_chat")

    async def clarify(self, question: str, choices: Sequence[str] = ()) -> str | Refusal:
        """Ask a question and wait for the answer (`policy.Clarifier`); the caller sets the deadline.

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
            return Refusal(f"the question could not be sent: {exc}")
        finally:
            self._questions.drop(asked)
            self._on_ask(False)
            await self._without_typing("resume_typing_for_chat")

    async def _send_clarification(self, leading: tuple[tuple[str, Any], ...]) -> None:
        adapter = self._connection.adapter
        value = call_supported(adapter.send_clarify, leading, {"metadata": self._metadata or None})
        result = as_send_result(await value)
        if not result.success:
            raise _QuestionNotSent(result.error or "send_clarify() failed")

    async def _without_typing(self, method: str) -> None:
        """Show no typing indicator while a question is pending."""
        with contextlib.suppress(Exception):  # `call_optional` logs it
            work = call_optional(self._connection.adapter, method, self._chat)
            await self._bridge.on_plugin(work, deadline_s=SEND_S)

    async def _announce(self, question: PendingQuestion[Choice | Refusal], request: ApprovalRequest) -> None:
        if not self._connection.is_connected:
            raise _QuestionNotSent(f"{self._connection.name} is not connected")
        await self._keep()
        try:
            await self._bridge.on_plugin(self._send_question(request, question), deadline_s=SEND_S)
        except _QuestionNotSent:
            raise
        except Exception as exc:
            raise _QuestionNotSent(f"{type(exc).__name__}: {exc}") from exc

    async def _send_question(self, request: ApprovalRequest, question: PendingQuestion[Choice | Refusal]) -> None:
        adapter = self._connection.adapter
        detail = request.detail[:LONGEST_DETAIL]
        buttons = getattr(adapter, "send_exec_approval", None)
        unclear = self._waiting.needs_code(self._session_key)
        supported = getattr(adapter, "supports_exec_approval_buttons", True)
        supported = supported() if callable(supported) else supported
        if (
            callable(buttons) and supported is not False and (not unclear or accepts(buttons, "approval_id"))
        ):  # otherwise they answer any open question
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
        prefix = getattr(adapter, "typed_command_prefix", "/")
        approve = f"{prefix}approve {question.code}" if unclear else f"{prefix}approve"
        more = " or ".join(f"{approve} {word}" for word in request.answers if word in ("session", "always"))
        more = f", {more} also allows similar calls" if more else ""
        name = f"plugin `{request.plugin}`: {request.tool}" if request.plugin else request.tool
        text = (
            f"⚠️ {name} wants to {request.summary}:\n```\n{detail}\n```\n"
            f"{approve} allows this call{more}; {prefix}deny refuses it."
        )
        result = await call_send(adapter, self._chat, text, None, self._metadata or None)
        if not result.success:
            raise _QuestionNotSent(result.error or "send() failed")


class _QuestionNotSent(Exception):
    """Error: the question could not be sent."""
