"""Claims about the generated event reference."""

# Walks through a JSON document of any shape.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from valet_protocol import reference, subjects
from valet_protocol.catalogue import EVENTS
from valet_protocol.events.envelope import Envelope
from valet_protocol.struct_docs import describe

DOCS = Path(__file__).parents[3] / "docs"


def test_the_committed_reference_is_the_one_the_catalogue_gives() -> None:
    assert reference.stale(DOCS) == [], "write it with: python -m valet_protocol.reference"


def test_check_names_what_is_stale_and_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["reference", "--docs", str(tmp_path)]
    monkeypatch.setattr("sys.argv", command)
    reference.main()
    assert reference.stale(tmp_path) == []
    (tmp_path / "events.md").write_text("old")
    assert reference.stale(tmp_path) == [tmp_path / "events.md"]
    monkeypatch.setattr("sys.argv", [*command, "--check"])
    with pytest.raises(SystemExit) as caught:
        reference.main()
    assert caught.value.code == 1


@pytest.mark.parametrize(
    "struct", [*dict.fromkeys(line.data for line in EVENTS), Envelope], ids=lambda struct: struct.__name__
)
def test_every_event_and_every_field_says_what_it_means(struct: type[msgspec.Struct]) -> None:
    todo = [struct]
    while todo:
        doc = describe(todo.pop())
        assert doc.meaning
        assert [field.name for field in doc.fields if not field.meaning] == []
        todo += doc.uses


def test_every_event_is_in_the_markdown_with_its_subject() -> None:
    text = reference.markdown()
    for line in EVENTS:
        assert f"\n### {line.type}\n" in text
        assert f"`{reference.address(line)}`" in text
    assert "Version 1 called the prompt's text `text`" in text


def test_every_link_in_the_markdown_leads_to_a_heading() -> None:
    text = reference.markdown()
    headings = {
        line.lstrip("# ").lower().replace(".", "").replace(" ", "-") for line in text.split("\n") if line[:1] == "#"
    }
    targets = {part.partition(")")[0] for part in text.split("](#")[1:]}
    assert targets
    assert targets <= headings


def test_an_address_with_its_parameters_filled_in_is_the_subject_events_are_stored_under() -> None:
    session = "01JABCDEFGHJKMNPQRSTVWXYZ0"
    for line in EVENTS:
        filled = reference.address(line).format(shard=subjects.shard_of(session), session_id=session, message_id="m")
        built = (
            subjects.delta(session, line.name, "m")
            if line.source == "delta"
            else subjects.event(session, line.source, line.name)
        )
        assert filled == built


# -- AsyncAPI 3.0 ------------------------------------------------------------------------------------------


class Ref(msgspec.Struct, forbid_unknown_fields=True):
    ref: str = msgspec.field(name="$ref")


class Channel(msgspec.Struct, forbid_unknown_fields=True):
    address: str
    messages: dict[str, Ref]
    parameters: dict[str, dict[str, str]]


class Operation(msgspec.Struct, forbid_unknown_fields=True):
    action: str
    channel: Ref
    messages: list[Ref]


class Components(msgspec.Struct, forbid_unknown_fields=True):
    messages: dict[str, dict[str, object]]
    schemas: dict[str, dict[str, object]]


class Info(msgspec.Struct, forbid_unknown_fields=True):
    title: str
    version: str
    description: str
    license: dict[str, str]


class Document(msgspec.Struct, forbid_unknown_fields=True):
    """What the AsyncAPI 3.0 specification asks of a document, as far as this one uses it."""

    asyncapi: str
    info: Info
    default_content_type: str = msgspec.field(name="defaultContentType")
    servers: dict[str, dict[str, str]]
    channels: dict[str, Channel]
    operations: dict[str, Operation]
    components: Components


@pytest.fixture(scope="module")
def asyncapi() -> Document:
    return msgspec.json.decode(msgspec.json.encode(reference.asyncapi()), type=Document)


def test_the_document_has_the_structure_of_asyncapi_3(asyncapi: Document) -> None:
    assert asyncapi.asyncapi == "3.0.0"
    assert set(asyncapi.channels) == {line.type for line in EVENTS} == set(asyncapi.components.messages)
    for channel in asyncapi.channels.values():
        for name in channel.parameters:
            assert f"{{{name}}}" in channel.address
        assert channel.address.count("{") == len(channel.parameters)
    for operation in asyncapi.operations.values():
        assert operation.action == "send"
        # AsyncAPI: an operation's messages must be those of its channel, by reference to the channel
        for message in operation.messages:
            assert message.ref.startswith(operation.channel.ref + "/messages/")


def test_every_reference_in_the_document_leads_somewhere() -> None:
    whole = msgspec.json.decode(msgspec.json.encode(reference.asyncapi()))
    references = list(_references(whole))
    assert len(references) > 3 * len(EVENTS)
    for reference_ in references:
        here = whole
        for step in reference_.removeprefix("#/").split("/"):
            assert step in here, reference_
            here = here[step]


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "$ref":
                yield inner
            else:
                yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


def test_a_payloads_schema_says_type_version_and_data(asyncapi: Document) -> None:
    message = asyncapi.components.messages["fact.prompt_accepted"]
    assert message["payload"] == {
        "allOf": [
            {"$ref": "#/components/schemas/Envelope"},
            {
                "type": "object",
                "properties": {
                    "type": {"const": "fact.prompt_accepted"},
                    "dataversion": {"const": 2},
                    "data": {"$ref": "#/components/schemas/PromptAccepted"},
                },
                "required": ["type", "dataversion", "data"],
            },
        ]
    }
    assert asyncapi.components.schemas["PromptAccepted"]["required"] == ["prompt_id", "content", "author", "model"]
