"""Search and research on the web by Parallel AI. Answered by integrations."""

from typing import Literal

from valet_protocol.requests.base import Reply
from valet_protocol.tools import limits
from valet_protocol.tools.base import LONG, Tool


class WebSource(Reply, frozen=True, kw_only=True):
    """A page of the web."""

    url: str
    title: str = ""
    text: str = ""
    """What of it matters here."""


class WebSources(Reply, frozen=True, kw_only=True):
    """Pages, the most relevant first."""

    items: list[WebSource]


class ParallelSearch(Tool, frozen=True, kw_only=True):
    """Search the web. The pages come with the passages that matter for what you want to know."""

    name = method = "parallel_search"
    category = "parallel"
    route = "POST /api/parallel/search"
    reply = WebSources
    timeout = LONG

    objective: limits.Note
    """What you want to know, in a sentence or two."""
    queries: list[limits.Name] = []
    """Words to search for; none for those that follow from the objective."""
    limit: limits.Few = 10
    """How many pages at most."""
    domains: list[limits.Name] = []
    """Only pages of these domains; none for all."""


class ParallelExtract(Tool, frozen=True, kw_only=True):
    """Read pages of the web as text."""

    name = method = "parallel_extract"
    category = "parallel"
    route = "POST /api/parallel/extract"
    reply = WebSources
    timeout = LONG

    urls: list[limits.Url]
    """The pages, ten at most."""
    objective: limits.Note | None = None
    """What you want to know of them; none for the whole text."""


class ResearchView(Reply, frozen=True, kw_only=True):
    """A piece of research."""

    run_id: str
    status: Literal["running", "completed", "failed"]
    report: str = ""
    """The answer, in Markdown, once it is completed."""
    sources: list[WebSource] = []
    error: str | None = None
    """Why it failed."""


class ParallelResearch(Tool, frozen=True, kw_only=True):
    """Have a question researched thoroughly: minutes to an hour. While it is `running`, call again with its run_id."""

    name = method = "parallel_research"
    category = "parallel"
    route = "POST /api/parallel/research"
    reply = ResearchView
    timeout = LONG

    question: limits.Note
    """What is to be found out, and what the report is for."""
    depth: Literal["quick", "normal", "deep"] = "normal"
    """How thoroughly: `deep` takes longest and costs most."""
    run_id: limits.Id | None = None
    """One that was begun before: its state is given back, nothing new is begun."""


class EnrichedRow(Reply, frozen=True, kw_only=True):
    """One row with what was found for it."""

    row: dict[str, object]
    sources: list[WebSource] = []
    error: str | None = None
    """Why nothing was found."""


class EnrichmentView(Reply, frozen=True, kw_only=True):
    """Rows with what was found."""

    run_id: str
    status: Literal["running", "completed", "failed"]
    items: list[EnrichedRow] = []


class ParallelEnrich(Tool, frozen=True, kw_only=True):
    """Find the same facts for many things, e.g. the licence of each library of a list.

    While it is `running`, call again with its run_id.
    """

    name = method = "parallel_enrich"
    category = "parallel"
    route = "POST /api/parallel/enrich"
    reply = EnrichmentView
    timeout = LONG

    rows: list[dict[str, object]]
    """What is known of each thing, by column."""
    columns: dict[str, limits.Name]
    """Name of a column to fill → what is to stand in it."""
    run_id: limits.Id | None = None
    """One that was begun before: its state is given back, nothing new is begun."""
