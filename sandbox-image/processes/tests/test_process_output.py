"""Output by byte offset: much of it, many clients, slow ones, what was dropped. A real service, real programs."""

import asyncio
import contextlib
import hashlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from valet_processes import limits, registry
from valet_processes.app import serving
from valet_processes.client import Connection, ProcessesClient
from valet_processes.testing import ProcessService
from valet_protocol.errors import Unprocessable
from valet_protocol.sandbox_spec import ProcessesSpec

WAIT = 60.0
SIZE = {"rows": 24, "cols": 80}

# seq: every line differs from every other, so anything lost, doubled or out of place changes the digest
LINES_50_MB = "1 6750000"
BYTES_50_MB = sum(9 * 10**digit * (digit + 2) for digit in range(6)) + (6_750_000 - 999_999) * 8

BYTES_500_000 = sum(9 * 10**digit * (digit + 2) for digit in range(5)) + 400_001 * 7


def expected_digest(first: int, last: int, newline: bytes) -> str:
    digest = hashlib.sha256()
    for start in range(first, last + 1, 10_000):
        digest.update(b"".join(b"%d%s" % (line, newline) for line in range(start, min(start + 10_000, last + 1))))
    return digest.hexdigest()


async def read_all(connection: Connection) -> bytes:
    async with asyncio.timeout(WAIT):
        return b"".join([piece.data async for piece in connection])


def file_names(folder: Path, id: str) -> list[str]:
    return [path.name for path in folder.glob(f"{id}.*")]


async def ended(processes: ProcessesClient, key: str) -> None:
    deadline = time.monotonic() + WAIT
    while (await processes.get(key)).status == "running":
        assert time.monotonic() < deadline, "does not end"
        await asyncio.sleep(0.02)


async def written(processes: ProcessesClient, key: str, size: int) -> None:
    deadline = time.monotonic() + WAIT
    while (await processes.get(key)).output_bytes < size:
        assert time.monotonic() < deadline, "not written"
        await asyncio.sleep(0.02)


async def test_50_mb_of_output_reach_a_client_that_reads_with_nothing_lost(processes: ProcessesClient):
    info = await processes.create(command="sh", args=["-c", f"read go; exec seq {LINES_50_MB}"])
    digest, size = hashlib.sha256(), 0
    async with processes.connect(info.id) as connection, asyncio.timeout(WAIT):
        await connection.write(b"go\n")
        async for piece in connection:
            assert piece.offset == size
            digest.update(piece.data)
            size += len(piece.data)
        assert connection.exited
        assert (connection.exited.exit_code, connection.exited.offset) == (0, size)
    assert size == BYTES_50_MB > 50_000_000
    assert digest.hexdigest() == expected_digest(1, 6_750_000, b"\n")


async def test_the_same_through_a_terminal(processes: ProcessesClient):
    info = await processes.create(command="sh", args=["-c", "read go; exec seq 1 400000"], pty=SIZE)
    async with processes.connect(info.id) as connection:
        await connection.write(b"go\n")
        got = await read_all(connection)
    assert got.startswith(b"go\r\n")
    assert hashlib.sha256(got[4:]).hexdigest() == expected_digest(1, 400_000, b"\r\n")


async def test_five_clients_and_one_that_comes_and_goes_all_get_everything(processes: ProcessesClient):
    script = "read go; i=0; while [ $i -lt 60 ]; do seq $((i*2000)) $((i*2000+1999)); i=$((i+1)); sleep 0.005; done"
    info = await processes.create(command="sh", args=["-c", script])

    async def follow() -> bytes:
        async with processes.connect(info.id) as connection:
            return await read_all(connection)

    async def come_and_go() -> bytes:
        got = b""
        async with asyncio.timeout(WAIT):
            while True:
                async with processes.connect(info.id, offset=len(got)) as connection:
                    assert (connection.hello.offset, connection.hello.dropped) == (len(got), 0)
                    begin = len(got)
                    async for piece in connection:
                        got += piece.data
                        if len(got) > begin + 50_000:
                            break
                    else:
                        assert connection.exited
                        return got

    everything = b"".join(b"%d\n" % number for number in range(120_000))
    following = asyncio.gather(*[follow() for _ in range(5)], come_and_go())
    await processes.input(info.id, data="go\n")
    for got in await following:
        assert len(got) == len(everything)
        assert got == everything


