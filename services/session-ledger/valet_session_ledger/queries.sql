-- Every statement of the session ledger, by name. `$n` are parameters.
-- Upserts take one array for each column. Their values are absolute and an older row never replaces a newer one, so a
-- second replica, or the same batch again, does no harm.

-- name: ensure_checkpoints
-- Shards that were never read begin at 0.
INSERT INTO ledger.checkpoints (shard, seq) SELECT shard, 0 FROM unnest($1::integer[]) AS r (shard)
ON CONFLICT DO NOTHING

-- name: checkpoints
-- How far each shard is projected.
SELECT shard, seq FROM ledger.checkpoints WHERE shard = ANY ($1::integer[])

-- name: lock_checkpoints
-- Begins every projecting transaction: one at a time for a shard, in one order, so there are no deadlocks.
SELECT shard, seq FROM ledger.checkpoints WHERE shard = ANY ($1::integer[]) ORDER BY shard FOR UPDATE

-- name: advance_checkpoints
-- Ends every projecting transaction.
UPDATE ledger.checkpoints SET seq = $2 WHERE shard = ANY ($1::integer[]) AND seq < $2

-- name: archive
-- Events byte for byte; one that is there already is the same one.
INSERT INTO ledger.events (seq, session_id, type, payload)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bytea[])
ON CONFLICT DO NOTHING

-- name: upsert_turns
-- A turn: dispatched, running, then ended. What a row does not say stays.
INSERT INTO ledger.turns AS t (
    session_id, first_seq, seq, turn_id, prompt_id, kind, channel, model, status, error, cost, tokens, started_ms,
    ended_ms, first_token_ms, duration_ms
)
SELECT session_id, first_seq, seq, turn_id, prompt_id, kind, channel, model, status, error::json, cost,
       tokens::json, started_ms, ended_ms, first_token_ms, duration_ms
FROM unnest(
    $1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
    $10::text[], $11::float8[], $12::text[], $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[]
) AS r (
    session_id, first_seq, seq, turn_id, prompt_id, kind, channel, model, status, error, cost, tokens, started_ms,
    ended_ms, first_token_ms, duration_ms
)
ON CONFLICT (session_id, turn_id) DO UPDATE SET
    first_seq = LEAST(t.first_seq, excluded.first_seq), seq = excluded.seq,
    prompt_id = COALESCE(excluded.prompt_id, t.prompt_id), kind = COALESCE(excluded.kind, t.kind),
    channel = COALESCE(excluded.channel, t.channel), model = COALESCE(excluded.model, t.model),
    status = excluded.status, error = COALESCE(excluded.error, t.error), cost = COALESCE(excluded.cost, t.cost),
    tokens = COALESCE(excluded.tokens, t.tokens), started_ms = COALESCE(excluded.started_ms, t.started_ms),
    ended_ms = COALESCE(excluded.ended_ms, t.ended_ms),
    first_token_ms = COALESCE(excluded.first_token_ms, t.first_token_ms),
    duration_ms = COALESCE(excluded.duration_ms, t.duration_ms)
WHERE excluded.seq >= t.seq

-- name: upsert_messages
-- A message begins, and is completed. What is complete stays complete.
INSERT INTO ledger.messages AS t (
    session_id, first_seq, seq, message_id, turn_id, role, author, text, finish, model, cost, tokens, error,
    parent_session, complete, created_ms, place
)
SELECT session_id, first_seq, seq, message_id, turn_id, role, author, text, finish, model, cost, tokens::json,
       error::json, parent_session, complete, created_ms, place
FROM unnest(
    $1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
    $10::text[], $11::float8[], $12::text[], $13::text[], $14::text[], $15::boolean[], $16::bigint[], $17::integer[]
) AS r (
    session_id, first_seq, seq, message_id, turn_id, role, author, text, finish, model, cost, tokens, error,
    parent_session, complete, created_ms, place
)
ON CONFLICT (session_id, message_id) DO UPDATE SET
    first_seq = LEAST(t.first_seq, excluded.first_seq), seq = excluded.seq,
    turn_id = COALESCE(excluded.turn_id, t.turn_id), role = excluded.role,
    author = COALESCE(excluded.author, t.author), text = COALESCE(excluded.text, t.text),
    finish = COALESCE(excluded.finish, t.finish), model = COALESCE(excluded.model, t.model),
    cost = COALESCE(excluded.cost, t.cost), tokens = COALESCE(excluded.tokens, t.tokens),
    error = COALESCE(excluded.error, t.error), parent_session = COALESCE(excluded.parent_session, t.parent_session),
    complete = t.complete OR excluded.complete, created_ms = LEAST(t.created_ms, excluded.created_ms),
    place = COALESCE(excluded.place, t.place)
WHERE excluded.seq >= t.seq

-- name: upsert_parts
-- A part of a message; each event carries the whole part.
INSERT INTO ledger.parts AS t (
    session_id, first_seq, seq, message_id, part_id, kind, text, tool, call_id, status, input, output, title, error,
    started_ms, ended_ms, conversation
)
SELECT session_id, first_seq, seq, message_id, part_id, kind, text, tool, call_id, status, input::json, output, title,
       error, started_ms, ended_ms, conversation
