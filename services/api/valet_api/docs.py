"""The OpenAPI document and its page."""

from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import ScalarRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme

SCALAR_VERSION = "1.44.15"
"""The page's script; it is fetched by the reader's browser, the document itself needs no network."""

CONFIG = OpenAPIConfig(
    title="Valet",
    version="0.1.0",
    description=(
        "Background coding agents, event-sourced end to end. Everything that happens in a session is an event with a "
        "sequence number; that number is the cursor everywhere. Errors are problem documents (RFC 9457)."
    ),
    path="/schema",
    render_plugins=[ScalarRenderPlugin(version=SCALAR_VERSION, path=["/", "/scalar"])],
    use_handler_docstrings=True,
    components=Components(
        security_schemes={
            "bearer": SecurityScheme(
                type="http", scheme="bearer", description="`valet up` prints the token of the owner."
            )
        }
    ),
    security=[{"bearer": []}],
)
