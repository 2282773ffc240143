"""A POST with an Idempotency-Key is done once, by the rules and in the words of the platform's own API.

A repetition gets the answer of the first, with `Idempotency-Replayed: true`; another request under the same key is
refused. Answers are in memory: input and signals concern processes that end with this service. What a process was
started by is in its record as well, so a repetition finds it as long as that is kept.
"""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web
from valet_protocol.errors import Refused

from valet_processes import answers
from valet_processes.answers import Answer, Answers, Asked
from valet_processes.replies import body, problem

ASKED: web.RequestKey[Asked] = web.RequestKey("asked", Asked)
"""Where handlers find it."""


def replayed(response: web.Response) -> web.Response:
    """Say that it was done before."""
    response.headers["Idempotency-Replayed"] = "true"
    return response


class Once:
    """The middleware."""

    def __init__(self) -> None:
        self._answers = Answers()
        # no handler of a POST waits for anything once its body is read; should one ever, none overtakes it
        self._one = asyncio.Lock()

    @web.middleware
    async def middleware(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Requests without a key, and those that are no POST of ours, pass untouched."""
        key = request.headers.get("Idempotency-Key")
        if key is None or request.method != "POST" or not request.path.startswith("/v1/"):
            return await handler(request)
        asked = Asked(
            key=answers.check_key(key),
            digest=answers.digest(request.query_string, request.content_type, await body(request)),
        )
        request[ASKED] = asked
        async with self._one:
            answer = self._answers.find(request.path, asked)
            if answer is not None:
                return replayed(
                    web.Response(status=answer.status, body=answer.content, content_type=answer.content_type)
                )
            try:
                response = await handler(request)
            except Refused as error:
                response = problem(error.problem())
            if (
                isinstance(response, web.Response)
                and isinstance(response.body, bytes)
                and answers.is_kept(response.status)
            ):
                kept = Answer(
                    digest=asked.digest,
                    status=response.status,
                    content_type=response.content_type,
                    content=response.body,
                )
                self._answers.keep(request.path, asked.key, kept)
            return response
