"""Claims about which words of a text are searched."""

from valet_knowledge import limits
from valet_knowledge.words import query, words


def test_paths_and_names_are_found_by_their_parts() -> None:
    assert words("See services/api/app.py and build_all.sh") == "see services api app py and build all sh"


def test_letters_of_every_script_are_lowered() -> None:
    assert words("ÜBER Straße ΩMEGA") == "über straße ωmega"


def test_a_search_is_for_any_of_its_words_whatever_signs_stand_between() -> None:
    assert query('"deploy" -now OR (never) deploy!') == "deploy or now or never"
    assert query("—!?") == ""


def test_a_search_of_a_whole_page_is_for_its_first_words() -> None:
    assert len(query(" ".join(f"w{number}" for number in range(1000))).split(" or ")) == limits.SEARCH_WORDS
