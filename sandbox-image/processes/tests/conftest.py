from collections.abc import AsyncIterator, Iterator

import pytest
from valet_processes.client import ProcessesClient
from valet_processes.testing import ProcessService


@pytest.fixture(scope="session")
def shared_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessService]:
    """One service for all tests that leave it as it was."""
    with ProcessService(tmp_path_factory.mktemp("processes")) as service:
        yield service


@pytest.fixture
async def processes(shared_service: ProcessService) -> AsyncIterator[ProcessesClient]:
    """A client of the shared service; what a test leaves running is deleted after it."""
    async with ProcessesClient(shared_service.spec.socket) as client:
        yield client
        for info in await client.list():
            if info.status == "running":
                await client.signal(info.id, "SIGKILL")
            await client.delete(info.id)


@pytest.fixture
def own_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessService]:
    """A service of the test's own, to be ended."""
    with ProcessService(tmp_path_factory.mktemp("processes")) as service:
        yield service
