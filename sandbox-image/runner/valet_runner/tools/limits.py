"""Every limit and time-out of the tools, each with its reason. Seconds unless the name says otherwise."""

MISSING_AFTER = 2.0
"""How long nobody may serve a tool before its agent is told that this part of the platform is not there: longer than a
service takes to come back after a crash in most cases (1–2 s), short enough for an agent to wait each time."""

ASK_AGAIN_WAIT = 0.25
"""Between two requests while nobody serves the tool."""

ASK_TRIES = 3
"""How many times a request is sent within its time-out: a service that died with it answers the next one."""

LOCAL_GRACE = 2.0
"""What a local tool gets beyond its declared time-out, for its own, more telling, time-outs to come first."""

BODY_BYTES = 16 << 20
"""One request: a picture in base64 (14 MB) with what is around it."""

KEY_CHARS = 200
"""An `Idempotency-Key`; the same as the platform's own API takes."""

KEPT_ANSWERS = 64
"""Answers of keyed calls to the sandbox's own tools, noted for their repetition: they are small, and if one is repeated
at all, then soon. All are in one file, written with each of them."""

STOP_TIMEOUT = 1.0
"""How long calls that run may still take when the sandbox ends: it has 3 s in all."""

BACKLOG = 128
"""Connections that wait to be accepted: more than an agent has programs."""

IMAGE_BYTES = 10 << 20
"""A picture that is shown: a screenshot of a whole page at double resolution is 5 MB."""

IMAGE_TO_MODEL_BYTES = 3_700_000
"""A picture that is given to the model as well: providers take 5 MB of base64."""

LISTEN_TIMEOUT = 1.0
"""A connection to a port of this machine is accepted or refused at once; a full backlog is an answer too."""

GATEWAY_TIMEOUT = 10.0
"""A request to the gateway's control socket: it is answered in milliseconds, and a gateway that was killed is back in
two or three seconds."""

GATEWAY_RETRY_WAIT = 0.2
"""Between two attempts while the gateway is away."""

GIT_FILES = 100
"""How many changed files the agent is told by name: beyond that it asks git."""
