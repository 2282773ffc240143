"""Every limit and time-out of saved work, attachments and transcription, each with its reason. Seconds and bytes unless
the name says otherwise."""

import msgspec


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot of the workspace takes in; what does not fit is left out and named."""

    file_bytes: int
    """Largest file."""
    total_bytes: int
    """All changed and untracked files together."""
    files: int
    """Number of changed and untracked files."""


FULL = Bounds(file_bytes=10 << 20, total_bytes=128 << 20, files=10_000)
"""Sources and their assets are below 10 MB, builds, data and model weights above. Git takes in some 100 MB and 10,000
files in a second or two, which is what a turn may wait."""

LEAN = Bounds(file_bytes=1 << 20, total_bytes=32 << 20, files=10_000)
"""Second try, when what FULL gives is too large for an object."""

# -- snapshots

SNAPSHOT_TIMEOUT = 6.0
"""A snapshot holds the prompt up, then the turn's end. A tree of 50,000 files is listed in 0.3 s when the disk's cache
is warm; the rest is for a cold one."""

OBJECTS_KIB = 1 << 20
"""Snapshots' own objects are thrown away at the next turn's begin when they take more (KiB): eight full snapshots."""

OBJECTS_COUNT = 100_000
"""Likewise by number: loose files are slow to look up on some disks."""

OBJECTS_PACKS = 100
"""Likewise packs: git looks through all of them."""

PACKED_FROM = 500
"""New files from which on a snapshot writes all as a pack; a few are less trouble one by one."""

LEFT_OUT_NAMES = 200
"""Names of files left out in an event; more of them are one tree somebody forgot to ignore."""

# -- saved work

END_TIMEOUT = 10.0
"""All that happens at the end of a turn after `git_changed`: people wait for its end."""

CHANGED_TIMEOUT = 6.0
"""Of that, the comparison of the turn's two snapshots, the last one's making included."""

WORK_BYTES = 64 << 20
"""A packed piece of work: what the portal takes."""

WORK_RAW_BYTES = 512 << 20
"""The same before packing; more does not pack into WORK_BYTES, and need not be tried."""

COMPRESS_LEVEL = 1
"""gzip: people wait for it, and what is large in a patch is compressed already."""

CONVERSATION_BYTES = 64 << 20
"""One conversation's export; images are in it as text. A longer one is cut to its latest messages."""

CONVERSATION_CUTS = (200, 50, 10)
"""How many of the latest messages are tried then."""

PUT_ATTEMPTS = 3
"""Storing the work: the portal may be restarting. All within END_TIMEOUT."""

# -- putting work back

FETCH_TIMEOUT = 120.0
"""A session must not go on without its work, so a store that is away is waited for as long as a broker's restart and an
object of 64 MB over a slow line take. Then the sandbox gives up, and another tries."""

RETRY_WAIT = 1.0
"""Between two attempts to reach the object store while there is nothing else to do."""

RETRY_WAIT_SHORT = 0.3
"""The same at the end of a turn."""

RESTORE_GIT_TIMEOUT = 120.0
"""One git command over a whole tree that is put back."""

IMPORT_TIMEOUT = 60.0
"""One conversation, with a start of OpenCode's: measured 2.2–5.8 s."""

IMPORTS_TIMEOUT = 120.0
"""All conversations; those that are not back by then are given to the agent as text."""

PREAMBLE_CHARS = 24_000
"""The text of a conversation that could not be put back: its latest part, some 6,000 tokens."""

PREAMBLE_MESSAGE_CHARS = 4_000
"""One message of it."""

# -- the object store, through the portal

OBJECT_CONNECT_TIMEOUT = 5.0
"""To the portal's socket on the same machine."""

OBJECT_IDLE_TIMEOUT = 30.0
"""Between two pieces, and for the answer: the portal itself waits up to 25 s for a broker that restarts."""

OBJECT_CHUNK_BYTES = 256 << 10
"""One piece of an upload."""

# -- attachments

ATTACHMENT_BYTES = 256 << 20
"""The API takes far less; this keeps a wrong fact from filling the disk."""

ATTACHMENT_TIMEOUT = 60.0
"""Fetching one."""

ATTACHMENTS_TIMEOUT = 200.0
"""All of a prompt, transcription included: the ledger takes a turn without any event for 300 s as silent."""

IMAGE_BYTES = 20_000_000
"""An image the model is shown. OpenCode scales one down to what every provider takes, 15 MB in some seconds (measured);
photographs are smaller."""

DOCUMENT_BYTES = 20_000_000
"""A PDF the model is shown: the strictest provider takes requests of 32 MB in base 64."""

LOOK_BYTES = 64 << 10
"""How much of a file's beginning and end is looked at to tell what it is."""

NAME_BYTES = 120
"""A file name's length: file systems take 255, of which the name of a transcription or a temporary file needs some."""

# -- transcription

TRANSCRIBE_TIMEOUT = 150.0
"""whisper.cpp's base model is about ten times as fast as speech on two cores: some 20 minutes of it."""

CONVERT_TIMEOUT = 30.0
"""ffmpeg: hundreds of times faster than speech."""

TRANSCRIPT_CHARS = 100_000
"""Two hours of speech."""

LAST_WORDS_CHARS = 300
"""Of the line with which a program says why it failed: it is read by people, and by the model."""
