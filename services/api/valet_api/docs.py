"""The OpenAPI document and its page."""

from litestar.openapi import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme

from valet_api.pages import OperationsPage

CONFIG = OpenAPIConfig(
    title="Valet",
    version="0.1.0",
    description=(
        "Background coding agents, event-sourced end to end. Everything that happens in a session is an event with a "
        "sequence number; that number is the cursor everywhere. Errors are problem documents (RFC 9457)."
    ),
    path="/schema",
    render_plugins=[OperationsPage()],
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
