"""Figures in a page of the documentation, between two marks, so that a new run replaces those and nothing else."""

from pathlib import Path


def renewed(page: str, name: str, figures: str) -> str:
    """The page with these figures between `<!-- name -->` and `<!-- /name -->`. Pure.

    Raises `ValueError` for a page without them.
    """
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, found, rest = page.partition(begin)
    _, also_found, after = rest.partition(end)
    if not found or not also_found:
        raise ValueError(f"the page has no {begin} … {end} to put the figures between")
    return f"{before}{begin}\n{figures}\n{end}{after}"


def renew(path: Path, name: str, figures: str) -> None:
    """The same with a file."""
    path.write_text(renewed(path.read_text(), name, figures))
