"""Claims about what is not there: it is refused, and what was there is not. Real NATS, PostgreSQL and ledger."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from valet_protocol.errors import NotFound, Unprocessable
from valet_protocol.ids import new_id
from valet_protocol.requests import (
    AddParticipant,
    CreateShareLink,
    Done,
    RemoveParticipant,
    ReorderQueue,
    Request,
    RevokeShareLink,
    WithdrawPrompt,
)
from valet_service.config_file import ModelList, ValetConfig, model_list_path, parse
from valet_session_ledger.models import Models
from valet_session_ledger.testing import LedgerProcess, Platform

CONFIG = """
[providers.local]
base_url = "http://127.0.0.1:9/v1"
models = ["one", "two"]

[providers.google]

[providers.openai]
"""


async def test_what_never_was_is_not_found_and_what_is_over_already_is_done(
    ledger: LedgerProcess, platform: Platform
) -> None:
    session_id = await platform.create()
    first, second = [(await platform.prompt(session_id)).prompt_id for _ in range(2)]
    of: dict[str, Any] = {"session_id": session_id, "user": "ada"}
    await platform.ask(AddParticipant(**of, participant="bob", role="viewer"), Done)
    await platform.ask(CreateShareLink(**of, link_id="l", token_sha256="x", role="viewer"), Done)
    real: list[Request] = [
        ReorderQueue(**of, prompt_ids=[second, first]),
        WithdrawPrompt(**of, prompt_id=first),
        ReorderQueue(**of, prompt_ids=[first, second]),
        RemoveParticipant(**of, participant="bob"),
        RevokeShareLink(**of, link_id="l"),
    ]
    for request in [*real, *real]:
        await platform.ask(request, Done)
    stranger = new_id()
    for request, code in (
        (ReorderQueue(**of, prompt_ids=[second, stranger]), "prompt_not_found"),
        (WithdrawPrompt(**of, prompt_id=stranger), "prompt_not_found"),
        (RemoveParticipant(**of, participant=stranger), "participant_not_found"),
        (RevokeShareLink(**of, link_id=stranger), "link_not_found"),
    ):
        with pytest.raises(NotFound) as refusal:
            await platform.ask(request, Done)
        assert refusal.value.code == code


def test_a_model_that_no_provider_has_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    models = Models(parse(CONFIG), tmp_path)
    for known in ("local/one", "google/anything", "openai/whatever"):
        models.check(known)
    listed = model_list_path(tmp_path, "openai")
    listed.parent.mkdir(parents=True)
    listed.write_bytes(msgspec.json.encode(ModelList(agent="1", models=("gpt",))))
    for unknown in ("local/three", "local", "local/", "nobody/one", "openai/whatever"):
        with pytest.raises(Unprocessable, match=r"Known: local/one, local/two, google/\*, openai/gpt\.") as refusal:
            models.check(unknown)
        assert refusal.value.code == "unknown_model"
    Models(ValetConfig(), tmp_path).check("whatever/it is")
