"""Prints every message the agents complete, in all sessions, and goes on where it stopped."""

import asyncio
import json
import os
from pathlib import Path

import nats
from nats.js.api import ConsumerConfig, DeliverPolicy

CURSOR = Path(os.environ.get("CURSOR", "cursor"))  # the sequence of the last event dealt with


def deal_with(event: dict, seq: int) -> None:
    print(seq, event["subject"], event["data"]["text"], flush=True)
    CURSOR.write_text(str(seq))


async def main(after: int) -> None:
    creds = os.environ.get("NATS_CREDS")
    nc = await nats.connect(os.environ["NATS_URL"], user_credentials=creds, max_reconnect_attempts=-1)
    start = ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=after + 1, idle_heartbeat=1)
    completed = "session.*.*.agent.message_completed"
    log = await nc.jetstream().subscribe(completed, stream="SESSIONS", ordered_consumer=True, config=start)
    async for message in log.messages:
        seq = message.metadata.sequence.stream
        if seq > after:  # a client that reconnects may start anew
            deal_with(json.loads(message.data), seq)
            after = seq


asyncio.run(main(after=int(CURSOR.read_text()) if CURSOR.exists() else 0))