FROM unnest(
    $1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
    $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::bigint[], $16::bigint[], $17::text[]
) AS r (
    session_id, first_seq, seq, message_id, part_id, kind, text, tool, call_id, status, input, output, title, error,
    started_ms, ended_ms, conversation
)
ON CONFLICT (session_id, message_id, part_id) DO UPDATE SET
    first_seq = LEAST(t.first_seq, excluded.first_seq), seq = excluded.seq, kind = excluded.kind,
    text = excluded.text, tool = excluded.tool, call_id = excluded.call_id, status = excluded.status,
    input = excluded.input, output = excluded.output, title = excluded.title, error = excluded.error,
    started_ms = excluded.started_ms, ended_ms = excluded.ended_ms,
    conversation = COALESCE(excluded.conversation, t.conversation)
WHERE excluded.seq >= t.seq

-- name: upsert_prompts
-- A prompt: queued, then in a turn, withdrawn or dropped. What a row does not say stays.
INSERT INTO ledger.prompts AS t (
    session_id, first_seq, seq, prompt_id, content, author, kind, mode, channel, model, attachments, digest, status,
    turn_id, accepted_ms, sender
)
SELECT session_id, first_seq, seq, prompt_id, content, author, kind, mode, channel, model, attachments::json,
       digest, status, turn_id, accepted_ms, sender::json
FROM unnest(
    $1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
    $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::bigint[], $16::text[]
) AS r (
    session_id, first_seq, seq, prompt_id, content, author, kind, mode, channel, model, attachments, digest, status,
    turn_id, accepted_ms, sender
)
ON CONFLICT (session_id, prompt_id) DO UPDATE SET
    first_seq = LEAST(t.first_seq, excluded.first_seq), seq = excluded.seq,
    content = COALESCE(excluded.content, t.content), author = COALESCE(excluded.author, t.author),
    kind = COALESCE(excluded.kind, t.kind), mode = COALESCE(excluded.mode, t.mode),
    channel = COALESCE(excluded.channel, t.channel), model = COALESCE(excluded.model, t.model),
    attachments = COALESCE(excluded.attachments, t.attachments), digest = COALESCE(excluded.digest, t.digest),
    status = excluded.status, turn_id = COALESCE(excluded.turn_id, t.turn_id),
    accepted_ms = COALESCE(excluded.accepted_ms, t.accepted_ms), sender = COALESCE(excluded.sender, t.sender)
WHERE excluded.seq >= t.seq

-- name: upsert_questions
-- A question: open, then answered or dropped. What a row does not say stays.
INSERT INTO ledger.questions AS t (
    session_id, first_seq, seq, question_id, kind, status, questions, due_ms, answers, answered_by, answered_user,
    turn_id
)
SELECT session_id, first_seq, seq, question_id, kind, status, questions::json, due_ms, answers::json, answered_by,
       answered_user, turn_id
FROM unnest(
    $1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[], $9::text[],
    $10::text[], $11::text[], $12::text[]
) AS r (
    session_id, first_seq, seq, question_id, kind, status, questions, due_ms, answers, answered_by, answered_user,
    turn_id
)
ON CONFLICT (session_id, question_id) DO UPDATE SET
    first_seq = LEAST(t.first_seq, excluded.first_seq), seq = excluded.seq, kind = COALESCE(excluded.kind, t.kind),
    status = excluded.status, questions = COALESCE(excluded.questions, t.questions),
    due_ms = COALESCE(excluded.due_ms, t.due_ms), answers = COALESCE(excluded.answers, t.answers),
    answered_by = COALESCE(excluded.answered_by, t.answered_by),
    answered_user = COALESCE(excluded.answered_user, t.answered_user),
    turn_id = COALESCE(excluded.turn_id, t.turn_id)
WHERE excluded.seq >= t.seq

-- name: upsert_diffs
-- The latest diff of a session.
INSERT INTO ledger.diffs AS t (
    session_id, first_seq, seq, base_commit, head_commit, branch, files, patch, truncated
)
SELECT session_id, first_seq, seq, base_commit, head_commit, branch, files::json, patch, truncated
FROM unnest(
    $1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
    $9::boolean[]
) AS r (
    session_id, first_seq, seq, base_commit, head_commit, branch, files, patch, truncated
)
ON CONFLICT (session_id) DO UPDATE SET
    first_seq = LEAST(t.first_seq, excluded.first_seq), seq = excluded.seq, base_commit = excluded.base_commit,
    head_commit = excluded.head_commit, branch = excluded.branch, files = excluded.files, patch = excluded.patch,
    truncated = excluded.truncated
WHERE excluded.seq >= t.seq

-- name: upsert_todos
-- The latest to-do list of a session.
INSERT INTO ledger.todos AS t (
    session_id, first_seq, seq, items
)
SELECT session_id, first_seq, seq, items::json
FROM unnest(
    $1::text[], $2::bigint[], $3::bigint[], $4::text[]
) AS r (
    session_id, first_seq, seq, items
)
ON CONFLICT (session_id) DO UPDATE SET
    first_seq = LEAST(t.first_seq, excluded.first_seq), seq = excluded.seq, items = excluded.items
WHERE excluded.seq >= t.seq

-- name: upsert_usage
-- What a message used.
INSERT INTO ledger.usage AS t (
    session_id, first_seq, seq, message_id, turn_id, model, cost, input, output, reasoning, cache_read, cache_write,
    at_ms
)
SELECT session_id, first_seq, seq, message_id, turn_id, model, cost, input, output, reasoning, cache_read, cache_write,
       at_ms
FROM unnest(
    $1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::float8[], $8::bigint[],
    $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[]
) AS r (
    session_id, first_seq, seq, message_id, turn_id, model, cost, input, output, reasoning, cache_read, cache_write,
    at_ms
)
ON CONFLICT (session_id, message_id) DO UPDATE SET
    first_seq = LEAST(t.first_seq, excluded.first_seq), seq = excluded.seq, turn_id = excluded.turn_id,
    model = excluded.model, cost = excluded.cost, input = excluded.input, output = excluded.output,
    reasoning = excluded.reasoning, cache_read = excluded.cache_read, cache_write = excluded.cache_write,
    at_ms = excluded.at_ms
