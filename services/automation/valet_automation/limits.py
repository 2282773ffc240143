"""Every limit and time-out of automation, each with its reason. Seconds unless the name says otherwise."""

UNFINISHED_TASKS = 1_000
"""Tasks of one person's board that are neither done nor cancelled: nobody, agent or person, reads through more."""

BLOCKERS = 50
"""Tasks one task waits for: more are one piece of work that wants a task of its own."""

FINISHED_KEPT = 90
"""Days a task is kept after it was done or cancelled: long enough to look back over a project's quarter."""

OWNERS_KEPT = 10_000
"""Sessions whose owner is remembered: far more than are awake at once, some 5 MB."""

DATABASE_CONNECTIONS = 2
"""A request takes milliseconds; one may wait for another of the same person while a third is answered."""

DATABASE_ANSWER = 8.0
"""For one request while the database restarts (a second or two): an agent waits 15 s for the whole."""

ANSWERS_KEPT = 24 * 3600
"""How long the answer to a request is kept for when it comes again: a runner gives up after minutes."""

PRUNE_EVERY = 3600.0
"""Between two removals of what is old: an index scan that mostly finds little."""
