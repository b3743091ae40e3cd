"""Chat platforms as front doors: who may talk, the life of adapters, sessions in chats, gateway hooks."""
