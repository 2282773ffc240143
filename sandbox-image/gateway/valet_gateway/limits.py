"""Every limit and time-out of the gateway, each with its reason. Seconds unless the name says otherwise."""

# -- who comes

COOKIE_SECONDS = 900
"""How long a cookie opens what its token opened."""

COOKIES_TRIED = 200
"""Cookies of our names looked at in one request: a browser sends two or three of ours and keeps at most 180 of a host;
a page behind the gateway must not keep its visitors out by setting many. Each costs 7 µs (measured)."""

PUT_OUT = 0.5
"""For the goodbye to somebody who may no longer be here: after it the connection is cut, heard or not."""

# -- requests

CONNECTIONS = 2_000
"""Open at once: 200 WebSockets and a few browsers with six connections each are far below it, file handles above. When
there are more, the oldest goes by which nobody has been let in yet."""

OTHER_FILES = 64
"""Open beside the connections: sockets, logs, libraries."""

LINE_BYTES = 16_384
"""Longest request line: VS Code puts its whole state into some URLs; browsers and servers stop at 8 to 16 KiB."""

FIELD_BYTES = 16_384
"""Longest header: the cookies of every sandbox on the same host name come together in one."""

HEADERS = 128
"""Headers in one request: browsers send about 25."""

HEAD_WAIT = 30.0
"""From the opening of a connection, or the end of the last request on it, to the whole head of the next."""

READ_BYTES = 1 << 18
"""Buffered for one direction of one connection before its writer is held back: 1 GB/s needs no more on one machine."""

SILENCE = 300.0
"""Neither a piece of the request nor the head of its response: long polls wait for a minute or two."""

BODY_SILENCE = 3600.0
"""Between two pieces of a response: an event stream without heartbeats may be quiet for very long."""

STALLED = 600.0
"""A reader that takes nothing, while there is something for it, is gone."""

LINGER = 2.0
"""For the rest of a request that was refused before it was read."""

DOCUMENT_BYTES = 8 << 20
"""Largest document of OpenCode that is searched for keys: its list of all providers has 2 MB."""

CONTROL_BYTES = 65_536
"""Largest document on the control socket: a tunnel has a few hundred bytes."""

RPC_BYTES, RPC_ID_WAIT = 65_536, 2.0
"""What of a call of a tool is read, and waited for, only to answer it by its id while nobody takes calls: most are a
few hundred bytes, and come with their head."""

REFUSAL_BYTES, REFUSAL_WAIT = 65_536, 2.0
"""What is read of a program's refusal of a WebSocket, and how long that is waited for."""

RETRY_AFTER = 2
"""Whole seconds until who was told to come again should: an editor starts in one or two, a sandbox boots in five."""

RETRY_AFTER_FAILURE = 5
"""Whole seconds after a failed start: the runner makes no other attempt sooner."""

# -- what runs inside

CONNECT = 5.0
"""Reaching a program on the same machine: it answers at once, or its queue is full."""

IDLE_KEPT = 2.0
"""An unused connection to a program is kept so long: Node closes its side after 5 s, which no request may meet."""

DOOR_WORDS = 65_536
"""Largest refusal of a service's door that is read: it quotes some lines of the program's own."""

CONNECTIONS_EACH = 0
"""To one program: as many as people open, which `CONNECTIONS` bounds (0 is none of its own)."""

# -- WebSockets

HANDSHAKE = 15.0
"""Until the program behind a WebSocket has accepted or refused it. A connection that is open may be idle for ever."""

MESSAGE_BYTES = 16 << 20
"""Largest message: VS Code and noVNC send up to a few MB. One is held per direction, so it bounds the memory."""

SEND_AHEAD_BYTES = 1 << 18
"""Written ahead of a slow reader before the other side is held back."""

CLOSE = 2.0
"""For the other side's answer to a close frame."""

REASON_BYTES = 123
"""The longest reason a close frame can carry (RFC 6455, 5.5)."""

# -- the terminal

SCROLLBACK_BYTES = 256 << 10
"""Recent output sent to a page that comes back: a few thousand lines, more than it scrolls."""

TERMINAL_ROWS, TERMINAL_COLS = 24, 80
"""Of a page that does not say."""

TERMINAL_SIDE_MAX = 1_000
"""Rows or columns: more is no screen, and programs reserve memory for it."""

HELLO_WAIT = 10.0
"""For the first message of a terminal's page."""

PROCESS_REQUEST = 10.0
"""One call of the process service, which forks a shell at most."""

TERMINAL_TRIES = 3
"""To find or make the shared shell: two pages may make it at the same time, or it ends just then."""

# -- tunnels

TUNNELS = 64
"""Registered at once; nobody has shown more than five."""

TUNNEL_NAME_CHARS = 63
"""As in host names, should a tunnel ever be one."""

TUNNEL_DESCRIPTION_CHARS = 500
"""A sentence or two, shown in a list."""

# -- the process

LAST_ANSWERS = 0.3
"""For requests that are being answered when the gateway ends; twice that for those that go on for ever."""

STOP = 1.5
"""For the orderly end; whoever stops us kills after 2 s."""
