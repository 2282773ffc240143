"""The floor of (a): publisher → core NATS → subscriber → bare socket. Two of its three processes; the reader is ours.

python -m valet_local.bench.pipe        setup: `Setup` with which of the two it is to be
"""

import asyncio
from contextlib import suppress
from typing import Literal

import msgspec
from nats.aio.msg import Msg
from valet_service import broker

from valet_local.bench import wire
from valet_local.bench.child import Commands, Pace, Started, paced, report, serve
from valet_local.bench.stamped import Deltas

SUBJECT = "live.bench.pipe"


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What it is to do, and where the broker is."""

    role: Literal["publisher", "forwarder"]
    nats_url: str
    creds: str


async def _publish(setup: Setup, commands: Commands) -> None:
    nc = await broker.connect(setup.nats_url, name="bench-publisher", creds=setup.creds)
    deltas = Deltas("bench")
    report(Started())

    async def write(count: int) -> None:
        for _ in range(count):
            await nc.publish(SUBJECT, deltas.next().payload)

    while order := await commands.next(Pace):
        report(await paced(order, write))
    await broker.close(nc)


async def _forward(setup: Setup, commands: Commands) -> None:
    nc = await broker.connect(setup.nats_url, name="bench-forwarder", creds=setup.creds)
    readers: set[asyncio.StreamWriter] = set()
    number = 0

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        readers.add(writer)
        writer.write(wire.SYNCED + b"\n")
        with suppress(OSError):
            await reader.read()  # until it goes away
        readers.discard(writer)
        writer.close()

    async def receive(message: Msg) -> None:
        nonlocal number
        number += 1
        data = b"id: %d\nevent: delta.text\ndata: %s\n\n" % (number, message.data)
        for writer in readers:
            writer.write(data)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    await broker.subscribe(nc, SUBJECT, receive)
    await nc.flush()
    report(Started(port=server.sockets[0].getsockname()[1]))
    await commands.next(Pace)
    await broker.close(nc)


async def _main(commands: Commands) -> None:
    setup = await commands.next(Setup)
    if setup is not None:
        await (_publish if setup.role == "publisher" else _forward)(setup, commands)


if __name__ == "__main__":
    serve(_main)
