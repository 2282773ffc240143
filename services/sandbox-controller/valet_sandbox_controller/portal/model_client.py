"""The HTTP clients towards model providers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from valet_service import lean

from valet_sandbox_controller import limits

with lean.without("click"):  # of its command line, which would bring rich as well
    import httpx


class ModelClients:
    """Pooled connections: one client that honours the environment's proxies, one that goes straight."""

    def __init__(self) -> None:
        self.timeout = httpx.Timeout(
            connect=limits.MODEL_CONNECT_TIMEOUT,
            read=limits.MODEL_IDLE_TIMEOUT,
            write=limits.MODEL_IDLE_TIMEOUT,
            pool=limits.MODEL_CONNECT_TIMEOUT,
        ).as_dict()
        self._clients: dict[bool, httpx.AsyncClient] = {}

    @asynccontextmanager
    async def send(self, request: httpx.Request, *, direct: bool) -> AsyncIterator[httpx.Response]:
        """Send and give the answer when its head is there. `direct`: past any proxy of the environment.

        Raises `httpx.HTTPError`. Leaving the block early closes the connection, which makes the provider stop.
        """
        response = await self._client(direct).send(request, stream=True)
        try:
            yield response
        finally:
            await response.aclose()

    async def close(self) -> None:
        """End all connections."""
        for client in self._clients.values():
            await client.aclose()

    def _client(self, direct: bool) -> httpx.AsyncClient:
        # made at the first request: loading the certificates takes memory a quiet installation need not spend
        client = self._clients.get(direct)
        if client is None:
            client = httpx.AsyncClient(
                trust_env=not direct,
                limits=httpx.Limits(max_connections=limits.MODEL_POOL, keepalive_expiry=limits.MODEL_KEEP_ALIVE),
                timeout=limits.MODEL_IDLE_TIMEOUT,
            )
            self._clients[direct] = client
        return client