WHERE excluded.seq >= t.seq

-- name: upsert_switches
-- A turn went on with another model.
INSERT INTO ledger.switches AS t (
    session_id, first_seq, seq, turn_id, from_model, to_model, error
)
SELECT session_id, first_seq, seq, turn_id, from_model, to_model, error::json
FROM unnest(
    $1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[]
) AS r (
    session_id, first_seq, seq, turn_id, from_model, to_model, error
)
ON CONFLICT (session_id, first_seq) DO UPDATE SET
    seq = excluded.seq, turn_id = excluded.turn_id, from_model = excluded.from_model, to_model = excluded.to_model,
    error = excluded.error
WHERE excluded.seq >= t.seq

-- name: upsert_turn_diffs
-- What a turn changed.
INSERT INTO ledger.turn_diffs AS t (
    session_id, first_seq, seq, turn_id, files, patch, truncated
)
SELECT session_id, first_seq, seq, turn_id, files::json, patch, truncated
FROM unnest(
    $1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::boolean[]
) AS r (
    session_id, first_seq, seq, turn_id, files, patch, truncated
)
ON CONFLICT (session_id, turn_id) DO UPDATE SET
    first_seq = LEAST(t.first_seq, excluded.first_seq), seq = excluded.seq, files = excluded.files,
    patch = excluded.patch, truncated = excluded.truncated
WHERE excluded.seq >= t.seq

-- name: upsert_reviews
-- A review by its turn.
INSERT INTO ledger.reviews AS t (
    session_id, first_seq, seq, turn_id, summary, findings
)
SELECT session_id, first_seq, seq, turn_id, summary, findings::json
FROM unnest(
    $1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[]
) AS r (
    session_id, first_seq, seq, turn_id, summary, findings
)
ON CONFLICT (session_id, turn_id) DO UPDATE SET
    first_seq = LEAST(t.first_seq, excluded.first_seq), seq = excluded.seq, summary = excluded.summary,
    findings = excluded.findings
WHERE excluded.seq >= t.seq

-- name: upsert_reverts
-- A conversation was taken back, or was not after all.
INSERT INTO ledger.reverts AS t (
    session_id, first_seq, seq, channel, message_id
)
SELECT session_id, first_seq, seq, channel, message_id
FROM unnest(
    $1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[]
) AS r (
    session_id, first_seq, seq, channel, message_id
)
ON CONFLICT (session_id, first_seq) DO UPDATE SET
    seq = excluded.seq, channel = excluded.channel, message_id = excluded.message_id
WHERE excluded.seq >= t.seq

-- name: upsert_commands
-- A command: requested, then completed, failed or timed out. What a row does not say stays.
INSERT INTO ledger.commands AS t (
    session_id, first_seq, seq, request_id, command, digest, status, result, error, due_ms
)
SELECT session_id, first_seq, seq, request_id, command, digest, status, result::json, error, due_ms
FROM unnest(
    $1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
    $10::bigint[]
) AS r (
    session_id, first_seq, seq, request_id, command, digest, status, result, error, due_ms
)
ON CONFLICT (session_id, request_id) DO UPDATE SET
    first_seq = LEAST(t.first_seq, excluded.first_seq), seq = excluded.seq,
    command = COALESCE(excluded.command, t.command), digest = COALESCE(excluded.digest, t.digest),
    status = excluded.status, result = COALESCE(excluded.result, t.result),
    error = COALESCE(excluded.error, t.error), due_ms = COALESCE(excluded.due_ms, t.due_ms)
WHERE excluded.seq >= t.seq

-- name: upsert_participants
-- Somebody takes part, or does no more.
INSERT INTO ledger.participants AS t (
    session_id, first_seq, seq, user_id, role, link_id, present
)
SELECT session_id, first_seq, seq, user_id, role, link_id, present
FROM unnest(
    $1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::boolean[]
) AS r (
    session_id, first_seq, seq, user_id, role, link_id, present
)
ON CONFLICT (session_id, user_id) DO UPDATE SET
    first_seq = LEAST(t.first_seq, excluded.first_seq), seq = excluded.seq, role = excluded.role,
    link_id = excluded.link_id, present = excluded.present
WHERE excluded.seq >= t.seq

-- name: upsert_links
-- A share link: valid, then revoked. What a row does not say stays.
INSERT INTO ledger.links AS t (
    session_id, first_seq, seq, link_id, role, expires_ms, created_by, revoked
)
SELECT session_id, first_seq, seq, link_id, role, expires_ms, created_by, revoked
FROM unnest(
    $1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::boolean[]
) AS r (
    session_id, first_seq, seq, link_id, role, expires_ms, created_by, revoked
)
ON CONFLICT (session_id, link_id) DO UPDATE SET
    first_seq = LEAST(t.first_seq, excluded.first_seq), seq = excluded.seq, role = COALESCE(excluded.role, t.role),
    expires_ms = COALESCE(excluded.expires_ms, t.expires_ms),
    created_by = COALESCE(excluded.created_by, t.created_by), revoked = excluded.revoked
WHERE excluded.seq >= t.seq

