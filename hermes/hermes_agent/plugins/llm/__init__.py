"""`ctx.llm`: plugins ask the model, with the operator's credentials and within what the operator allows."""
