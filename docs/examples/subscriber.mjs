// Prints every message the agents complete, in all sessions, and goes on where it stopped.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { DeliverPolicy, jetstream } from "@nats-io/jetstream";
import { connect, credsAuthenticator } from "@nats-io/transport-node";

const { NATS_URL, NATS_CREDS, CURSOR = "cursor" } = process.env; // CURSOR: the last sequence dealt with
let after = existsSync(CURSOR) ? Number(readFileSync(CURSOR, "utf8")) : 0;
const nc = await connect({
  servers: NATS_URL,
  authenticator: NATS_CREDS ? credsAuthenticator(readFileSync(NATS_CREDS)) : undefined,
  maxReconnectAttempts: -1,
});
const log = await jetstream(nc).consumers.get("SESSIONS", {
  filter_subjects: "session.*.*.agent.message_completed",
  deliver_policy: DeliverPolicy.StartSequence,
  opt_start_seq: after + 1,
});
for await (const message of await log.consume({ idle_heartbeat: 1000 })) {
  if (message.seq <= after) continue; // a client that reconnects may start anew
  const event = message.json();
  console.log(message.seq, event.subject, event.data.text);
  writeFileSync(CURSOR, String(message.seq));
  after = message.seq;
}
