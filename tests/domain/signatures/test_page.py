"""docs/schemes.md is generated from the catalogue."""

from scripts.schemes_page import PAGE, page


def test_page_of_schemes_is_up_to_date():
    assert PAGE.read_text() == page(), "run python -m scripts.schemes_page"
