"""Claims about one session over SSE. Real nats-server, real event bus process, real sockets."""

import asyncio
import signal
import time

import msgspec
import pytest
from nats.aio.client import Client
from valet_event_bus import limits
from valet_event_bus.testing import Bus, SseReader, handed_over, some_delta, some_event, stored
from valet_protocol import subjects
from valet_protocol.ids import new_id
from valet_protocol.requests import ArchivedEvent, ArchivePage, HandOver, ReadArchive
from valet_service import rpc
from valet_service.outbox import Outbox
from valet_service.testing import BrokerProcess


def watch(bus: Bus, session_id: str, after: int = 0) -> SseReader:
    return SseReader(handed_over(bus.entrance, HandOver(kind="sse", user="U", session_id=session_id, after=after)))


async def test_history_then_synced_then_live(bus: Bus, outbox: Outbox) -> None:
    session = new_id()
    before = await stored(outbox, [some_event(session, n) for n in range(50)])
    reader = watch(bus, session)
    await reader.until(lambda r: r.synced_seq is not None)
    assert reader.head.startswith(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream")
    assert reader.seqs == before
    assert reader.synced_after == 50
    later = await stored(outbox, [some_event(session, n) for n in range(50)])
    await reader.until(lambda r: len(r.seqs) == 100)
    assert reader.seqs == before + later
    reader.close()


async def test_frames_carry_sequence_type_and_cloud_event(bus: Bus, outbox: Outbox) -> None:
    session = new_id()
    (seq,) = await stored(outbox, [some_event(session, 1)])
    sock = handed_over(bus.entrance, HandOver(kind="sse", user="U", session_id=session, after=0))
    data = b""
    async with asyncio.timeout(5):
        while b"synced" not in data:
            data += await asyncio.get_running_loop().sock_recv(sock, 65536)
    frame = data.partition(b"\r\n\r\n")[2].split(b"\n\n")[0].split(b"\n")
    assert frame[0] == b"id: %d" % seq
    assert frame[1] == b"event: agent.text_completed"
    assert frame[2].startswith(b'data: {"specversion":"1.0","id":')
    sock.close()


async def test_every_cursor_resumes_exactly_once_while_events_are_published(bus: Bus, outbox: Outbox) -> None:
    session, other = new_id(), new_id()
    seqs = await stored(outbox, [some_event(session, n) for n in range(200)])
    stop = asyncio.Event()

    async def publish() -> None:
        number = 200
        while not stop.is_set():
            batch = [some_event(session if n % 3 else other, number + n) for n in range(20)]
            seqs.extend(s for n, s in enumerate(await stored(outbox, batch)) if n % 3)
            number += 20

    publisher = asyncio.create_task(publish())
    readers: list[tuple[int, SseReader]] = []
    for index in range(60):
        cursor = 0 if index == 0 else seqs[-1 - (index * 7) % len(seqs)]
        readers.append((cursor, watch(bus, session, cursor)))
        await asyncio.sleep(0.01)
    stop.set()
    await publisher
    for cursor, reader in readers:
        await reader.until(lambda r: bool(r.seqs) and r.seqs[-1] == seqs[-1] and r.synced_after is not None)
        assert reader.seqs == [seq for seq in seqs if seq > cursor]
        assert reader.synced_after is not None
        reader.close()


async def test_every_cursor_of_a_session_nobody_watches_brings_exactly_what_follows(bus: Bus, outbox: Outbox) -> None:
    for position in range(4):
        session = new_id()
        seqs = await stored(outbox, [some_event(session, n) for n in range(4)])
        reader = watch(bus, session, seqs[position])  # the last event but one is where the hub and history meet
        await reader.until(lambda r: r.synced_seq is not None)
        assert reader.seqs == seqs[position + 1 :]
        reader.close()


async def test_cursor_just_stored_is_not_refused_and_brings_only_what_follows(bus: Bus, outbox: Outbox) -> None:
    session = new_id()
    for number in range(20):
        (seq,) = await stored(outbox, [some_event(session, number)])
        reader = watch(bus, session, seq)
        (following,) = await stored(outbox, [some_event(session, number)])
        await reader.until(lambda r: r.seqs != [] and r.synced_seq is not None)
        assert reader.seqs == [following]
        reader.close()


async def test_history_ends_although_the_deltas_in_it_were_purged(bus: Bus, outbox: Outbox, nc: Client) -> None:
    session = new_id()
    events = [some_delta(session, "M1", n) for n in range(3000)]
    kept = await stored(outbox, [some_event(session, 0)])
    await stored(outbox, events)
    await nc.jetstream().purge_stream(subjects.STREAM, subject=subjects.deltas_of(session, "M1"))
    reader = watch(bus, session)
    await reader.until(lambda r: r.synced_seq is not None, 5)
    assert reader.seqs == kept
    reader.close()


async def test_what_the_stream_no_longer_holds_comes_from_the_archive(bus: Bus, outbox: Outbox, nc: Client) -> None:
    session = new_id()
    events = [some_event(session, n) for n in range(1300)]
    seqs = await stored(outbox, events)
    archive = {seq: event.payload for seq, event in zip(seqs, events, strict=True) if seq <= seqs[1199]}

    async def read_archive(request: ReadArchive) -> ArchivePage:
        found = [seq for seq in archive if request.after < seq < request.before]
        items = [ArchivedEvent(seq=seq, event=msgspec.Raw(archive[seq])) for seq in found[: request.limit]]
        return ArchivePage(items=items, complete=len(found) <= request.limit)

    await rpc.serve(nc, "rpc.ledger.*.read_archive", ReadArchive, read_archive, queue="ledger")
    await nc.flush()
    await nc.jetstream().purge_stream(subjects.STREAM, seq=seqs[1000])
    for after in (0, seqs[700], seqs[999], seqs[1100]):
        reader = watch(bus, session, after)
        await reader.until(lambda r: r.synced_seq is not None)
        assert reader.seqs == [seq for seq in seqs if seq > after]
        reader.close()


async def test_ten_thousand_events_are_replayed_within_two_seconds(bus: Bus, outbox: Outbox) -> None:
    """The benchmark's aim is one second; here the machine is shared with other tests."""
    session = new_id()
    seqs = await stored(outbox, [some_event(session, n, 150) for n in range(10_000)])
    began = time.monotonic()
    reader = watch(bus, session)
    await reader.until(lambda r: r.synced_seq is not None)
    took = time.monotonic() - began
    assert reader.seqs == seqs
    assert took < 2.0
    reader.close()


async def test_event_larger_than_a_history_read_is_delivered(bus: Bus, outbox: Outbox) -> None:
    session = new_id()
    sizes = [10, limits.HISTORY_BYTES * 3, 10, limits.HISTORY_BYTES // 2, limits.HISTORY_BYTES // 2 + 1, 10]
    seqs = await stored(outbox, [some_event(session, n, size) for n, size in enumerate(sizes)])
    reader = watch(bus, session)
    await reader.until(lambda r: r.synced_seq is not None)
    assert reader.seqs == seqs
    reader.close()


async def test_two_hundred_clients_get_everything_in_order(bus: Bus, outbox: Outbox) -> None:
    session = new_id()
    readers = [watch(bus, session) for _ in range(200)]
    tasks = [asyncio.create_task(reader.run()) for reader in readers]
    seqs: list[int] = []
    for part in range(20):
        seqs += await stored(outbox, [some_event(session, part * 25 + n) for n in range(25)])
    for reader in readers:
        await reader.wait(lambda r: len(r.seqs) == 500)
    assert all(reader.seqs == seqs for reader in readers)
    for task, reader in zip(tasks, readers, strict=True):
        task.cancel()
        reader.close()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_client_that_reads_one_byte_a_second_does_not_slow_others_and_can_resume(
    bus: Bus, outbox: Outbox
) -> None:
    session = new_id()
    slow, quick = watch(bus, session), watch(bus, session)
    task = asyncio.create_task(quick.run())
    seqs: list[int] = []
    size = 50_000
    for part in range(20):  # 20 MB: more than any kernel buffer and the limit together
        began = time.monotonic()
        seqs += await stored(outbox, [some_event(session, part * 20 + n, size) for n in range(20)])
        last = seqs[-1]
        await quick.wait(lambda r, last=last: r.seqs[-1:] == [last])
        assert time.monotonic() - began < 3.0
        slow.take(await asyncio.get_running_loop().sock_recv(slow.sock, 1))
    assert quick.seqs == seqs
    task.cancel()
    await slow.until(lambda r: r.ended)  # it was cut
    assert slow.seqs == seqs[: len(slow.seqs)]
    assert len(slow.seqs) < len(seqs)
    again = watch(bus, session, slow.seqs[-1] if slow.seqs else 0)
    await again.until(lambda r: bool(r.seqs) and r.seqs[-1] == seqs[-1])
    assert slow.seqs + again.seqs == seqs
    for reader in (slow, quick, again):
        reader.close()


async def test_a_reader_too_slow_for_history_is_paced_and_not_cut(bus: Bus, outbox: Outbox) -> None:
    session = new_id()
    seqs = await stored(outbox, [some_event(session, n, 50_000) for n in range(300)])  # 15 MB
    reader = watch(bus, session)
    await asyncio.sleep(1.0)  # it does not read at all: the event bus must not gather all of it
    await reader.until(lambda r: r.synced_seq is not None)
    assert reader.seqs == seqs
    reader.close()


async def test_clients_notice_nothing_of_a_killed_broker(bus: Bus, outbox: Outbox, nats: BrokerProcess) -> None:
    session = new_id()
    reader = watch(bus, session)
    task = asyncio.create_task(reader.run())
    seqs = await stored(outbox, [some_event(session, n) for n in range(100)])
    waiting = asyncio.create_task(stored(outbox, [some_event(session, n) for n in range(100, 300)]))
    nats.kill()
    late = watch(bus, session, seqs[49])  # comes while there is no broker
    await asyncio.sleep(0.3)
    nats.start()
    seqs += await waiting
    seqs += await stored(outbox, [some_event(session, n) for n in range(300, 310)])
    await reader.wait(lambda r: len(r.seqs) == 310)
    assert reader.seqs == seqs
    await late.until(lambda r: bool(r.seqs) and r.seqs[-1] == seqs[-1])
    assert late.seqs == seqs[50:]
    task.cancel()
    reader.close()
    late.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_client_resumes_at_the_next_event_bus(bus: Bus, outbox: Outbox, number: int) -> None:
    session = new_id()
    seqs = await stored(outbox, [some_event(session, n) for n in range(100)])
    reader = watch(bus, session)
    await reader.until(lambda r: len(r.seqs) == 100)
    assert bus.end(number) < 2.0
    await reader.until(lambda r: r.ended)
    seqs += await stored(outbox, [some_event(session, n) for n in range(100, 150)])
    bus.start()
    again = watch(bus, session, reader.seqs[-1])
    await again.until(lambda r: r.synced_seq is not None)
    assert reader.seqs + again.seqs == seqs
    again.close()
