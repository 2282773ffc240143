"""A client that reads one byte a second.

Bug class: one full socket buffer that makes everybody wait, or that grows without bound.
"""

import socket
import threading
from urllib.parse import urlsplit

from harness import checks
from harness.platform import Platform


def test_a_client_that_reads_a_byte_a_second_slows_nobody_and_can_resume(platform: Platform) -> None:
    session = platform.create()["id"]
    address = urlsplit(platform.url)
    assert address.hostname
    assert address.port
    slow = socket.create_connection((address.hostname, address.port))
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.sendall(
        f"GET /api/sessions/{session}/events?after=0 HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {platform.token}\r\n\r\n".encode()
    )
    stop = threading.Event()
    taken = bytearray()

    def dribble() -> None:
        while not stop.wait(1.0):
            try:
                byte = slow.recv(1)
            except OSError:
                return
            if not byte:
                return
            taken.extend(byte)

    thread = threading.Thread(target=dribble, daemon=True)
    thread.start()
    try:
        with platform.follow(session) as follower:
            platform.prompt(session, "stream 3000 words")
            assert follower.wait_type("agent.turn_ended").data["status"] == "completed"
            checks.exactly_once(platform, session, follower)
            last = follower.events[-1].seq
    finally:
        stop.set()
        slow.close()
        thread.join(5)
    assert len(taken) < 200, "it was not slow"
    with platform.follow(session) as resumed:
        resumed.wait(lambda event: event.seq >= last, what="the history after a slow life")
