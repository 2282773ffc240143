"""`python -m valet_gateway.bench`: what passing through the gateway costs on this machine.

Client, gateway and the program behind it are three processes.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import uvloop
from aiohttp import web

from valet_gateway.testing import START_TIMEOUT, GatewayProcess, Program, folder, spec, token

_PIECE = b"\0" * (1 << 18)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the table."""

    what: str
    value: str


async def _serve(request: web.BaseRequest) -> web.StreamResponse:
    if request.headers.get("Upgrade"):
        ws = web.WebSocketResponse(compress=False)
        await ws.prepare(request)
        async for message in ws:
            await ws.send_bytes(message.data)
        return ws
    if request.method == "PUT":
        got = 0
        async for piece in request.content.iter_any():
            got += len(piece)
        return web.Response(text=str(got))
    left = int(request.query.get("bytes", "2"))
    response = web.StreamResponse()
    response.content_length = left
    await response.prepare(request)
    while left:
        piece = _PIECE[:left]
        await response.write(piece)
        left -= len(piece)
    return response


async def _download(client: aiohttp.ClientSession, url: str, size: int) -> float:
    begun = time.perf_counter()
    got = 0
    async with client.get(f"{url}/?bytes={size}") as response:
        async for piece in response.content.iter_any():
            got += len(piece)
    if got != size:
        raise RuntimeError(f"{got} bytes came of {size}")
    return size / (time.perf_counter() - begun) / 1e6


async def _upload(client: aiohttp.ClientSession, url: str, size: int) -> float:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(size // len(_PIECE)):
            yield _PIECE

    begun = time.perf_counter()
    async with client.put(url + "/", data=pieces()) as response:
        if int(await response.text()) != size // len(_PIECE) * len(_PIECE):
            raise RuntimeError("the upload is not whole")
    return size / (time.perf_counter() - begun) / 1e6


async def _latencies(client: aiohttp.ClientSession, urls: list[str], rounds: int) -> list[float]:
    """The p50 of each URL, milliseconds, asked in turns so that the machine's moods meet all alike."""
    taken: list[list[float]] = [[] for _ in urls]
    for _ in range(rounds):
        for url, times in zip(urls, taken, strict=True):
            begun = time.perf_counter()
            async with client.get(url) as response:
                await response.read()
            times.append(1e3 * (time.perf_counter() - begun))
    return [statistics.median(times) for times in taken]


async def _echoes(client: aiohttp.ClientSession, url: str, sockets: int, messages: int) -> tuple[float, float]:
    """Messages per second over all sockets, and the p50 of one's way there and back, milliseconds."""
    origin = url.rsplit("/", 2)[0] if url.endswith("/vscode/") else url.rstrip("/")
    opened = [await client.ws_connect(url, origin=origin) for _ in range(sockets)]
    times: list[float] = []

    async def one(ws: aiohttp.ClientWebSocketResponse) -> None:
        for _ in range(messages):
            begun = time.perf_counter()
            await ws.send_bytes(b"x" * 64)
            await ws.receive_bytes()
            times.append(1e3 * (time.perf_counter() - begun))

    begun = time.perf_counter()
    await asyncio.gather(*(one(ws) for ws in opened))
    rate = sockets * messages / (time.perf_counter() - begun)
    await asyncio.gather(*(ws.close() for ws in opened))
    return rate, statistics.median(times)


@asynccontextmanager
async def _program() -> AsyncIterator[str]:
    """The program behind, in a process of its own: where it serves."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "valet_gateway.bench", "--serve", stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout
        async with asyncio.timeout(START_TIMEOUT):
            url = (await process.stdout.readline()).decode().strip()
        yield url
    finally:
        process.kill()
        await process.wait()


async def _be_program() -> None:
    async with Program(_serve) as program:
        print(program.target, flush=True)
        await asyncio.Event().wait()


async def measure(size: int, sockets: int, rounds: int) -> list[Row]:
    """All figures. `size`: bytes streamed each way; `rounds`: requests for the latency."""
    rows: list[Row] = []
    with folder() as path:
        async with _program() as direct:
            through = GatewayProcess(spec(Path(path), services={"vscode": direct}))
            everybody = aiohttp.TCPConnector(limit=0)
            jar = aiohttp.CookieJar(unsafe=True)  # cookies of an address, as browsers keep them
            async with through, aiohttp.ClientSession(connector=everybody, cookie_jar=jar) as client:
                url = f"{through.url}/vscode"
                async with client.get(f"{url}/?token={token()}") as response:
                    await response.read()
                await _latencies(client, [url + "/", direct + "/"], 200)  # warm
                p50, p50_direct = await _latencies(client, [url + "/", direct + "/"], rounds)
                rows.append(Row(what="HTTP p50 direct", value=f"{p50_direct:.2f} ms"))
                rows.append(Row(what="HTTP p50 through", value=f"{p50:.2f} ms ({p50 / p50_direct:.1f} x)"))
                before = through.memory()
                down_direct = await _download(client, direct, size)
                down = await _download(client, url, size)
                up = await _upload(client, url, size)
                rows.append(Row(what=f"down, {size >> 20} MiB", value=f"{down:.0f} MB/s (direct {down_direct:.0f})"))
                rows.append(Row(what=f"up, {size >> 20} MiB", value=f"{up:.0f} MB/s"))
                rows.append(Row(what="RSS before", value=f"{before / 1e6:.0f} MB"))
                rows.append(Row(what="RSS at its highest", value=f"{through.memory('VmHWM') / 1e6:.0f} MB"))
                rate_direct, echo_direct = await _echoes(client, direct + "/", sockets, 50)
                rate, echo = await _echoes(client, url + "/", sockets, 50)
                rows.append(Row(what=f"{sockets} WebSockets", value=f"{rate:.0f} echoes/s (direct {rate_direct:.0f})"))
                rows.append(Row(what="their p50", value=f"{echo:.1f} ms (direct {echo_direct:.1f})"))
                _, alone_direct = await _echoes(client, direct + "/", 1, rounds)
                _, alone = await _echoes(client, url + "/", 1, rounds)
                rows.append(
                    Row(
                        what="one WebSocket p50",
                        value=f"{alone:.2f} ms ({alone / alone_direct:.1f} x {alone_direct:.2f})",
                    )
                )
                rows.append(Row(what="RSS after", value=f"{through.memory() / 1e6:.0f} MB"))
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=1024, help="streamed each way")
    parser.add_argument("--sockets", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--serve", action="store_true", help="be the program behind the gateway")
    asked = parser.parse_args()
    if asked.serve:
        uvloop.run(_be_program())
    for row in uvloop.run(measure(asked.mib << 20, asked.sockets, asked.rounds)):
        print(f"{row.what:<24} {row.value}")


if __name__ == "__main__":
    main()