async def test_an_overflowed_ring_says_how_much_was_dropped_and_gives_the_rest(processes: ProcessesClient):
    info = await processes.create(command="sh", args=["-c", "seq 1 500000; exec cat"])
    whole = b"".join(b"%d\n" % number for number in range(1, 500_001))
    await written(processes, info.id, len(whole))
    async with processes.connect(info.id) as connection:
        hello = connection.hello
        assert hello.offset == hello.dropped > 0
        assert len(whole) - hello.offset > limits.RING_BYTES // 2
        await connection.control(type="close_stdin")
        assert await read_all(connection) == whole[hello.offset :]
    async with processes.connect(info.id, offset=len(whole) - 10) as connection:
        assert (connection.hello.offset, connection.hello.dropped) == (len(whole) - 10, 0)
        assert await read_all(connection) == whole[-10:]
    piece = await processes.output(info.id, 100)
    assert piece.offset == hello.offset
    assert piece.data == whole[hello.offset :]
    with pytest.raises(Unprocessable, match="only"):
        async with processes.connect(info.id, offset=len(whole) + 1):
            pass


async def test_kept_output_can_be_read_whole_from_any_offset(
    processes: ProcessesClient, shared_service: ProcessService
):
    script = "seq 1 400000; echo problem >&2; seq 400001 500000"
    info = await processes.create(command="sh", args=["-c", script], keep_output=True)
    whole = b"".join(b"%d\n" % number for number in range(1, 400_001)) + b"problem\n"
    whole += b"".join(b"%d\n" % number for number in range(400_001, 500_001))
    async with processes.connect(info.id) as connection:
        pieces = [piece async for piece in connection]
    # the two pipes are read as they fill, so where among the numbers the word comes is not said
    assert b"".join(piece.data for piece in pieces if piece.stream == 2) == b"problem\n"
    assert b"".join(piece.data for piece in pieces if piece.stream == 1) == whole.replace(b"problem\n", b"")
    got = b"".join(piece.data for piece in pieces)
    files = Path(shared_service.spec.spool_dir)
    assert file_names(files, info.id)
    for offset in (0, 1234, len(got) - limits.RING_BYTES - 5, len(got) - 3):
        piece = await processes.output(info.id, offset)
        assert (piece.offset, piece.data) == (offset, got[offset:])
    assert (await processes.output(info.id, 0, stream="stderr")).data == b"problem\n"
    async with processes.connect(info.id, offset=77) as connection:
        assert (connection.hello.offset, connection.hello.dropped) == (77, 0)
        assert await read_all(connection) == got[77:]
    await processes.delete(info.id)
    assert not file_names(files, info.id), "it goes with the record"


@contextlib.asynccontextmanager
async def in_this_process(folder: Path, patience: float) -> AsyncIterator[ProcessesClient]:
    spec = ProcessesSpec(
        socket=str(folder / "p.sock"),
        workspace=str(folder),
        spool_dir=str(folder / "spool"),
        environment={"PATH": os.environ["PATH"]},
    )
    async with serving(spec, adopts=False, patience=patience), ProcessesClient(spec.socket) as client:
        yield client


async def test_a_client_that_does_not_read_is_cut_and_resumes_and_others_get_everything(tmp_path: Path):
    async with in_this_process(tmp_path, patience=3.0) as processes:
        info = await processes.create(command="sh", args=["-c", "read go; exec seq 1 500000"])
        whole = b"".join(b"%d\n" % number for number in range(1, 500_001))
        async with processes.connect(info.id) as slow, processes.connect(info.id) as quick:
            await processes.input(info.id, data="go\n")
            assert await read_all(quick) == whole
            assert quick.exited
            # now it reads: all that was sent before it was cut, in order
            got = await read_all(slow)
            assert slow.exited is None
            assert slow.socket.close_code == 1013
            assert got == whole[: slow.offset]
            assert len(got) < len(whole) - limits.RING_BYTES // 2
        async with processes.connect(info.id, offset=slow.offset) as again:
            assert again.hello.offset == slow.offset + again.hello.dropped
            assert again.hello.dropped > 0
            assert await read_all(again) == whole[again.hello.offset :]


