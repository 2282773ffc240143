"""Every limit and time-out of knowledge, each with its reason. Seconds unless the name says otherwise."""

MEMORIES = 2_000
"""Memories of one person: more is a pile that nobody tidies, and of the longest ones this is 32 MB."""

SEARCH_WORDS = 32
"""Different words of one search that count: a question in full has about ten."""

OWNERS_KEPT = 10_000
"""Sessions whose owner is remembered: far more than are awake at once, some 5 MB."""

DATABASE_CONNECTIONS = 2
"""A request takes milliseconds; one may wait for another of the same person while a third is answered."""

DATABASE_ANSWER = 8.0
"""For one request while the database restarts (a second or two): an agent waits 15 s for the whole."""

ANSWERS_KEPT = 24 * 3600
"""How long the answer to a request is kept for when it comes again: a runner gives up after minutes."""

PRUNE_EVERY = 3600.0
"""Between two removals of old answers: an index scan that mostly finds little."""
