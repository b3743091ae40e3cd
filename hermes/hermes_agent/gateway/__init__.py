"""Front end for chat platforms: adapter connections, access, sessions in chats, event hooks."""
