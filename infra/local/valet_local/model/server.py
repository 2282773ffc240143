"""The server: POST /v1/chat/completions, GET /v1/models, GET /requests.

Every answer is decided by `plan_response` from the scenario and the request alone, so the server may be restarted, or
run twice, in the middle of a session. The one thing it counts is how often the same request came (faults that strike
"the first N tries" need it): by session and conversation, in memory, bounded.
"""

import asyncio
import contextlib
import hmac
import socket
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

import msgspec
import uvicorn
from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, Scope
from valet_service import logs

from valet_local.model import frames, limits
from valet_local.model.errors import ModelNotServing, RequestRefused, ScenarioUnplayable
from valet_local.model.exchange import Exchange
from valet_local.model.plan import Plan, plan_response
from valet_local.model.records import Memory, Record
from valet_local.model.request import ChatRequest, decode
from valet_local.model.scenario import Scenario, Status
from valet_local.model.wire import ModelInfo, ModelList, error_body


class ScriptedModel:
    """A running scripted model.

        async with ScriptedModel(load_builtin("tests")) as model:
            ...  # OpenCode with baseURL = model.url

    `port` 0 takes a free one. With an `api_key` every request must carry it as a bearer token.
    Entering raises ModelNotServing if the address cannot be had.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        api_key: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.scenario = scenario
        self._host = host
        self._port = port
        self._api_key = api_key
        self._clock = clock
        self._memory = Memory()
        self._open: set[Exchange] = set()
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """What a client takes as its base URL, `http://127.0.0.1:PORT/v1`."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}/v1"

    @property
    def requests(self) -> tuple[Record, ...]:
        """The latest requests it answered, oldest first."""
        return self._memory.records

    async def __aenter__(self) -> Self:
        listener = self._listen()
        self._port = listener.getsockname()[1]
        config = uvicorn.Config(
            self._app,
            interface="asgi3",
            lifespan="off",
            ws="none",
            log_config=None,
            log_level="critical",  # a scripted cut is an unfinished response, which uvicorn reports as an error
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]))
        deadline = time.monotonic() + limits.START_SECONDS
        while not self._server.started:
            if self._serving.done() or time.monotonic() > deadline:
                await self.stop()
                raise ModelNotServing(self._host, self._port, "the server did not start")
            await asyncio.sleep(0.005)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """End at once: streams break off where they are."""
        if self._server is None or self._serving is None:
            return
        self._server.should_exit = True
        self._server.force_exit = True
        for exchange in self._open:
            exchange.gone.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._serving, limits.STOP_SECONDS)
        self._server = None

    def _listen(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self._host, self._port))
        except OSError as error:
            listener.close()
            raise ModelNotServing(self._host, self._port, error.strerror or str(error)) from None
        return listener

    async def _app(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive, send)
        self._open.add(exchange)
        try:
            await self._route(exchange)
        except RequestRefused as refusal:
            await exchange.answer(refusal.status, error_body(str(refusal), "invalid_request_error"))
        except ScenarioUnplayable as error:
            await exchange.answer(400, error_body(str(error), "invalid_request_error"))
        except Exception:
            logs.get(__name__).exception("request_failed", path=exchange.path)  # uvicorn is silenced, see above
            raise
        finally:
            self._open.discard(exchange)

    async def _route(self, exchange: Exchange) -> None:
        if self._api_key is not None and not hmac.compare_digest(
            exchange.header("authorization").encode(), f"Bearer {self._api_key}".encode()
        ):
            raise RequestRefused(401, "wrong or missing API key: send `Authorization: Bearer KEY`")
        match exchange.method, exchange.path.rstrip("/"):
            case "POST", "/v1/chat/completions":
                await self._complete(exchange)
            case "GET", "/v1/models":
                models = tuple(ModelInfo(id=model) for model in self.scenario.models)
                await exchange.answer(200, msgspec.json.encode(ModelList(data=models)))
            case "GET", "/requests":
                await exchange.answer(200, msgspec.json.encode(self.requests))
            case method, path:
                known = "POST /v1/chat/completions, GET /v1/models, GET /requests"
                raise RequestRefused(404, f"no {method} {path} here; there are {known}")

    async def _complete(self, exchange: Exchange) -> None:
        request = decode(await exchange.body())
        session = exchange.header("x-session-id")
        tries = 0 if request.wants_title else self._memory.count_try(request.digest(session))
        plan = plan_response(self.scenario, request, tries, session)
        self._memory.add(request, plan, at=self._clock(), session=session, tries=tries)
        if isinstance(plan.fault, Status):
            await _fail(exchange, plan.fault)
            return
        async with exchange.watched():
            await self._stream(exchange, request, plan)

    async def _stream(self, exchange: Exchange, request: ChatRequest, plan: Plan) -> None:
        created = int(self._clock())
        moments = frames.moments(plan, created=created, include_usage=request.include_usage)
        if request.stream:
            await exchange.play(moments)
        elif plan.fault is None:
            await exchange.answer(200, frames.whole(plan, created=created))
        else:
            await exchange.answer(500, error_body("scripted fault", "server_error"))


class _Server(uvicorn.Server):
    """uvicorn that leaves the process's signals to whoever runs it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _fail(exchange: Exchange, fault: Status) -> None:
    kind = "rate_limit_error" if fault.status == 429 else "server_error" if fault.status >= 500 else "api_error"
    body = fault.body.encode() if fault.body is not None else error_body(fault.message, kind)
    headers: list[tuple[bytes, bytes]] = []
    if fault.retry_after_s is not None:
        headers.append((b"retry-after", f"{fault.retry_after_s:g}".encode()))
    await exchange.answer(fault.status, body, headers)