-- name: upsert_turn_parts
-- A picture or a channel reply; told again it is the same one.
INSERT INTO ledger.turn_parts AS t (
    session_id, first_seq, seq, kind, part_id, turn_id, message_id, data
)
SELECT session_id, first_seq, seq, kind, part_id, turn_id, message_id, data::json
FROM unnest(
    $1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[]
) AS r (
    session_id, first_seq, seq, kind, part_id, turn_id, message_id, data
)
ON CONFLICT (session_id, kind, part_id) DO UPDATE SET
    first_seq = LEAST(t.first_seq, excluded.first_seq), seq = excluded.seq, turn_id = excluded.turn_id,
    message_id = excluded.message_id, data = excluded.data
WHERE excluded.seq >= t.seq

-- name: upsert_machine
-- Something in a sandbox, as its runner said last.
INSERT INTO ledger.machine AS t (
    session_id, first_seq, seq, kind, name, epoch, status, data
)
SELECT session_id, first_seq, seq, kind, name, epoch, status, data::json
FROM unnest(
    $1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::integer[], $7::text[], $8::text[]
) AS r (
    session_id, first_seq, seq, kind, name, epoch, status, data
)
ON CONFLICT (session_id, kind, name) DO UPDATE SET
    first_seq = LEAST(t.first_seq, excluded.first_seq), seq = excluded.seq, epoch = excluded.epoch,
    status = excluded.status, data = excluded.data
WHERE excluded.seq >= t.seq

-- name: upsert_sessions
-- A session as it stands; its `first_seq` is not used.
INSERT INTO ledger.sessions AS t (
    session_id, first_seq, seq, owner, title, repo, branch, model, status, status_detail, epoch, turns, active_turn,
    last_turn, policy, source_session, work, created_ms, updated_ms, next_due_ms, at_rest,
    parent, root, ancestors, children, orchestrator, completed
)
SELECT session_id, first_seq, seq, owner, title, repo, branch, model, status, status_detail, epoch, turns,
       active_turn, last_turn, policy::json, source_session, work::json, created_ms, updated_ms, next_due_ms,
       at_rest, parent, root, ancestors::json, children, orchestrator, completed
FROM unnest(
    $1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
    $10::text[], $11::integer[], $12::integer[], $13::text[], $14::text[], $15::text[], $16::text[], $17::text[],
    $18::bigint[], $19::bigint[], $20::bigint[], $21::boolean[], $22::text[], $23::text[],
    $24::text[], $25::integer[], $26::boolean[], $27::text[]
) AS r (
    session_id, first_seq, seq, owner, title, repo, branch, model, status, status_detail, epoch, turns, active_turn,
    last_turn, policy, source_session, work, created_ms, updated_ms, next_due_ms, at_rest,
    parent, root, ancestors, children, orchestrator, completed
)
ON CONFLICT (session_id) DO UPDATE SET
    first_seq = LEAST(t.first_seq, excluded.first_seq), seq = excluded.seq, owner = excluded.owner,
    title = excluded.title, repo = excluded.repo, branch = excluded.branch, model = excluded.model,
    status = excluded.status, status_detail = excluded.status_detail, epoch = excluded.epoch,
    turns = excluded.turns, active_turn = excluded.active_turn, last_turn = excluded.last_turn,
    policy = excluded.policy, source_session = excluded.source_session, work = excluded.work,
    created_ms = excluded.created_ms, updated_ms = excluded.updated_ms, next_due_ms = excluded.next_due_ms,
    at_rest = excluded.at_rest, parent = excluded.parent, root = excluded.root, ancestors = excluded.ancestors,
    children = excluded.children, orchestrator = excluded.orchestrator, completed = excluded.completed
WHERE excluded.seq >= t.seq

-- name: upsert_states
-- The snapshot of a session's state.
INSERT INTO ledger.states AS t (
    session_id, seq, state
)
SELECT session_id, seq, state
FROM unnest(
    $1::text[], $2::bigint[], $3::bytea[]
) AS r (
    session_id, seq, state
)
ON CONFLICT (session_id) DO UPDATE SET
    seq = excluded.seq, state = excluded.state
WHERE excluded.seq >= t.seq

-- name: states
-- Snapshots of some sessions.
SELECT session_id, seq, state FROM ledger.states WHERE session_id = ANY ($1::text[])

-- name: restless
-- Sessions in which something is to be decided, now or at a time.
SELECT session_id, next_due_ms FROM ledger.sessions WHERE NOT at_rest

-- name: going_on
-- Sessions that have not ended, the latest active first: likely to be needed soon.
SELECT session_id FROM ledger.sessions WHERE status NOT IN ('failed', 'terminated') ORDER BY updated_ms DESC LIMIT $1

-- name: deltas_needed_from
-- Where the oldest delta may stand that is still needed: after what is stored, or in the oldest unfinished message of a
-- turn that runs.
SELECT LEAST(
    (SELECT min(seq) + 1 FROM ledger.checkpoints),
    (SELECT min(m.first_seq) FROM ledger.messages AS m
     JOIN ledger.sessions AS s ON s.session_id = m.session_id AND s.active_turn = m.turn_id
     WHERE NOT m.complete)
)

-- name: prompt_receipt
-- What was accepted under a prompt id, however long ago.
SELECT digest, first_seq, CASE WHEN status = 'withdrawn' THEN seq ELSE 0 END AS withdrawn
FROM ledger.prompts WHERE session_id = $1 AND prompt_id = $2 AND digest IS NOT NULL

-- name: prompts_given
-- Which of some prompts were ever given to a session.
SELECT prompt_id FROM ledger.prompts WHERE session_id = $1 AND prompt_id = ANY ($2::text[])

