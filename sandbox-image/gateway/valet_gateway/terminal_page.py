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
    if path not in _PACKAGES or packages is None:
        return None
    package, name = _PACKAGES[path]
    return packages / package / name


def missing(packages: Path | None) -> list[str]:
    """What the page lacks on this machine; nothing if it is whole."""
    if packages is None:
        return ["the folder of the npm packages @xterm/xterm and @xterm/addon-fit"]
    wanted = [packages / package / name for package, name in _PACKAGES.values()]
    return [str(path) for path in wanted if not path.is_file()]


def page(nonce: str) -> web.Response:
    """The terminal. `nonce`: made anew for each."""
    text = (_OWN / "terminal.html").read_text().replace("{{nonce}}", nonce)
    return _html(200, text, _POLICY.format(nonce=nonce))


def absent(missing: list[str]) -> web.Response:
    """What is said where the page cannot be shown."""
    text = (_OWN / "absent.html").read_text().replace("{{missing}}", ", ".join(missing))
    return _html(503, text, "default-src 'none'")


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
