"""What knowledge refuses.

Refused (valet_protocol.errors)
├── MemoryNotFound      404  no memory of this person has that id
├── NotACursor          400  `before` did not come from a page
├── TooManyMemories     429  as much is remembered of one person as is kept
└── KnowledgeAway       503  the database does not answer
"""

from valet_protocol.errors import BadRequest, NotFound, TooMany, Unavailable


class MemoryNotFound(NotFound):
    """Also for memories of other people: who asks is not told that they are there."""

    def __init__(self, memory_id: str) -> None:
        super().__init__(
            "memory_not_found", f"There is no memory {memory_id!r}. Leave `memory_id` out to write a new one."
        )


class NotACursor(BadRequest):
    def __init__(self) -> None:
        super().__init__("bad_cursor", "Pass `next` of the page before as `before`, unchanged, or leave it out.")


class TooManyMemories(TooMany):
    def __init__(self, most: int) -> None:
        super().__init__(
            "too_many_memories",
            f"{most} memories are kept at most. Delete some that no longer help, or write what you know into one that"
            " is there (`memory_id`).",
        )


class KnowledgeAway(Unavailable):
    def __init__(self) -> None:
        super().__init__("memories_unavailable", "Memories cannot be reached at the moment; try again.")