-- name: took_part
-- Whether a user has ever taken part in a session, besides its owner.
SELECT EXISTS (SELECT FROM ledger.participants WHERE session_id = $1 AND user_id = $2)

-- name: command_receipt
-- What was requested under an id, however long ago.
SELECT digest, first_seq FROM ledger.commands WHERE session_id = $1 AND request_id = $2 AND digest IS NOT NULL

-- name: message_target
-- The message a command is about, with its turn's conversation.
SELECT m.role, m.turn_id, t.channel FROM ledger.messages AS m
LEFT JOIN ledger.turns AS t ON t.session_id = m.session_id AND t.turn_id = m.turn_id
WHERE m.session_id = $1 AND m.message_id = $2

-- name: session_owner
-- Whose session it is, and which turn runs in it.
SELECT owner, active_turn FROM ledger.sessions WHERE session_id = $1

-- name: participant_roles
-- As what a user takes part in some sessions that are not theirs, or in one above them. The higher role counts: by good
-- luck it is the first in the alphabet.
SELECT s.session_id, min(p.role) AS role FROM ledger.sessions AS s
JOIN ledger.participants AS p
  ON p.session_id = s.session_id OR p.session_id IN (SELECT json_array_elements_text(s.ancestors))
WHERE s.session_id = ANY ($1::text[]) AND p.user_id = $2 AND p.present
GROUP BY s.session_id

-- name: role_above
-- As what a user takes part in any of some sessions, likewise.
SELECT min(role) FROM ledger.participants WHERE session_id = ANY ($1::text[]) AND user_id = $2 AND present

-- name: living_in_tree
-- Sessions of a tree that have not ended.
SELECT count(*) FROM ledger.sessions
WHERE (root = $1 OR session_id = $1) AND status NOT IN ('failed', 'terminated')

-- name: participants
-- Who takes part in a session besides its owner, in the order in which they came.
SELECT user_id, role, link_id FROM ledger.participants WHERE session_id = $1 AND present ORDER BY first_seq, user_id

-- name: writers
-- A session's owner, and by collaborator of it or of one above it the fact by which they last came in; one row without a
-- collaborator where there is none.
SELECT s.status, s.owner, coalesce(json_array_length(s.ancestors), 0) > 0 AS inherits, p.user_id, min(p.seq) AS since
FROM ledger.sessions AS s
LEFT JOIN ledger.participants AS p
  ON (p.session_id = s.session_id OR p.session_id IN (SELECT json_array_elements_text(s.ancestors)))
 AND p.present AND p.role = 'collaborator'
WHERE s.session_id = $1
GROUP BY s.session_id, p.user_id

-- name: links
-- Share links of a session that are valid now, the oldest first.
SELECT link_id, role, expires_ms, created_by FROM ledger.links
WHERE session_id = $1 AND NOT revoked AND (expires_ms IS NULL OR expires_ms > extract(epoch FROM now()) * 1000)
ORDER BY first_seq

-- name: session
-- One session with the sums of its usage.
SELECT s.*, u.cost, u.input, u.output, u.reasoning, u.cache_read, u.cache_write
FROM ledger.sessions AS s
CROSS JOIN LATERAL (
    SELECT COALESCE(sum(cost), 0) AS cost, COALESCE(sum(input), 0)::bigint AS input,
           COALESCE(sum(output), 0)::bigint AS output, COALESCE(sum(reasoning), 0)::bigint AS reasoning,
           COALESCE(sum(cache_read), 0)::bigint AS cache_read, COALESCE(sum(cache_write), 0)::bigint AS cache_write
    FROM ledger.usage WHERE session_id = s.session_id
) AS u
WHERE s.session_id = $1

-- name: sessions_of
-- A page of the sessions a user owns or takes part in, newest first, below the session $3 (or from the top), with the
-- sums of their usage; $4 is all, active or ended.
WITH mine AS (
    (
        SELECT s.session_id, s.created_ms FROM ledger.sessions AS s
        WHERE s.owner = $1
          AND ($3::text IS NULL
               OR (s.created_ms, s.session_id)
                  < (SELECT b.created_ms, b.session_id FROM ledger.sessions AS b WHERE b.session_id = $3))
          AND ($4 = 'all' OR (s.status IN ('failed', 'terminated')) = ($4 = 'ended'))
        ORDER BY s.created_ms DESC, s.session_id DESC
        LIMIT $2
    )
    UNION
    (
        SELECT s.session_id, s.created_ms FROM ledger.participants AS p
        JOIN ledger.sessions AS s ON s.session_id = p.session_id
        WHERE p.user_id = $1 AND p.present
          AND ($3::text IS NULL
               OR (s.created_ms, s.session_id)
                  < (SELECT b.created_ms, b.session_id FROM ledger.sessions AS b WHERE b.session_id = $3))
          AND ($4 = 'all' OR (s.status IN ('failed', 'terminated')) = ($4 = 'ended'))
        ORDER BY s.created_ms DESC, s.session_id DESC
        LIMIT $2
    )
    ORDER BY created_ms DESC, session_id DESC
    LIMIT $2
)
SELECT s.*, u.cost, u.input, u.output, u.reasoning, u.cache_read, u.cache_write
FROM mine
JOIN ledger.sessions AS s ON s.session_id = mine.session_id
CROSS JOIN LATERAL (
    SELECT COALESCE(sum(cost), 0) AS cost, COALESCE(sum(input), 0)::bigint AS input,
           COALESCE(sum(output), 0)::bigint AS output, COALESCE(sum(reasoning), 0)::bigint AS reasoning,
           COALESCE(sum(cache_read), 0)::bigint AS cache_read, COALESCE(sum(cache_write), 0)::bigint AS cache_write
    FROM ledger.usage WHERE session_id = s.session_id
) AS u
ORDER BY s.created_ms DESC, s.session_id DESC

