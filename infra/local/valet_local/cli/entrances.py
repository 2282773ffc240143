"""What of a sandbox can be opened in a browser, and what of it is not there. Pure."""

from typing import Literal

import msgspec
from valet_protocol.requests import SandboxView

from valet_local.cli.sandbox_access import SandboxToken

SERVICES = {"vscode": "vscode", "vnc": "vnc", "terminal": "ttyd"}
"""What people say, and what a token calls it; anything else is a tunnel."""

_STEPS = {"vscode": "vscode", "vnc": "desktop", "terminal": "terminal"}
"""The step of a sandbox's boot in which each was looked for."""


class Entrance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that can be opened, or could be if it were there."""

    name: str
    state: Literal["there", "absent", "failed", "stopped"]
    """`absent`: this machine does not have it; `failed`: it did not start; `stopped`: it ran and is to start again."""
    url: str | None = None
    """With its token; none where there is nothing to open."""
    detail: str = ""
    """Why, for people."""

    @property
    def words(self) -> str:
        """What is wrong with it."""
        said = {"absent": "not there", "failed": "did not start", "stopped": "stopped", "there": ""}[self.state]
        return f"{said}: {self.detail}" if said and self.detail else said


def entrances(way: SandboxToken, view: SandboxView) -> list[Entrance]:
    """All there could be: tunnels first, then what comes with a sandbox."""
    found = [
        Entrance(name=name, state="there", url=f"{address}?token={way.token}")
        for name, address in way.urls.tunnels.items()
    ]
    addresses = {"vscode": way.urls.vscode, "vnc": way.urls.vnc, "terminal": way.urls.ttyd}
    for name, address in addresses.items():
        booted = next((step for step in view.boot if step.step == _STEPS[name]), None)
        seen = next((service for service in view.services if service.service == SERVICES[name]), None)
        url = f"{address}?token={way.token}"
        if booted is not None and booted.outcome != "ok":
            found.append(Entrance(name=name, state=booted.outcome, detail=booted.detail))
        elif seen is not None and seen.state == "stopped":
            found.append(Entrance(name=name, state="stopped", url=url, detail=seen.detail))
        else:
            found.append(Entrance(name=name, state="there", url=url))
    return found
