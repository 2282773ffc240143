"""The terminal's page and the files it is made of."""

from pathlib import Path

from aiohttp import web

_OWN = Path(__file__).parent / "page"

_PACKAGES = {
    "/xterm.js": ("xterm", "lib/xterm.js"),
    "/xterm.css": ("xterm", "css/xterm.css"),
    "/addon-fit.js": ("addon-fit", "lib/addon-fit.js"),
}
"""Files of the npm packages @xterm/xterm and @xterm/addon-fit, by the path below `/ttyd`."""

_WIDE = "/addon-unicode11.js"
_WIDE_FILE = ("addon-unicode11", "lib/addon-unicode11.js")
"""Of @xterm/addon-unicode11: how wide emoji and East Asian characters are. The page does without where it is not."""

_OWN_FILES = {"/terminal.js": "terminal.js", "/terminal.css": "terminal.css"}

_POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; font-src 'self'; img-src 'self' data:; base-uri 'none';"
    " form-action 'none'; style-src 'self' 'nonce-{nonce}'"
)
"""Only itself. xterm.js makes style elements while it runs: they carry the nonce."""


def file(path: str, packages: Path | None) -> Path | None:
    """The file for a path below `/ttyd`: only those named here exist."""
    if path in _OWN_FILES:
        return _OWN / _OWN_FILES[path]
    found = _WIDE_FILE if path == _WIDE else _PACKAGES.get(path)
    return packages.joinpath(*found) if found and packages else None


def missing(packages: Path | None) -> list[str]:
    """What the page lacks on this machine; nothing if it is whole."""
    if packages is None:
        return ["the folder of the npm packages @xterm/xterm and @xterm/addon-fit"]
    wanted = [packages / package / name for package, name in _PACKAGES.values()]
    return [str(path) for path in wanted if not path.is_file()]


def page(packages: Path | None, nonce: str, frames: str) -> web.Response:
    """The terminal. `nonce`: made anew for each; `frames`: the policy on who may show it in a frame."""
    wide = file(_WIDE, packages)
    script = f'<script src="{_WIDE[1:]}"></script>' if wide and wide.is_file() else ""
    text = (_OWN / "terminal.html").read_text().replace("{{nonce}}", nonce).replace("{{wide}}", script)
    return _html(200, text, f"{_POLICY.format(nonce=nonce)}; {frames}")


def absent(missing: list[str], frames: str) -> web.Response:
    """What is said where the page cannot be shown."""
    text = (_OWN / "absent.html").read_text().replace("{{missing}}", ", ".join(missing))
    return _html(503, text, f"default-src 'none'; {frames}")


def _html(status: int, text: str, policy: str) -> web.Response:
    return web.Response(
        status=status,
        body=text.encode(),
        headers={
            "Content-Type": "text/html; charset=utf-8",
            "Content-Security-Policy": policy,
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        },
    )
