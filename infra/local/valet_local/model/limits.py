"""Every limit of the scripted model, each with its reason."""

BODY_BYTES = 32 << 20
"""A request body: OpenCode's largest is the whole conversation, tool outputs of 50 KB each; more is an error."""

BODY_SECONDS = 30.0
"""Between two pieces of a request body: the client is on this machine, so a longer pause means it has died."""

START_SECONDS = 5.0
"""Until the server accepts: measured well under 0.2 s; the rest is for a machine that is busy."""

STOP_SECONDS = 2.0
"""Until the server has stopped: nothing is stored, so there is nothing to wait for but the loop's own tick."""

RECORDS = 512
"""Requests remembered for tests: more than any one test makes; the oldest are forgotten."""

TRIES_REMEMBERED = 4096
"""Steps whose tries are counted: a retry follows its first try within seconds, so old ones may be forgotten."""

FRAMES_PER_WRITE = 32
"""Unpaced frames that go out in one write: at one each, the kernel calls cost more than the frames."""

WORDS_MAX = 200_000
"""Words of one `words` action: about 40 MB of frames; a prompt that asks for more has mistyped."""

PAUSE_MS_MAX = 3_600_000
"""Longest pause of a scenario: one hour outlives every time-out a client could be tested for."""
