"""The API's pages for people: what this address is, and what can be asked of it. They need nothing from elsewhere."""

import html
from collections.abc import Iterator, Mapping
from typing import Any

from litestar import Request
from litestar.enums import MediaType
from litestar.openapi.plugins import OpenAPIRenderPlugin

_STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
code, pre { font-family: ui-monospace, monospace; font-size: .92em }
pre { padding: .8rem 1rem; overflow-x: auto; border: 1px solid #8886; border-radius: .4rem }
details { border-top: 1px solid #8884; padding: .35rem 0 }
summary { cursor: pointer }
.method { display: inline-block; min-width: 4.2rem; font-weight: 600 }
.what { color: #888; margin-left: .6rem }
dt { margin-top: .4rem } dd { margin-left: 1.5rem }
"""

POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
"""Content-Security-Policy of the pages: they have no script and load nothing."""


def welcome(url: str) -> bytes:
    """What a browser is shown at the root. `url` is the address it came by, without a slash at its end."""
    address = html.escape(url)
    return _page(
        "Valet",
        f"""<h1>Valet</h1>
<p>Background coding agents. This is the platform's HTTP API; there is no web app at this address.</p>
<h2>Start</h2>
<p>From a terminal of the machine it runs on:</p>
<pre>valet run "Say hello"</pre>
<p>From elsewhere, with the token that <code>valet up</code> has printed:</p>
<pre>export VALET_URL={address} VALET_TOKEN=…
valet run --repo https://git.example.org/team/app.git "Fix the failing test"</pre>
<p>Or by HTTP:</p>
<pre>curl -H "Authorization: Bearer $VALET_TOKEN" {address}/api/sessions</pre>
<h2>More</h2>
<ul>
<li><a href="/schema">What can be asked</a>, and the same <a href="/schema/openapi.json">for programs</a> (OpenAPI)</li>
<li><a href="/ready">Whether the platform can work now</a></li>
</ul>""",
    )


class OperationsPage(OpenAPIRenderPlugin):
    """Every operation of the OpenAPI document, on one page without a script."""

    def __init__(self) -> None:
        super().__init__(path="/", media_type=MediaType.HTML)

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        return operations(openapi_schema)


def operations(document: Mapping[str, Any]) -> bytes:
    """The page of an OpenAPI document."""
    info = document["info"]
    groups: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            group = (operation.get("tags") or ["other"])[0]
            groups.setdefault(group, []).append(_operation(method, path, operation))
    parts = [f"<h1>{_text(info['title'])}</h1><p>{_text(info.get('description', ''))}</p>"]
    parts.append('<p>For programs: <a href="/schema/openapi.json">openapi.json</a></p>')
    for group, entries in groups.items():
        parts.append(f"<h2>{_text(group)}</h2>{''.join(entries)}")
    return _page(f"{info['title']}: operations", "\n".join(parts))


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    return (
        f'<details id="{_text(operation.get("operationId", ""))}"><summary><code><span class="method">'
        f"{_text(method.upper())}</span>{_text(path)}</code>"
        f'<span class="what">{_text(operation.get("summary", ""))}</span></summary>'
        f"<p>{_text(operation.get('description', ''))}</p>{''.join(_details(operation))}</details>\n"
    )


def _details(operation: Mapping[str, Any]) -> Iterator[str]:
    if parameters := operation.get("parameters"):
        yield "<h4>Parameters</h4><dl>"
        for parameter in parameters:
            needed = ", needed" if parameter.get("required") else ""
            yield f"<dt><code>{_text(parameter['name'])}</code> ({_text(parameter['in'])}{needed})</dt>"
            yield f"<dd>{_text(parameter.get('description', ''))}</dd>"
        yield "</dl>"
    if content := operation.get("requestBody", {}).get("content"):
        yield "<h4>Body</h4><ul>"
        for kind, body in content.items():
            yield f"<li>{_text(kind)} {_schema_name(body.get('schema', {}))}</li>"
        yield "</ul>"
    yield "<h4>Answers</h4><dl>"
    for status, answer in operation.get("responses", {}).items():
        yield f"<dt><code>{_text(status)}</code></dt><dd>{_text(answer.get('description', ''))}</dd>"
    yield "</dl>"


def _schema_name(schema: Mapping[str, Any]) -> str:
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    return f"<code>{_text(name)}</code> in openapi.json" if name else ""


def _text(value: object) -> str:
    return html.escape(str(value or ""))


def _page(title: str, body: str) -> bytes:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{_text(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>'
        f"<body>{body}</body></html>\n"
    ).encode()
