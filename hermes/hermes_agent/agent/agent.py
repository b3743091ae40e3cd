"""The agent: opens conversations, and ends them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_agent.agent.services import ConversationServices
from hermes_agent.agent.session_lifecycle import BOUNDARY
from hermes_agent.agent.settings import SubagentPolicy
from hermes_agent.agent.subagents import DelegationSettings, Subagents
from hermes_agent.agent.system_prompt import SystemPrompt
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.messages import Message, new_session_id
from hermes_agent.memory.manager import InitialMemory
from hermes_agent.policy import Approver
from hermes_agent.sessions import LOCAL, StoredSession, session_denied

if TYPE_CHECKING:
    from hermes_agent.agent.conversation import Conversation


@lazy_dataclass(kw_only=True, eq=False)
class Agent(ConversationServices):
    """Opens conversations. One object serves the process."""

    delegation: DelegationSettings = field(default_factory=DelegationSettings)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.subagents = Subagents(self, self.delegation, self.open, self.find_open)
        self.open_conversations: set[Conversation] = set()
        self._conversation_class: type[Conversation] | None = None

    async def open(
        self,
        session_id: str | None = None,
        *,
        platform: str,
        approver: Approver,
        history: Sequence[Message] | None = None,
        instructions: str = "",
        model: str | None = None,
        cwd: Path | None = None,
        keep: bool = True,
        principal: str = LOCAL,
        parent: str = "",
        after: str = "",
        toolsets: Collection[str] | None = None,
        subagent_policy: SubagentPolicy | None = None,
    ) -> Conversation:
        """Open a session: the stored one of that id, or a new one.

        Args:
            principal: the identity of the caller: `local`, `api_server`, or `PLATFORM:USER`. A new session belongs
                to it.
            parent: the session that delegated a task to this new one, which is a subagent's.
            cwd: the working directory, resolved; None takes `AgentSettings.cwd`.
            subagent_policy: the limits of that subagent.
            after: the open session that this new one replaces (`Conversation.replace` follows).
            toolsets: the toolsets that the model is shown; None allows all that the operator enabled.
            session_id: None makes a new id; an unknown id starts a session of that id.
            history: the caller's own transcript, in place of the stored one.
            instructions: added to the system prompt of a new session.
            keep: whether messages are stored.

        Raises:
            UserError: no model is available, the state cannot be read, or the session has another principal.
        """
        if self._conversation_class is None:
            self._conversation_class = await self.bridge.run(_import_conversation)
        chosen = self.choose_model(model)
        conversation = self._conversation_class(
            services=self,
            on_close=self._forget,
            session_id=session_id or new_session_id(),
            chosen=chosen,
            requested_model=model,
            platform=platform,
            approver=approver,
            cwd=cwd or self.settings.cwd,
            is_stored=keep,
            principal=principal,
            parent=parent,
            toolsets=toolsets,
            subagent_policy=subagent_policy,
        )
        stored = await self.load_if_allowed(session_id, principal) if keep and session_id else None
        if stored is not None:
            conversation.resume(stored, self.sent_texts(conversation.session_id))
        remembered = await self._load_memory(conversation, after, is_new=stored is None)
        if stored is None:
            made = await self.bridge.run(self._prompt, conversation, instructions, remembered)
            conversation.system_prompt = made.text
            conversation.notices += made.notices
        conversation.notices += remembered.notices
        if history is not None:
            conversation.history = list(history)
        self.open_conversations.add(conversation)
        self.injected.open(conversation.session_id)
        if stored is not None and subagent_policy is None:
            try:
                await self.subagents.recover(conversation.session_id)
            except BaseException:
                await conversation.close(BOUNDARY)
                raise
        return conversation

    def find_open(self, session_id: str) -> Conversation | None:
        """Return the open conversation of a session, or None if there is none."""
        return next((c for c in self.open_conversations if session_id and c.session_id == session_id), None)

    def _forget(self, conversation: Conversation, *, is_final: bool) -> None:
        """Note that a conversation is closed. `is_final`: its session is not resumed soon."""
        self.open_conversations.discard(conversation)
        self.running_turns.discard(conversation.running_turn)
        if is_final:
            self.subagents.cancel_background(conversation.session_id)

    async def load_if_allowed(self, session_id: str, principal: str) -> StoredSession | None:
        """Return a stored session, or None if there is none of that id.

        Raises:
            UserError: the session has another principal.
        """
        stored: StoredSession | None = await self.call_transcript("load", session_id)
        if stored is not None and stored.principal not in self.principals.visible_to(principal):
            raise session_denied(session_id, principal)
        return stored

    async def release_memory(self) -> None:
        """Drop what idle sessions keep in memory; the store has all of it."""
        self.drop_caches()
        await self.call_transcript("drop_cache")
        await self.context_engines.end_idle({conversation.session_id for conversation in self.open_conversations})
        await self.visits.finalize_all("session_expired")

    async def _load_memory(self, conversation: Conversation, after: str, *, is_new: bool) -> InitialMemory:
        """Return what memory has for a session; a subagent gets none, its task says what it needs."""
        if self.memory is None or conversation.parent:
            return InitialMemory()
        old = self.find_open(after)
        if old is not None:
            await self.memory.on_session_change(after, conversation.session_id, [m.to_dict() for m in old.history])
        return await self.memory.open(
            conversation.session_id,
            conversation.principal,
            platform=conversation.platform,
            is_new=is_new,
            with_provider=conversation.is_stored,
        )

    def _prompt(self, conversation: Conversation, instructions: str, remembered: InitialMemory) -> SystemPrompt:
        memory, skipped = remembered.read()
        self.context_engines.offer_tools(self.tools)
        shown = [d["function"]["name"] for d in conversation.definitions()]
        if self.provenance is not None and memory:
            self.provenance.add_recalled(conversation.session_id, memory)
        made = self.prompt_builder.build(
            shown,
            platform=conversation.platform,
            cwd=conversation.cwd,
            memory=memory,
            instructions=instructions,
            personality="" if conversation.parent else self.personality(conversation.session_id),
            session={
                "session_id": conversation.session_id,
                "model": conversation.model,
                "provider": conversation.provider,
                "platform": conversation.platform,
                "cwd": str(conversation.cwd),
            },
            take=partial(self.mask_and_track, conversation.session_id),
        )
        return made._replace(notices=(*made.notices, *skipped))

    async def aclose(self) -> None:
        """End every conversation and close the transcript."""
        await self.subagents.aclose()
        for conversation in list(self.open_conversations):
            await conversation.close("shutdown")
        await self.context_engines.end()
        if self.memory is not None:
            await self.memory.close()
        await self.visits.finalize_all()
        await self.close_transcript()


def _import_conversation() -> type[Conversation]:
    """Import what a turn needs, in a worker.

    The import takes 0.1 s; a daemon does without it until its first turn.
    """
    from hermes_agent.agent import compaction, compressor  # noqa: F401 - so that the loop does not wait for them
    from hermes_agent.agent.conversation import Conversation
    from hermes_agent.models import client  # noqa: F401 - as these

    return Conversation
