"""The page about the schemes is the catalogue's own."""

from scripts.schemes_page import PAGE, page


def test_the_page_says_what_the_catalogue_says():
    assert PAGE.read_text() == page(), "write it again: python -m scripts.schemes_page"
