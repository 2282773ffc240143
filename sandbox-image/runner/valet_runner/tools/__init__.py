"""The agent's tools: `/api/*` and the MCP server on one unix socket, from the declarations in `valet_protocol.tools`.

reading     what came in → a request, or a refusal that names the field
schema      a declaration → JSON Schema
platform    a request → the service that answers it
running     one call, whichever way it came: who may, once only, by whom
rest        `/api/*`
mcp_tools   `/mcp`
serving     both on a unix socket
local       what is answered in the sandbox itself: `images`, `tunnels`, `channel_replies`, `git_reports`, `models`
reference   docs/tools.md

Importing `serving` takes most of a second of processor time (the `mcp` library): do it while OpenCode starts.
"""
