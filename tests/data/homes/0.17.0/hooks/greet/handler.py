async def handle(event, context):
    pass
