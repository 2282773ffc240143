"""A typed client of Valet's HTTP API: what the `valet` command is made of, and any Python program may be.

async with Client(Endpoint(url="http://127.0.0.1:8700", token="…")) as client:
    session = await client.create_session(repo="https://example.org/repo.git")
    await client.send_message(session.id, "Fix the failing test")
    async for item in client.follow(session.id):
        ...
"""
