"""The web: `web_search` and `web_extract`, over the providers that plugins register, or a reader of our own."""