-- name: children_of
-- A page of the children of a session, newest first, below the session $3 (or from the top), with the sums of their
-- usage; $4 is all, active or ended.
WITH found AS (
    SELECT s.session_id FROM ledger.sessions AS s
    WHERE s.parent = $1
      AND ($3::text IS NULL
           OR (s.created_ms, s.session_id)
              < (SELECT b.created_ms, b.session_id FROM ledger.sessions AS b WHERE b.session_id = $3))
      AND ($4 = 'all' OR (s.status IN ('failed', 'terminated')) = ($4 = 'ended'))
    ORDER BY s.created_ms DESC, s.session_id DESC
    LIMIT $2
)
SELECT s.*, u.cost, u.input, u.output, u.reasoning, u.cache_read, u.cache_write
FROM found
JOIN ledger.sessions AS s ON s.session_id = found.session_id
CROSS JOIN LATERAL (
    SELECT COALESCE(sum(cost), 0) AS cost, COALESCE(sum(input), 0)::bigint AS input,
           COALESCE(sum(output), 0)::bigint AS output, COALESCE(sum(reasoning), 0)::bigint AS reasoning,
           COALESCE(sum(cache_read), 0)::bigint AS cache_read, COALESCE(sum(cache_write), 0)::bigint AS cache_write
    FROM ledger.usage WHERE session_id = s.session_id
) AS u
ORDER BY s.created_ms DESC, s.session_id DESC

-- name: tree_of
-- The same of a whole tree, named by its topmost session.
WITH found AS (
    SELECT s.session_id FROM ledger.sessions AS s
    WHERE (s.root = $1 OR s.session_id = $1)
      AND ($3::text IS NULL
           OR (s.created_ms, s.session_id)
              < (SELECT b.created_ms, b.session_id FROM ledger.sessions AS b WHERE b.session_id = $3))
      AND ($4 = 'all' OR (s.status IN ('failed', 'terminated')) = ($4 = 'ended'))
    ORDER BY s.created_ms DESC, s.session_id DESC
    LIMIT $2
)
SELECT s.*, u.cost, u.input, u.output, u.reasoning, u.cache_read, u.cache_write
FROM found
JOIN ledger.sessions AS s ON s.session_id = found.session_id
CROSS JOIN LATERAL (
    SELECT COALESCE(sum(cost), 0) AS cost, COALESCE(sum(input), 0)::bigint AS input,
           COALESCE(sum(output), 0)::bigint AS output, COALESCE(sum(reasoning), 0)::bigint AS reasoning,
           COALESCE(sum(cache_read), 0)::bigint AS cache_read, COALESCE(sum(cache_write), 0)::bigint AS cache_write
    FROM ledger.usage WHERE session_id = s.session_id
) AS u
ORDER BY s.created_ms DESC, s.session_id DESC

-- name: turns_by_id
-- Some turns. One that its runner did not end has the cost of its messages.
SELECT t.*, u.cost AS used_cost, u.input, u.output, u.reasoning, u.cache_read, u.cache_write
FROM ledger.turns AS t
CROSS JOIN LATERAL (
    SELECT COALESCE(sum(cost), 0) AS cost, COALESCE(sum(input), 0)::bigint AS input,
           COALESCE(sum(output), 0)::bigint AS output, COALESCE(sum(reasoning), 0)::bigint AS reasoning,
           COALESCE(sum(cache_read), 0)::bigint AS cache_read, COALESCE(sum(cache_write), 0)::bigint AS cache_write
    FROM ledger.usage WHERE session_id = t.session_id AND turn_id = t.turn_id
) AS u
WHERE t.session_id = ANY ($1::text[]) AND t.turn_id = ANY ($2::text[])

-- name: turns_after
-- A page of a session's turns in the order of the log, likewise with their usage.
SELECT t.*, u.cost AS used_cost, u.input, u.output, u.reasoning, u.cache_read, u.cache_write
FROM ledger.turns AS t
CROSS JOIN LATERAL (
    SELECT COALESCE(sum(cost), 0) AS cost, COALESCE(sum(input), 0)::bigint AS input,
           COALESCE(sum(output), 0)::bigint AS output, COALESCE(sum(reasoning), 0)::bigint AS reasoning,
           COALESCE(sum(cache_read), 0)::bigint AS cache_read, COALESCE(sum(cache_write), 0)::bigint AS cache_write
    FROM ledger.usage WHERE session_id = t.session_id AND turn_id = t.turn_id
) AS u
WHERE t.session_id = $1 AND t.first_seq > $2 ORDER BY t.first_seq LIMIT $3

-- name: turn_prompts
-- The prompts of some turns.
SELECT session_id, turn_id, prompt_id FROM ledger.prompts
WHERE session_id = ANY ($1::text[]) AND turn_id = ANY ($2::text[]) ORDER BY first_seq

-- name: turn_switches
-- The models that some turns went on with.
SELECT session_id, turn_id, to_model FROM ledger.switches
WHERE session_id = ANY ($1::text[]) AND turn_id = ANY ($2::text[]) ORDER BY first_seq

