"""Claims about presence as clients of two replicas see it. Real broker, real event bus processes."""

import asyncio
import signal
from typing import Any

from nats.aio.client import Client
from valet_event_bus.attendance import Attendance
from valet_event_bus.testing import Bus, Socket, SseReader, handed_over, some_event, stored
from valet_protocol.ids import new_id
from valet_protocol.requests import HandOver
from valet_service import tasks
from valet_service.outbox import Outbox
from valet_service.testing import until


def states(message: dict[str, Any]) -> dict[str, str]:
    assert message["type"] == "presence"
    return {one["user"]: one["state"] for one in message["users"]}


async def sees(client: Socket, expected: dict[str, str]) -> dict[str, Any]:
    """The message in which a client is told just this."""
    return await client.until(lambda message: message["type"] == "presence" and states(message) == expected)


async def test_two_replicas_show_the_same_people_as_they_come_type_and_go(
    bus: Bus, other_bus: Bus, ledger: list[str]
) -> None:
    session = new_id()
    anna = Socket(bus, "anna", "Anna A.")
    await anna.subscribe(session)
    alone = await sees(anna, {"anna": "active"})
    assert alone["session_id"] == session
    assert alone["users"][0]["name"] == "Anna A."
    assert alone["users"][0]["since"].endswith("Z")
    ben = Socket(other_bus, "ben")
    await ben.subscribe(session)
    await sees(ben, {"anna": "active", "ben": "active"})
    await sees(anna, {"anna": "active", "ben": "active"})
    second_tab = Socket(other_bus, "anna")
    await second_tab.subscribe(session)
    await second_tab.send({"type": "presence", "session_id": session, "state": "typing"})
    typing = await sees(ben, {"anna": "typing", "ben": "active"})
    assert [one.get("name") for one in typing["users"]] == ["Anna A.", None]
    await sees(anna, {"anna": "typing", "ben": "active"})
    second_tab.sock.close()
    await sees(anna, {"anna": "active", "ben": "active"})
    await ben.send({"type": "presence", "session_id": session, "state": "idle"})
    await sees(anna, {"anna": "active", "ben": "idle"})
    await ben.send({"type": "unsubscribe", "session_id": session})
    await sees(anna, {"anna": "active"})
    for client in (anna, ben):
        client.sock.close()


async def test_people_of_a_replica_that_stops_in_order_go_at_once(bus: Bus, other_bus: Bus, ledger: list[str]) -> None:
    session = new_id()
    anna, ben = Socket(bus, "anna"), Socket(other_bus, "ben")
    await anna.subscribe(session)
    await ben.subscribe(session)
    await sees(anna, {"anna": "active", "ben": "active"})
    other_bus.end(signal.SIGTERM)
    await sees(anna, {"anna": "active"})
    anna.sock.close()
    ben.sock.close()


async def test_presence_of_a_session_that_is_not_subscribed_is_refused(bus: Bus, ledger: list[str]) -> None:
    client = Socket(bus)
    session = new_id()
    await client.send({"type": "presence", "session_id": session, "state": "typing"})
    message = await client.receive()
    assert (message["session_id"], message["problem"]["code"]) == (session, "not_subscribed")
    await client.send({"type": "presence", "session_id": session, "state": "asleep"})
    assert (await client.receive())["problem"]["code"] == "malformed_message"
    client.sock.close()


async def test_who_may_not_watch_is_not_shown_and_event_streams_hear_nothing_of_presence(
    bus: Bus, outbox: Outbox, ledger: list[str]
) -> None:
    session = new_id()
    await stored(outbox, [some_event(session, 0)])
    reader = SseReader(handed_over(bus.entrance, HandOver(kind="sse", user="carl", session_id=session)))
    await reader.until(lambda r: r.synced_seq is not None)
    stranger, anna = Socket(bus, "somebody-else"), Socket(bus, "anna")
    await stranger.send({"type": "subscribe", "session_id": session})
    assert (await stranger.receive())["type"] == "error"
    await anna.subscribe(session)
    assert states(await anna.receive(presence=True)) == {"anna": "active"}
    (seq,) = await stored(outbox, [some_event(session, 1)])
    await reader.until(lambda r: r.seqs[-1] == seq)
    assert len(reader.seqs) == 2
    reader.close()
    for client in (stranger, anna):
        client.sock.close()


class Viewer:
    """Counts the lists it is shown."""

    def __init__(self, counted: list[bytes]) -> None:
        self._counted = counted

    def present(self, frame: bytes) -> bool:
        self._counted.append(frame)
        return True


async def test_the_more_clients_a_session_has_the_more_seldom_they_are_shown_who_is_here(nc: Client) -> None:
    attendance = Attendance(nc)
    running = asyncio.create_task(attendance.run())
    session, shown = new_id(), list[bytes]()
    viewers = [Viewer(shown) for _ in range(400)]
    for number, viewer in enumerate(viewers):
        attendance.join(session, viewer, f"user-{number}", "", "active")
    for number in range(100):
        attendance.say(session, viewers[0], "typing" if number % 2 else "idle")
        await asyncio.sleep(0.01)
    assert 400 <= len(shown) <= 4 * 400  # five times a second it would be some 2,000
    await tasks.end(running)


async def test_a_client_that_has_not_taken_what_it_got_is_shown_the_present_list_later(nc: Client) -> None:
    attendance = Attendance(nc)
    running = asyncio.create_task(attendance.run())
    session = new_id()

    class Busy(Viewer):
        asked = 0

        def present(self, frame: bytes) -> bool:
            self.asked += 1
            return self.asked > 3 and super().present(frame)

    shown: list[bytes] = []
    busy = Busy(shown)
    attendance.join(session, busy, "anna", "", "active")
    await until(lambda: busy.asked == 2, "it was asked twice")
    attendance.say(session, busy, "typing")
    await until(lambda: shown, "it was shown something")
    assert b'"state":"typing"' in shown[0]
    attendance.leave(session, busy)
    await tasks.end(running)


async def test_a_flood_of_typing_holds_no_event_up(bus: Bus, outbox: Outbox, ledger: list[str]) -> None:
    session = new_id()
    clients = [Socket(bus, f"user-{n}") for n in range(40)]
    for client in clients:
        await client.subscribe(session)
    stop = asyncio.Event()

    async def flood(client: Socket) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            state = "typing" if number % 2 else "idle"
            await client.send({"type": "presence", "session_id": session, "state": state})
            await asyncio.sleep(0.005)

    floods = [asyncio.create_task(flood(client)) for client in clients[1:]]
    latencies: list[float] = []
    lists = 0
    loop = asyncio.get_running_loop()
    for number in range(40):
        began = loop.time()
        (seq,) = await stored(outbox, [some_event(session, number)])
        while True:
            message = await clients[0].receive(presence=True)
            lists += message["type"] == "presence"
            if message["type"] == "events" and message["events"][-1]["seq"] == seq:
                break
        latencies.append(loop.time() - began)
        await asyncio.sleep(0.02)
    stop.set()
    await asyncio.gather(*floods)
    assert sorted(latencies)[len(latencies) // 2] < 0.1  # the machine is shared with other tests
    assert lists < 60  # of the thousands of changes
    for client in clients:
        client.sock.close()
