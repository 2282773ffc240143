"""Claims about requests between services, on a real broker."""

import asyncio

import msgspec
import pytest
from nats.aio.client import Client
from valet_protocol import subjects
from valet_protocol.errors import Conflict, Problem, TooLarge, Unavailable
from valet_protocol.requests import Authenticate, Identity, Reply
from valet_service import rpc
from valet_service.testing import BrokerProcess

SUBJECT = subjects.service("api", Authenticate.method)
ASK = Authenticate(token="t")
ANSWER = Identity(user="u", name="n", admin=False)


async def yes(request: Authenticate) -> Identity:
    return ANSWER


async def test_an_answer_comes_back_as_its_struct(server: BrokerProcess, nc: Client) -> None:
    await rpc.serve(nc, SUBJECT, Authenticate, yes, queue="api")
    assert await rpc.call(nc, SUBJECT, ASK, Identity) == ANSWER


async def test_a_refusal_comes_back_as_the_same_refusal(server: BrokerProcess, nc: Client) -> None:
    async def refuse(request: Authenticate) -> Identity:
        raise Conflict("already_answered", "Somebody answered this before you.")

    await rpc.serve(nc, SUBJECT, Authenticate, refuse, queue="api")
    with pytest.raises(Conflict, match="Somebody answered") as caught:
        await rpc.call(nc, SUBJECT, ASK, Identity)
    assert caught.value.code == "already_answered"


async def test_a_malformed_request_is_refused_with_400(server: BrokerProcess, nc: Client) -> None:
    await rpc.serve(nc, SUBJECT, Authenticate, yes, queue="api")
    for payload in (b"not json", b'{"token": 7}', b""):
        message = await nc.request(SUBJECT, payload, timeout=5)
        assert message.headers
        assert message.headers[rpc.PROBLEM_HEADER] == "400"
        problem = msgspec.json.decode(message.data, type=Problem)
        assert (problem.status, problem.code) == (400, "malformed_request")


async def test_a_service_that_fails_answers_503_and_goes_on(server: BrokerProcess, nc: Client) -> None:
    failures = [RuntimeError("a bug")]

    async def fail_once(request: Authenticate) -> Identity:
        if failures:
            raise failures.pop()
        return ANSWER

    await rpc.serve(nc, SUBJECT, Authenticate, fail_once, queue="api")
    with pytest.raises(Unavailable) as caught:
        await rpc.call(nc, SUBJECT, ASK, Identity)
    assert caught.value.code == "internal"
    assert "bug" not in str(caught.value)
    assert await rpc.call(nc, SUBJECT, ASK, Identity) == ANSWER


async def test_a_caller_waits_for_a_service_that_is_not_there_yet(server: BrokerProcess, nc: Client) -> None:
    calling = asyncio.create_task(rpc.call(nc, SUBJECT, ASK, Identity))
    await asyncio.sleep(0.2)
    assert not calling.done()
    await rpc.serve(nc, SUBJECT, Authenticate, yes, queue="api")
    assert await asyncio.wait_for(calling, 5) == ANSWER


async def test_a_service_that_never_comes_is_unavailable(server: BrokerProcess, nc: Client) -> None:
    with pytest.raises(Unavailable):
        await rpc.call(nc, SUBJECT, ASK, Identity, timeout=0.3)


async def test_a_call_outlives_a_restart_of_the_broker(server: BrokerProcess, nc: Client) -> None:
    service = await server.connect("service")
    await rpc.serve(service, SUBJECT, Authenticate, yes, queue="api")
    server.kill()
    calling = asyncio.create_task(rpc.call(nc, SUBJECT, ASK, Identity))
    await asyncio.sleep(0)
    server.start()
    assert await asyncio.wait_for(calling, 12) == ANSWER
    await service.close()


async def test_one_of_two_replicas_answers(server: BrokerProcess, nc: Client) -> None:
    answered: list[str] = []

    def replica(name: str):
        async def answer(request: Authenticate) -> Identity:
            answered.append(name)
            return ANSWER

        return answer

    for name in ("a", "b"):
        await rpc.serve(nc, SUBJECT, Authenticate, replica(name), queue="api")
    await asyncio.gather(*(rpc.call(nc, SUBJECT, ASK, Identity) for _ in range(40)))
    assert len(answered) == 40
    assert set(answered) == {"a", "b"}


async def test_a_slow_request_does_not_hold_up_the_next(server: BrokerProcess, nc: Client) -> None:
    release = asyncio.Event()

    async def answer(request: Authenticate) -> Identity:
        if request.token == "slow":
            await release.wait()
        return ANSWER

    await rpc.serve(nc, SUBJECT, Authenticate, answer, queue="api")
    slow = asyncio.create_task(rpc.call(nc, SUBJECT, Authenticate(token="slow"), Identity))
    assert await rpc.call(nc, SUBJECT, ASK, Identity) == ANSWER
    assert not slow.done()
    release.set()
    assert await slow == ANSWER


async def test_an_answer_the_broker_would_not_carry_is_refused_instead_of_awaited(
    server: BrokerProcess, nc: Client
) -> None:
    async def huge(request: Authenticate) -> Identity:
        return Identity(user="u" * (9 << 20), name="", admin=False)

    await rpc.serve(nc, SUBJECT, Authenticate, huge, queue="api")
    with pytest.raises(TooLarge):
        await rpc.call(nc, SUBJECT, ASK, Identity, timeout=5)


async def test_a_request_the_broker_would_not_carry_is_refused_at_once(server: BrokerProcess, nc: Client) -> None:
    with pytest.raises(TooLarge):
        await rpc.call(nc, SUBJECT, Authenticate(token="t" * (9 << 20)), Identity, timeout=5)


class Elsewhere(Reply, frozen=True, kw_only=True):
    """A reply of another version."""

    colour: int


async def test_an_answer_of_another_version_is_said_to_be_one(server: BrokerProcess, nc: Client) -> None:
    await rpc.serve(nc, SUBJECT, Authenticate, yes, queue="api")
    with pytest.raises(Unavailable, match="version"):
        await rpc.call(nc, SUBJECT, ASK, Elsewhere)


async def test_the_headers_of_a_request_are_not_taken_for_those_of_its_answer(
    server: BrokerProcess, nc: Client
) -> None:
    await rpc.serve(nc, SUBJECT, Authenticate, yes, queue="api")
    message = await nc.request(
        SUBJECT, msgspec.json.encode(ASK), timeout=5, headers={rpc.PROBLEM_HEADER: "400", "X": "y"}
    )
    assert not message.headers
