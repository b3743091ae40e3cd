from gateway.config import Platform, PlatformConfig
from gateway.platforms.base import BasePlatformAdapter, MessageEvent, MessageType, SendResult


class ExampleAdapter(BasePlatformAdapter):
    """The chat is two lists: nobody is asked over a network."""

    MAX_MESSAGE_LENGTH = 100

    def __init__(self, config: PlatformConfig):
        super().__init__(config, Platform("example"))
        self.sent = []
        self.typing = 0

    async def connect(self, *, is_reconnect=False):
        if not self._acquire_platform_lock("example-token", self.config.extra.get("token", ""), "This example's token"):
            return False
        self._mark_connected()
        return True

    async def disconnect(self):
        await self.cancel_background_tasks()
        self._release_platform_lock()
        self._mark_disconnected()

    async def send(self, chat_id, content, reply_to=None, metadata=None):
        if not self.is_connected:
            return SendResult(success=False, error="not connected", retryable=True, retry_after=0)
        for part in self.truncate_message(self.format_message(content), self.MAX_MESSAGE_LENGTH):
            self.sent.append((chat_id, part))
        return SendResult(success=True, message_id=str(len(self.sent)))

    async def send_typing(self, chat_id, metadata=None):
        self.typing += 1

    async def get_chat_info(self, chat_id):
        return {"name": f"Room {chat_id}", "type": "dm"}

    async def receive(self, chat_id, user_id, text):
        """Somebody writes."""
        source = self.build_source(chat_id=chat_id, user_id=user_id, user_name="Ann", chat_type="dm")
        await self.handle_message(
            MessageEvent(text=text, message_type=MessageType.TEXT, source=source, message_id=f"m{len(self.sent)}")
        )
