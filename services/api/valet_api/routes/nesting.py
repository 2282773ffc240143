"""How messages of sub-agents are asked for."""

from typing import Annotated

from litestar.params import Parameter

Nested = Annotated[
    bool,
    Parameter(
        description="Put the messages of sub-agents under the tool call that started them: `messages` of that part."
        " Where there are `more`, ask for its `conversation` with that as `after`."
    ),
]
