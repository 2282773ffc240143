"""What is remembered beyond a session. Answered by knowledge.

Memories belong to a person and are seen by all of that person's sessions.
"""

import msgspec

from valet_protocol.requests.base import Reply
from valet_protocol.tools import limits
from valet_protocol.tools.base import WRITE, Tool


class Memory(Reply, frozen=True, kw_only=True):
    """One thing that is remembered."""

    id: str
    content: str
    category: str
    workspace: str | None = None
    """The repository it is about; none for all."""
    session: str | None = None
    """The session whose agent wrote it; none for a person."""
    created_at: str
    """RFC 3339."""
    updated_at: str
    """RFC 3339."""
    score: float | None = None
    """How well it fits a search; only the order of one answer means something."""


class MemoryList(Reply, frozen=True, kw_only=True):
    """Memories."""

    items: list[Memory]
    next: str | None = None
    """Pass as `before` for the next page; none at the end."""


class MemoryWritten(Reply, frozen=True, kw_only=True):
    """The memory is stored."""

    id: str
    """A new one's is made from this call's `request_id`."""
    created: bool
    """False where one that was there has a new text."""


class MemoryDeleted(Reply, frozen=True, kw_only=True):
    """The memory is gone."""

    id: str
    deleted: bool
    """False where it was gone before."""


class ListMemories(Tool, frozen=True, kw_only=True):
    """Read what is remembered, the latest change first.

    Look here, or with search_memories, at the start of a task: earlier sessions may have learnt what you need.
    """

    name = method = "list_memories"
    category = "memory"
    route = "GET /api/memories"
    reply = MemoryList

    memory_category: limits.Label | None = msgspec.field(name="category", default=None)
    """Only those of this category."""
    workspace: limits.Name | None = None
    """Only those about this repository, and those about none."""
    limit: limits.Few = 20
    """How many at most."""
    before: limits.Id | None = None
    """`next` of the page before."""


class SearchMemories(Tool, frozen=True, kw_only=True):
    """Search what is remembered by words, the best match first."""

    name = method = "search_memories"
    category = "memory"
    route = "GET /api/memories/search"
    reply = MemoryList

    query: limits.Name
    """What to look for, in words; all of them count, none has to be there."""
    memory_category: limits.Label | None = msgspec.field(name="category", default=None)
    """Only those of this category."""
    workspace: limits.Name | None = None
    """Only those about this repository, and those about none."""
    limit: limits.Few = 10
    """How many at most."""


class WriteMemory(Tool, frozen=True, kw_only=True):
    """Remember something for later sessions.

    Write what will help again: how a repository is built and tested, what its people prefer, why something was decided.
    One thing in each memory, in full sentences. Never secrets.
    """

    name = method = "write_memory"
    category = "memory"
    route = "POST /api/memories"
    reply = MemoryWritten
    timeout = WRITE

    content: limits.Fact
    """What to remember."""
    memory_category: limits.Label = msgspec.field(name="category", default="general")
    """What kind of thing it is: `preference`, `codebase`, `workflow`, `decision`, `general`, or a word of your own."""
    workspace: limits.Name | None = None
    """The repository it is about, e.g. `acme/shop`; none for all."""
    memory_id: limits.Id | None = None
    """The memory that gets this text and category; none for a new one."""


class DeleteMemory(Tool, frozen=True, kw_only=True):
    """Forget something that is wrong or no longer true. To correct it, write it again with its id instead."""

    name = method = "delete_memory"
    category = "memory"
    route = "DELETE /api/memories/{memory_id}"
    reply = MemoryDeleted
    timeout = WRITE

    memory_id: limits.Id
    """The memory's id."""