async def test_a_client_that_reads_slower_than_the_process_writes_loses_nothing(tmp_path: Path):
    async with in_this_process(tmp_path, patience=WAIT) as processes:
        info = await processes.create(command="sh", args=["-c", "read go; exec seq 1 500000"])
        digest, since = hashlib.sha256(), 0
        async with processes.connect(info.id) as connection, asyncio.timeout(WAIT):
            await connection.write(b"go\n")
            async for piece in connection:
                digest.update(piece.data)
                since += len(piece.data)
                if since > 300_000:
                    since = 0
                    await asyncio.sleep(0.1)
            assert connection.exited
        assert digest.hexdigest() == expected_digest(1, 500_000, b"\n")


async def test_who_starts_a_process_and_connects_next_misses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "FIRST_CLIENT_WAIT", WAIT)
    async with in_this_process(tmp_path, patience=WAIT) as processes:
        info = await processes.create(command="seq", args=["1", "500000"])
        await written(processes, info.id, limits.RING_BYTES // 2)
        async with processes.connect(info.id) as connection:
            assert hashlib.sha256(await read_all(connection)).hexdigest() == expected_digest(1, 500_000, b"\n")


async def test_a_client_is_never_told_of_an_end_it_has_not_read_up_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        registry, "give_up_output", lambda records: [kept.info.id for kept in records if kept.exited_ms]
    )
    async with in_this_process(tmp_path, patience=WAIT) as processes:
        info = await processes.create(command="sh", args=["-c", "read go; exec seq 1 150000"])
        # a WebSocket by hand: the library's takes megabytes before anybody reads
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "p.sock"))
        writer.write(
            f"GET /v1/processes/{info.id}/connect HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
        )
        got = await asyncio.wait_for(reader.readuntil(b'"hello"'), WAIT)
        await processes.input(info.id, data="go\n")
        await ended(processes, info.id)
        async with asyncio.timeout(WAIT):
            while b"connect again with your offset" not in got:
                got += await reader.read(1 << 16)
        writer.close()
        assert b'"exited"' not in got
        assert b"\n150000\n" not in got
        async with processes.connect(info.id, offset=10) as again:
            assert again.hello.offset == 10 + again.hello.dropped == 938_895
            assert await read_all(again) == b""
            assert again.exited


async def test_nothing_stays_open_of_processes_and_clients_that_are_gone(tmp_path: Path):
    async with in_this_process(tmp_path, patience=WAIT) as processes:
        await ended(processes, (await processes.create(command="true")).id)
        before = len(os.listdir("/proc/self/fd"))
        for request in ({}, {"pty": SIZE}, {"keep_output": True}) * 4:
            info = await processes.create(command="sh", args=["-c", "read x; echo $x"], **request)
            async with processes.connect(info.id) as connection:
                await connection.write(b"line\n")
                await read_all(connection)
            await processes.delete(info.id)
        deadline = time.monotonic() + WAIT
        while len(os.listdir("/proc/self/fd")) > before:
            assert time.monotonic() < deadline, "descriptors are left"
            await asyncio.sleep(0.02)


async def test_a_client_that_does_not_read_never_holds_kept_output_up_and_misses_nothing(tmp_path: Path):
    async with in_this_process(tmp_path, patience=1000.0) as processes:
        info = await processes.create(command="seq", args=["1", "500000"], keep_output=True)
        async with processes.connect(info.id) as slow:
            await written(processes, info.id, BYTES_500_000)
            assert hashlib.sha256(await read_all(slow)).hexdigest() == expected_digest(1, 500_000, b"\n")
            assert slow.exited


async def test_a_client_that_only_wants_what_comes_gets_nothing_of_before(processes: ProcessesClient):
    info = await processes.create(command="cat")
    await processes.input(info.id, data="before")
    await written(processes, info.id, 6)
    async with processes.connect(info.id, offset="end") as connection:
        assert (connection.hello.offset, connection.hello.dropped) == (6, 0)
        await processes.input(info.id, data="after", close=True)
        assert await read_all(connection) == b"after"
