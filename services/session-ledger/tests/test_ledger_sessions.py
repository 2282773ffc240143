"""Claims about a ledger process as its clients see it. Real NATS, real PostgreSQL; sandboxes are fake."""

from valet_session_ledger import rebuild
from valet_session_ledger.testing import LedgerProcess, Platform


async def test_a_prompt_becomes_a_turn_and_its_messages_can_be_read(ledger: LedgerProcess, platform: Platform) -> None:
    session_id = await platform.create()
    accepted = await platform.prompt(session_id, "Say hello")
    assert accepted.status == "queued"
    sandbox = await platform.boot(session_id)
    turn_id, prompt_id = await platform.dispatched(session_id)
    assert prompt_id == accepted.prompt_id
    await sandbox.play_turn(turn_id, prompt_id, steps=2, text="Hello")
    view = await platform.until(session_id, "view.status == 'ready' and view.last_turn")
    assert view.last_turn and view.last_turn.status == "completed"
    page = await platform.messages(session_id)
    assert [(item.role, item.text, item.complete) for item in page.items] == [
        ("user", "Say hello", True),
        ("assistant", "Hello", True),
        ("assistant", "Hello", True),
    ]
    assert [part.kind for part in page.items[1].parts] == ["text", "tool"]
    assert page.items[1].parts[1].output == "a\ufffdb"
    assert (view.cost, view.tokens.input) == (0.02, 20)
    await rebuild.verify(ledger.settings)
    assert ledger.stop() == 0
