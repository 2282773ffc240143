#!PYTHON
"""An OpenCode that only streams: it speaks the part of OpenCode 1.18's wire format that the runner reads.

Used by the benchmarks and nowhere else. It is a program of its own: copied into the sandbox as `opencode`, with its
first line naming the Python to run it, and so it imports nothing of Valet's. A prompt is an order:

    stream RATE SECONDS    paced `message.part.delta` frames; each delta's text is `@<monotonic ns> `, the moment
                           before its frame is written
    anything else          an answer of one word, at once
"""

import asyncio
import base64
import json
import os
import signal
import sys
import time
from urllib.parse import urlsplit

VERSION = "stand-in"
SESSION = "ses_standin"
LEAD = 0.5
"""Seconds between a prompt and its first frame: whoever measures is reading by then."""


class Standin:
    """One conversation and whoever listens to it."""

    def __init__(self, password: str) -> None:
        self.admitted = "authorization: basic " + base64.b64encode(f"opencode:{password}".encode()).decode()
        self.listeners: set[asyncio.StreamWriter] = set()
        self.messages: list[dict[str, object]] = []
        self.busy = False
        self.running: asyncio.Task[None] | None = None

    def say(self, kind: str, properties: dict[str, object]) -> None:
        """One frame to every listener, as a chunk of its own."""
        frame = b"data: " + json.dumps({"type": kind, "properties": properties}).encode() + b"\n\n"
        chunk = b"%x\r\n%s\r\n" % (len(frame), frame)
        for writer in self.listeners:
            writer.write(chunk)

    async def play(self, prompt: str, user_id: str) -> None:
        """Answer a prompt."""
        self.busy = True
        message_id = f"msg_{int(user_id[4:16], 16) + 1:012x}zzzzzzzzzzzzzz"
        part_id = f"prt_{message_id[4:]}"
        info: dict[str, object] = {
            "id": message_id,
            "role": "assistant",
            "sessionID": SESSION,
            "time": {"created": time.time_ns() // 1_000_000},
            "providerID": "scripted",
            "modelID": "scripted-1",
        }
        part: dict[str, object] = {"id": part_id, "messageID": message_id, "sessionID": SESSION, "type": "text"}
        self.say("session.status", {"sessionID": SESSION, "status": {"type": "busy"}})
        self.say("message.updated", {"info": info})
        self.say("message.part.updated", {"part": {**part, "text": "", "time": {"start": 1}}})
        text = "done"
        order = prompt.split()
        if order[:1] == ["stream"]:
            text = await self.stream(float(order[1]), float(order[2]), message_id, part_id)
        part = {**part, "text": text, "time": {"start": 1, "end": 2}}
        info = {**info, "time": {"created": 1, "completed": 2}, "finish": "stop"}
        self.messages = [{"info": info, "parts": [part]}]
        self.say("message.part.updated", {"part": part})
        self.say("message.updated", {"info": info})
        self.busy = False
        self.say("session.status", {"sessionID": SESSION, "status": {"type": "idle"}})
        self.say("session.idle", {"sessionID": SESSION})

    async def stream(self, rate: float, seconds: float, message_id: str, part_id: str) -> str:
        """Frames at a steady pace; the whole text."""
        await asyncio.sleep(LEAD)
        texts: list[str] = []
        began = time.monotonic()
        for number in range(int(rate * seconds)):
            wait = began + number / rate - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            text = f"@{time.monotonic_ns()} "
            texts.append(text)
            ids = {"sessionID": SESSION, "messageID": message_id, "partID": part_id}
            self.say("message.part.delta", {**ids, "field": "text", "delta": text})
        return "".join(texts)

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, object]:
        """Status and JSON for a request that is not the stream."""
        session = {"id": SESSION, "title": "Stand-in"}
        if path == "/global/health":
            return 200, {"healthy": True, "version": VERSION}
        if path.endswith("/prompt_async"):
            prompt = json.loads(body)
            self.running = asyncio.ensure_future(self.play(prompt["parts"][0]["text"], prompt["messageID"]))
            return 204, None
        if path.endswith("/abort"):
            return 200, True
        if path == "/session/status":
            return 200, {SESSION: {"type": "busy"}} if self.busy else {}
        if path.endswith("/message"):
            return 200, self.messages
        if path in ("/question", "/permission") or path.endswith("/children"):
            return 200, []
        if path == "/session" or path == f"/session/{SESSION}":
            return 200, session
        return 404, {"name": "NotFoundError", "data": {"message": f"{method} {path}"}}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, kept alive."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                method, target, _ = head.split(" ", 2)
                path = urlsplit(target).path
                length = 0
                for line in head.lower().split("\r\n"):
                    if line.startswith("content-length:"):
                        length = int(line.partition(":")[2])
                body = await reader.readexactly(length)
                if not any(line[:21].lower() + line[21:] == self.admitted for line in head.split("\r\n")):
                    writer.write(b"HTTP/1.1 401 X\r\ncontent-length: 0\r\n\r\n")
                    continue
                if path == "/event":
                    writer.write(
                        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                    )
                    self.listeners.add(writer)
                    self.say("server.connected", {})
                    await reader.read()
                    return
                status, answer = self.answer(method, path, body)
                content = b"" if answer is None else json.dumps(answer).encode()
                writer.write(
                    b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
                    % (status, len(content), content)
                )
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self.listeners.discard(writer)
            writer.close()


async def main() -> None:
    """`opencode serve …`: until SIGTERM."""
    standin = Standin(password=sys.stdin.readline().strip())
    server = await asyncio.start_server(standin.serve, "127.0.0.1", 0)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    print(f"opencode server listening on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await stop.wait()
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(main())