-- name: turns_of
-- The conversations of some turns of a session, and whether they are over.
SELECT t.turn_id, t.channel, t.status, t.error, t.ended_ms, COALESCE(s.active_turn = t.turn_id, FALSE) AS active
FROM ledger.turns AS t JOIN ledger.sessions AS s ON s.session_id = t.session_id
WHERE t.session_id = $1 AND t.turn_id = ANY ($2::text[])

-- name: turn_diff
-- What a turn changed.
SELECT * FROM ledger.turn_diffs WHERE session_id = $1 AND turn_id = $2

-- name: turns_begun
-- The turns of a session in the order of the log.
SELECT first_seq, channel FROM ledger.turns WHERE session_id = $1 AND first_seq > $2 ORDER BY first_seq

-- name: prompts_after
-- A page of a session's prompts in the order of the log.
SELECT * FROM ledger.prompts WHERE session_id = $1 AND first_seq > $2 ORDER BY first_seq LIMIT $3

-- name: prompts_by_id
-- Some prompts of a session.
SELECT * FROM ledger.prompts WHERE session_id = $1 AND prompt_id = ANY ($2::text[])

-- name: queued_prompts
-- Prompts of some sessions that wait for their turn.
SELECT * FROM ledger.prompts WHERE session_id = ANY ($1::text[]) AND status = 'queued' ORDER BY first_seq

-- name: pending_commands
-- Commands of some sessions without a result.
SELECT * FROM ledger.commands WHERE session_id = ANY ($1::text[]) AND status = 'requested' ORDER BY first_seq

-- name: command
-- One command.
SELECT * FROM ledger.commands WHERE session_id = $1 AND request_id = $2

-- name: review
-- The review of a turn, or the latest one.
SELECT * FROM ledger.reviews WHERE session_id = $1 AND ($2::text IS NULL OR turn_id = $2)
ORDER BY first_seq DESC LIMIT 1

-- name: open_questions
-- Questions of some sessions that wait for an answer.
SELECT * FROM ledger.questions WHERE session_id = ANY ($1::text[]) AND status = 'open' ORDER BY first_seq

-- name: todos
-- To-do lists of some sessions.
SELECT session_id, items FROM ledger.todos WHERE session_id = ANY ($1::text[])

-- name: messages_after
-- A page of a session's messages in the order of the log.
SELECT * FROM ledger.messages WHERE session_id = $1 AND first_seq > $2
ORDER BY first_seq, COALESCE(place, 0) LIMIT $3

-- name: messages_before
-- A page of a session's messages against the order of the log.
SELECT * FROM ledger.messages WHERE session_id = $1 AND first_seq < $2
ORDER BY first_seq DESC, COALESCE(place, 0) DESC LIMIT $3

-- name: messages_by_id
-- Some messages of a session.
SELECT * FROM ledger.messages WHERE session_id = $1 AND message_id = ANY ($2::text[])

-- name: outer_messages_after
-- The same without those that stand under the tool call that started their sub-agent.
SELECT m.* FROM ledger.messages AS m WHERE m.session_id = $1 AND m.first_seq > $2
  AND (m.parent_session IS NULL OR NOT EXISTS (
      SELECT FROM ledger.parts AS p WHERE p.session_id = m.session_id AND p.conversation = m.parent_session
  ))
ORDER BY m.first_seq, COALESCE(m.place, 0) LIMIT $3

-- name: outer_messages_before
-- Likewise, against the order of the log.
SELECT m.* FROM ledger.messages AS m WHERE m.session_id = $1 AND m.first_seq < $2
  AND (m.parent_session IS NULL OR NOT EXISTS (
      SELECT FROM ledger.parts AS p WHERE p.session_id = m.session_id AND p.conversation = m.parent_session
  ))
ORDER BY m.first_seq DESC, COALESCE(m.place, 0) DESC LIMIT $3

-- name: messages_of_conversation_after
-- A page of a sub-agent's messages in the order of the log.
SELECT * FROM ledger.messages WHERE session_id = $1 AND first_seq > $2 AND parent_session = $4
ORDER BY first_seq LIMIT $3

-- name: messages_of_conversation_before
-- Likewise, against the order of the log.
SELECT * FROM ledger.messages WHERE session_id = $1 AND first_seq < $2 AND parent_session = $4
ORDER BY first_seq DESC LIMIT $3

-- name: calls_of
-- The tool calls that started some sub-agents of a session or had them go on, in the order of the log.
SELECT conversation, message_id, part_id, first_seq FROM ledger.parts
WHERE session_id = $1 AND conversation = ANY ($2::text[]) ORDER BY first_seq

-- name: nested_messages
-- What sub-agents ($2) said above some sequences ($3) and up to others ($4), at most $5 of each and $6 of all, with the
-- place of their conversation among those asked for.
SELECT r.place AS call, m.* FROM unnest($2::text[], $3::bigint[], $4::bigint[])
    WITH ORDINALITY AS r (conversation, above, until, place)
CROSS JOIN LATERAL (
    SELECT * FROM ledger.messages AS n
    WHERE n.session_id = $1 AND n.parent_session = r.conversation AND n.first_seq > r.above AND n.first_seq <= r.until
    ORDER BY n.first_seq LIMIT $5
) AS m
ORDER BY r.place, m.first_seq LIMIT $6

-- name: last_words
-- What the agent said last in a session, or in one turn of it.
SELECT text FROM ledger.messages
WHERE session_id = $1 AND role = 'assistant' AND complete AND parent_session IS NULL AND text <> ''
  AND ($2::text IS NULL OR turn_id = $2)
ORDER BY first_seq DESC LIMIT 1

