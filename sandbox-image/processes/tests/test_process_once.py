"""A request with an Idempotency-Key is done once. A real service, real programs."""

import asyncio
import time
from typing import Any

import pytest
from valet_processes import answers
from valet_processes.answers import Answer, Answers, Asked
from valet_processes.client import ProcessesClient
from valet_processes.testing import ProcessService
from valet_protocol.errors import BadRequest, Unprocessable
from valet_protocol.ids import new_id

WAIT = 60.0


async def post(processes: ProcessesClient, path: str, body: Any, key: str) -> tuple[int, str | None, Any]:
    """Status, whether it says that it was done before, and the answer."""
    url = f"http://processes/v1/processes{path}"
    async with processes.session.post(url, json=body, headers={"Idempotency-Key": key}) as response:
        return response.status, response.headers.get("Idempotency-Replayed"), await response.json()


async def written(processes: ProcessesClient, id: str, wanted: bytes) -> bytes:
    """Its output, once that ends so."""
    deadline = time.monotonic() + WAIT
    while not (data := (await processes.output(id)).data).endswith(wanted):
        assert time.monotonic() < deadline, data
        await asyncio.sleep(0.02)
    return data


async def test_the_same_creation_again_is_the_same_process_and_another_one_is_refused(processes: ProcessesClient):
    body = {"command": "sleep", "args": ["300"]}
    first, again = [await post(processes, "", body, "one") for _ in range(2)]
    assert (first[0], first[1], first[2]["status"]) == (201, None, "running")
    assert again == (201, "true", first[2])
    status, _, refused = await post(processes, "", {**body, "label": "other"}, "one")
    assert (status, refused["code"]) == (422, "idempotency_key_reused")
    assert (await post(processes, "", body, "two"))[2]["id"] != first[2]["id"]
    assert len(await processes.list(status="running")) == 2


async def test_fifty_at_once_with_one_key_are_one_process(processes: ProcessesClient):
    made = await asyncio.gather(*(processes.create("many", command="sleep", args=["300"]) for _ in range(50)))
    assert len({info.id for info in made}) == 1
    assert len(await processes.list(status="running")) == 1


async def test_input_is_typed_once_and_a_signal_is_sent_once(processes: ProcessesClient):
    script = "trap 'echo usr' USR1; echo ready; while read line; do echo got $line; done"
    info = await processes.create(command="bash", args=["-c", script])
    await written(processes, info.id, b"ready\n")
    for _ in range(3):
        await processes.input(info.id, "key", data="a\n")
    assert (await written(processes, info.id, b"got a\n")).count(b"got a") == 1
    for _ in range(3):
        await processes.signal(info.id, "SIGUSR1", "key")
        await written(processes, info.id, b"usr\n")  # before the next: two that wait together are one
    await processes.input(info.id, "other key", data="b\n")
    assert await written(processes, info.id, b"got b\n") == b"ready\ngot a\nusr\ngot b\n"


async def test_a_refusal_of_what_was_asked_is_remembered_and_one_of_the_moment_is_not(processes: ProcessesClient):
    for replayed in (None, "true"):
        status, said, problem = await post(processes, "", {"command": "no-such-program"}, "none")
        assert (status, said, problem["code"]) == (422, replayed, "command_not_found")
    info = await processes.create(command="sleep", args=["300"])
    path = f"/{info.id}/input"
    filled = {"data": "x" * 1_000_000}
    while (await post(processes, path, filled, new_id()))[0] == 200:
        pass
    for _ in range(2):
        status, said, problem = await post(processes, path, filled, "full")
        assert (status, said, problem["code"]) == (429, None, "input_full")
    with pytest.raises(BadRequest) as refused:
        await processes.create("k" * 201, command="true")
    assert refused.value.code == "bad_key"


async def test_a_key_finds_its_process_after_the_service_was_killed(own_service: ProcessService):
    async with ProcessesClient(own_service.spec.socket) as processes:
        first = await processes.create("key", command="sleep", args=["300"])
    own_service.kill()
    own_service.start()
    async with ProcessesClient(own_service.spec.socket) as processes:
        again = await processes.create("key", command="sleep", args=["300"])
        assert (again.id, again.status, again.signal) == (first.id, "exited", "SIGKILL")
        with pytest.raises(Unprocessable):
            await processes.create("key", command="sleep", args=["301"])
        assert len(await processes.list()) == 1


def test_answers_are_bounded_by_count_and_by_size():
    def answer(size: int) -> Answer:
        return Answer(digest="d", status=200, content_type="text/plain", content=bytes(size))

    few, small = Answers(count=2), Answers(size=100)
    for number in range(5):
        few.keep("/", str(number), answer(1))
        small.keep("/", str(number), answer(40))
    for kept in (few, small):
        found = [kept.find("/", Asked(key=str(number), digest="d")) is not None for number in range(5)]
        assert found == [False, False, False, True, True]


@pytest.mark.parametrize("key", ["", " a", "a ", "a\tb", "ä", "k" * 201])
def test_what_is_no_key_is_refused(key: str):
    with pytest.raises(BadRequest):
        answers.check_key(key)
    assert answers.check_key("a key, at most 200 long") == "a key, at most 200 long"
