"""Renders untrusted Markdown as HTML that can't do anything: text, lists, tables, code, and links to http and https.

Raw HTML is shown as text. An image becomes the text of its description, because loading it would tell its server who
reads the page. Definitions of links are text, because each use of one would repeat its URL.

Pages are rendered in the process that accepts deliveries. So only a limited amount of markup is rendered.
"""

import re
from collections.abc import Sequence
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from markupsafe import Markup

from hookmill.domain import text

CHARACTERS_MAX: Final = 65_536
"""The rest of a longer text is left out."""
COST_MAX: Final = 10_000
"""How much markup is rendered, which takes about 0.1 s at most. What follows is shown as plain text."""
_LINE_COST: Final = 5
"""A line, such as one with an element of a list, takes the time of about five characters of markup."""
_MARKUP: Final = re.compile(r"[^\w\s,.]")
_LINK: Final = re.compile(r"https?://[^/?#\s]", re.IGNORECASE)
_HEADING_LEVEL_MAX: Final = 6
_FIRST_HEADING_LEVEL: Final = 3
"""The level of the text's first-level headings: they are below the page's own headings."""


class _InertRenderer(RendererHTML):
    """Renders what the parser has found, without images."""

    def link_open(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
        tokens[index].attrSet("rel", "nofollow noopener noreferrer")
        return self.renderToken(tokens, index, options, env)

    def image(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
        description = self.renderInlineAsText(tokens[index].children or [], options, env)
        return str(Markup("<em>[image: {}]</em>").format(description or "no description"))

    def heading_open(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
        return f"<{_heading_tag(tokens[index])}>"

    def heading_close(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
        return f"</{_heading_tag(tokens[index])}>\n"


def _heading_tag(token: Token) -> str:
    level = int(token.tag.removeprefix("h"))
    return f"h{min(level - 1 + _FIRST_HEADING_LEVEL, _HEADING_LEVEL_MAX)}"


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}, renderer_cls=_InertRenderer).enable("table")
    # The rules for raw HTML are not only switched off, but absent.
    parser.disable(["html_block", "html_inline", "reference"])
    parser.validateLink = lambda url: _LINK.match(url) is not None  # type: ignore[method-assign]
    return parser


_markdown: Final = _parser()


def inert_markdown(source: str) -> Markup:
    """The Markdown as HTML. Invisible characters are shown as text, as everywhere on pages."""
    shown = text.shown_lines(source[:CHARACTERS_MAX].replace("\r\n", "\n"))
    end = _affordable_end(shown)
    # The renderer escapes every text and every attribute.
    html = Markup(_markdown.render(shown[:end]))  # noqa: S704
    return html + (_PLAIN_REST.format(shown[end:]) if end < len(shown) else "")


_PLAIN_REST: Final = Markup(
    '<p class="quiet">The rest has too much markup. It is shown as plain text.</p>\n'
    '<pre class="wrap" tabindex="0" aria-label="Rest as plain text">{}</pre>\n'
)


def _affordable_end(source: str) -> int:
    """Where the first line begins that would exceed `COST_MAX`."""
    cost = end = cells = 0
    for line in source.split("\n"):
        # Each row of a table gets as many cells as its first one.
        cells = max(cells, line.count("|")) if line.strip() else 0
        cost += _LINE_COST + cells + len(_MARKUP.findall(line))
        if cost > COST_MAX:
            return end
        end += len(line) + 1
    return len(source)
