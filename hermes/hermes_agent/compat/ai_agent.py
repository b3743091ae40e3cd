"""Upstream's `run_agent.AIAgent`: an agent that a plugin or a script talks to. Source: plugin contract §11.2."""

from __future__ import annotations

import contextlib
from typing import Any

from hermes_agent.agent.conversation import Conversation
from hermes_agent.compat.hosting import host
from hermes_agent.core.events import TurnFinished
from hermes_agent.core.ids import new_session_id
from hermes_agent.core.messages import Message
from hermes_agent.policy import NoApprover

__all__ = ["AIAgent"]

IGNORED_ARGUMENTS = ("base_url", "api_key", "api_mode", "acp_command", "command")


class AIAgent:
    """A conversation with the configured model and its tools; nobody can be asked for approval.

    Args:
        model: another model; `provider/model` names the provider, too.
        provider: the model's provider.
        session_id: a session to go on with.
        platform: what hooks see.
        ephemeral_system_prompt: instructions for this agent alone.
        skip_memory: taken and not needed, like every further keyword of upstream's that changes how things are shown.

    Raises:
        ValueError: an endpoint or key is given: those stand in the config, where the operator sees them.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        provider: str | None = None,
        api_mode: str | None = None,
        acp_command: str | None = None,
        acp_args: list[str] | None = None,
        command: str | None = None,
        args: list[str] | None = None,
        model: str = "",
        *,
        session_id: str | None = None,
        platform: str | None = None,
        ephemeral_system_prompt: str | None = None,
        **options: Any,
    ) -> None:
        given = [
            n for n, v in zip(IGNORED_ARGUMENTS, (base_url, api_key, api_mode, acp_command, command), strict=True) if v
        ]
        if given:
            raise ValueError(
                f"AIAgent({', '.join(given)}=…) is not taken: put the endpoint into `providers` of the config and"
                " name it with `provider`"
            )
        self.session_id = session_id or new_session_id()
        self.platform = platform or "cli"
        self.model = f"{provider}/{model}" if provider and model else model
        self._known = session_id is not None
        self._instructions = ephemeral_system_prompt or ""
        self._conversation: Conversation | None = None

    def chat(self, message: str, **options: Any) -> str:
        """Say something and return the answer; waits for it, and must not be called on the core loop."""
        return str(self.run_conversation(message, **options)["final_response"])

    def run_conversation(
        self,
        user_message: str,
        system_message: str | None = None,
        conversation_history: list[dict[str, Any]] | None = None,
        task_id: str | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Say something and return what came of it.

        Args:
            conversation_history: messages in place of the stored ones.
            options: taken and not needed.

        Returns:
            `final_response`, `messages`, `completed`, `interrupted`, `model`, `session_id`, `input_tokens` and
            `output_tokens`.

        Raises:
            UserError: no model can be had.
            ModelError: it does not answer.
        """
        return host().bridge.wait_core(self._run(user_message, system_message, conversation_history))

    def interrupt(self, message: str | None = None) -> None:
        """Stop what runs at the next safe point."""
        if self._conversation is not None:
            self._conversation.interrupt()

    async def _run(self, said: str, system: str | None, history: list[dict[str, Any]] | None) -> dict[str, Any]:
        told = None if history is None else [_message(m) for m in history]
        talk = await host().agent.open(
            self.session_id if self._known else None,
            platform=self.platform,
            approver=NoApprover("in an agent that a plugin started"),
            history=told,
            instructions="\n\n".join(t for t in (system, self._instructions) if t),
            model=self.model or None,
        )
        self.session_id, self._known, self._conversation = talk.session_id, True, talk
        finished: TurnFinished | None = None
        try:
            async with contextlib.aclosing(talk.turn(said)) as events:
                async for event in events:
                    if isinstance(event, TurnFinished):
                        finished = event
            messages = [{"role": m.role, "content": m.content} for m in talk.history]
        finally:
            self._conversation = None
            await talk.close("agent_close")
        assert finished is not None
        return {
            "final_response": finished.text,
            "messages": messages,
            "completed": finished.reason != "interrupted",
            "interrupted": finished.reason == "interrupted",
            "model": finished.model,
            "session_id": talk.session_id,
            "input_tokens": finished.usage.input_tokens,
            "output_tokens": finished.usage.output_tokens,
        }


def _message(raw: dict[str, Any]) -> Message:
    return Message(raw["role"], raw.get("content") or "", (), raw.get("tool_call_id") or "", raw.get("name") or "")
