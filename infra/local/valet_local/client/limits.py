"""Every time-out and size of the client, with its reason. Seconds unless the name says otherwise."""

CONNECT_TIMEOUT = 5.0
"""To connect. The platform is near; a machine far away answers within a second or is not there."""

REQUEST_TIMEOUT = 30.0
"""For one answer. The API itself gives up on a restarting ledger after ten seconds and says 503."""

COMMAND_TIMEOUT = 75.0
"""For a revert: the API holds its answer for 30 seconds, or as long as it is told to, a minute at most."""

TRANSFER_TIMEOUT = 300.0
"""Between two signs of life of an upload, a fork or an export: 50 MB over a slow line, or the ledger writing a
hundred thousand events."""

PIECE_BYTES = 1 << 18
"""Of a file, at once."""

RETRY_FOR = 30.0
"""How long a request is repeated while the API restarts (refused connections, 502-504). A restart takes five
seconds at most; a minute without any answer is no restart any more."""

RETRY_FIRST = 0.1
"""Wait before the first repetition: most restarts of the API are over in half a second."""

RETRY_LONGEST = 2.0
"""Wait no longer than this between repetitions: a person watches."""

SILENCE_TIMEOUT = 45.0
"""A stream is dead after this much silence: the event bus sends a comment every 15 seconds, so this is
three lost.
"""

FRAME_LONGEST_BYTES = 64 << 20
"""A frame longer than this is not one of ours (the broker takes 8 MiB): the stream is refused rather than
memory filled."""

PAGE = 200
"""Items asked for at once where everything is wanted."""

FOLLOW_PATIENCE = 120.0
"""How long `valet run` and `valet follow` resume a stream without one byte coming: longer than any restart
of the platform, short enough that a terminal left alone does not wait for a machine that is off."""
