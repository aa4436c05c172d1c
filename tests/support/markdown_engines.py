"""What two independent Markdown parsers make of a text: `cmark-gfm`, which GitHub uses, and `markdown-it`."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Final

import cmarkgfm
from cmarkgfm.cmark import Options
from markdown_it import MarkdownIt

_EXTENSIONS: Final = ["table", "autolink", "strikethrough", "tasklist"]
_MARKDOWN_IT: Final = MarkdownIt("commonmark", {"html": True, "maxNesting": 200}).enable(["table", "strikethrough"])
_VOID_TAGS: Final = frozenset({"br", "hr", "img", "input"})


def _cmark(text: str) -> str:
    return str(cmarkgfm.markdown_to_html_with_extensions(text, Options.CMARK_OPT_UNSAFE, _EXTENSIONS))


ENGINES: Final[Mapping[str, Callable[[str], str]]] = {"cmark": _cmark, "markdown-it": _MARKDOWN_IT.render}


@dataclass(slots=True)
class Rendered:
    """A rendered text. HTML in the text is part of it, as a browser would show it without any filter."""

    texts: list[str] = field(default_factory=list)
    """The texts outside of code, one for each node."""
    code_blocks: list[str] = field(default_factory=list)
    code_spans: list[str] = field(default_factory=list)
    tags: set[str] = field(default_factory=set)
    urls: list[str] = field(default_factory=list)
    """Of links and images."""


def rendered(engine: str, text: str) -> Rendered:
    parser = _Parser()
    parser.feed(ENGINES[engine](text))
    parser.close()
    return parser.rendered


class _Parser(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.rendered = Rendered()
        self._open: list[str] = []
        self._code: str | None = None

    def parse_html_declaration(self, i: int) -> int:
        # To a browser, `<![` begins a comment that ends at the next `>`; the parser of Python 3.11 fails on it.
        return self.parse_bogus_comment(i) if self.rawdata.startswith("<![", i) else super().parse_html_declaration(i)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]):
        self.rendered.tags.add(tag)
        self.rendered.urls += [value or "" for name, value in attrs if name in ("href", "src")]
        if tag == "code":
            self._code = ""
        if tag not in _VOID_TAGS:
            self._open.append(tag)

    def handle_endtag(self, tag: str):
        if tag == "code" and self._code is not None:
            is_block = self._open[-2:-1] == ["pre"]
            # A line break in a span is a space.
            code = self._code if is_block else re.sub(r"\n", " ", self._code)
            (self.rendered.code_blocks if is_block else self.rendered.code_spans).append(code)
            self._code = None
        if tag in self._open:
            while self._open.pop() != tag:
                pass

    def handle_data(self, data: str):
        if self._code is None:
            self.rendered.texts.append(data)
        else:
            self._code += data

    def handle_comment(self, data: str):
        self.rendered.tags.add("!--")

    def handle_decl(self, decl: str):
        self.rendered.tags.add("!")

    def unknown_decl(self, data: str):
        self.rendered.tags.add("!")

    def handle_pi(self, data: str):
        self.rendered.tags.add("?")