-- name: reverts
-- What was taken back in a session, in the order of the log, with where the message it went back to began. The agent's
-- messages go with the prompt they answer.
SELECT r.first_seq, r.channel, r.message_id, COALESCE(
    (SELECT max(p.first_seq) FROM ledger.messages AS p WHERE p.session_id = m.session_id AND p.turn_id = m.turn_id
     AND p.role = 'user' AND p.first_seq <= m.first_seq),
    m.first_seq
) AS message_seq FROM ledger.reverts AS r
LEFT JOIN ledger.messages AS m ON m.session_id = r.session_id AND m.message_id = r.message_id
WHERE r.session_id = $1 ORDER BY r.first_seq

-- name: parts_of
-- The parts of some messages of a session, each message's in the order in which the agent began them: its part ids sort
-- so, while the log tells of a text when it is whole, after the tool call that follows it.
SELECT * FROM ledger.parts WHERE session_id = $1 AND message_id = ANY ($2::text[]) ORDER BY part_id COLLATE "C"

-- name: turn_parts_of
-- Pictures and channel replies of some messages ($2) of some turns ($3), each with the message it stands in: its own, or
-- the last one of its turn that had begun before it, the agent's if there is one.
SELECT p.*, COALESCE(p.message_id, m.message_id) AS stands_in FROM ledger.turn_parts AS p
LEFT JOIN LATERAL (
    SELECT n.message_id FROM ledger.messages AS n
    WHERE n.session_id = p.session_id AND n.turn_id = p.turn_id AND n.parent_session IS NULL
      AND n.first_seq < p.first_seq
    ORDER BY n.role, n.first_seq DESC, COALESCE(n.place, 0) DESC LIMIT 1
) AS m ON p.message_id IS NULL
WHERE p.session_id = $1 AND (p.message_id = ANY ($2::text[]) OR p.turn_id = ANY ($3::text[]))
ORDER BY p.first_seq

-- name: images_by_id
-- Some pictures of a session.
SELECT part_id, data FROM ledger.turn_parts WHERE session_id = $1 AND kind = 'image' AND part_id = ANY ($2::text[])

-- name: image_shown
-- Whether a picture was shown in a session up to a sequence.
SELECT part_id FROM ledger.turn_parts
WHERE session_id = $1 AND kind = 'image' AND part_id = $2 AND first_seq <= $3

-- name: session_imported
-- How a session that was made of another one began.
SELECT payload FROM ledger.events WHERE session_id = $1 AND type = 'fact.session_imported' ORDER BY seq LIMIT 1

-- name: machine
-- What there is in a session's sandbox: of epoch $2, at most $3 processes that run and $4 that have ended; of tunnels and
-- the boot what was said last, whatever the epoch.
SELECT * FROM ledger.machine
WHERE session_id = $1 AND (kind IN ('tunnels', 'boot_step') OR (kind = 'service' AND epoch = $2))
UNION ALL (
    SELECT * FROM ledger.machine WHERE session_id = $1 AND kind = 'process' AND epoch = $2 AND status = 'running'
    ORDER BY seq DESC LIMIT $3
)
UNION ALL (
    SELECT * FROM ledger.machine WHERE session_id = $1 AND kind = 'process' AND epoch = $2 AND status = 'exited'
    ORDER BY seq DESC LIMIT $4
)

-- name: channels
-- The channels from which people spoke to a session itself, not to one it was made from, the one used last first.
SELECT channel, max(accepted_ms) AS last_used_ms FROM ledger.prompts
WHERE session_id = $1 AND sender IS NULL AND channel IS NOT NULL AND first_seq > COALESCE((
    SELECT max(seq) FROM ledger.events WHERE session_id = $1 AND type = 'fact.import_completed'
), 0)
GROUP BY channel ORDER BY last_used_ms DESC, channel LIMIT $2

-- name: diff
-- The latest diff of a session.
SELECT * FROM ledger.diffs WHERE session_id = $1

-- name: archived
-- Archived events of a session between two sequences, both exclusive.
SELECT seq, type, payload FROM ledger.events
WHERE session_id = $1 AND seq > $2 AND seq < $3 ORDER BY seq LIMIT $4

-- name: archive_from
-- The archive of all sessions in order, for a rebuild: above $1 and up to $2.
SELECT seq, session_id, type, payload FROM ledger.events WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3

-- name: archived_last
-- The newest archived event up to a sequence, whatever its session.
SELECT seq, session_id, type, payload FROM ledger.events WHERE seq <= $1 ORDER BY seq DESC LIMIT 1

-- name: awake
-- Sessions whose runner may be there and read its facts.
SELECT session_id FROM ledger.sessions WHERE status NOT IN ('failed', 'terminated', 'hibernated')

-- name: history
-- Archived events of a session in order: above $2 and up to $3.
SELECT seq, session_id, type, payload FROM ledger.events
WHERE session_id = $1 AND seq > $2 AND seq <= $3 ORDER BY seq LIMIT $4

-- name: history_of_types
-- The same, of some types.
SELECT seq, session_id, type, payload FROM ledger.events
WHERE session_id = $1 AND seq > $2 AND seq <= $3 AND type = ANY ($5::text[]) ORDER BY seq LIMIT $4

-- name: unfinished_imports
-- Sessions whose import was begun, not completed, and not given up.
SELECT b.session_id FROM ledger.events AS b
WHERE b.type = 'fact.session_imported' AND NOT EXISTS (
    SELECT 1 FROM ledger.events AS e
    WHERE e.session_id = b.session_id AND e.type IN ('fact.import_completed', 'fact.session_terminated', 'fact.session_failed')
)
