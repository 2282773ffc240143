"""Which words of a text are searched. Pure.

PostgreSQL takes `services/api/app.py` and `build.sh` for one word each, a path and a host's name, and lowers only ASCII
letters in a database without a locale, so both are done here.
"""

import re

from valet_knowledge import limits

_WORD = re.compile(r"[^\W_]+")


def words(text: str) -> str:
    """The words of a text as it is indexed."""
    return " ".join(_WORD.findall(text.lower()))


def query(text: str) -> str:
    """A search for any of the words of a text, as `websearch_to_tsquery` reads it; empty where it has none."""
    # the word itself would be read as what stands between two others
    found = dict.fromkeys(word for word in _WORD.findall(text.lower()) if word != "or")
    return " or ".join(list(found)[: limits.SEARCH_WORDS])
