"""Finds the blocks of Markdown: code, prose, tables and HTML, by the rules of CommonMark and of GitHub's tables.

The algorithm is that of cmark, which GitHub uses: line by line, with a stack of open quotes and list items. It takes
linear time. Link definitions are prose, because callers make them inert.
"""

import re
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

DEPTH_MAX: Final = 40
"""From the line that nests deeper, the rest of the text is one block of the kind `DEEP`."""
_CODE_INDENT: Final = 4
_FENCE: Final = re.compile(r"(`{3,})[^`\n]*$|(~{3,})")
_HEADING: Final = re.compile(r"#{1,6}(?:[ \t]|$)")
_SETEXT_UNDERLINE: Final = re.compile(r"(?:=+|-+)[ \t]*$")
_THEMATIC_BREAK: Final = re.compile(r"(?:(?:\*[ \t]*){3,}|(?:_[ \t]*){3,}|(?:-[ \t]*){3,})$")
_LIST_MARKER: Final = re.compile(r"(?:[-+*]|([0-9]{1,9})[.)])(?=[ \t]|$)")
_DELIMITER_ROW: Final = re.compile(r"\|?[ \t]*+:?-++:?[ \t]*+(?:\|[ \t]*+:?-++:?[ \t]*+)*+\|?[ \t]*+$")
_CELL_END: Final = re.compile(r"(?<!\\)\|")
_TAG_NAMES: Final = (
    "address|article|aside|base|basefont|blockquote|body|caption|center|col|colgroup|dd|details|dialog|dir|div|dl|dt|"
    "fieldset|figcaption|figure|footer|form|frame|frameset|h[1-6]|head|header|hr|html|iframe|legend|li|link|main|menu|"
    "menuitem|nav|noframes|ol|optgroup|option|p|param|search|section|source|summary|table|tbody|td|tfoot|th|thead|"
    "title|tr|track|ul"
)
_ATTRIBUTE: Final = r"""[ \t]++[a-z_:][\w.:-]*+(?:[ \t]*+=[ \t]*+(?:[^ \t"'=<>`]++|'[^']*+'|"[^"]*+"))?+"""
_UNTIL_BLANK: Final = re.compile(r"(?!)")
_HTML: Final = tuple(
    (re.compile(start, re.ASCII | re.IGNORECASE), re.compile(end, re.ASCII | re.IGNORECASE) if end else _UNTIL_BLANK)
    for start, end in (
        (r"<(?:script|pre|style|textarea)(?:[ \t>]|$)", r"</(?:script|pre|style|textarea)>"),
        (r"<!--", r"-->"),
        (r"<\?", r"\?>"),
        (r"<![a-z]", r">"),
        (r"<!\[CDATA\[", r"\]\]>"),
        (rf"</?(?:{_TAG_NAMES})(?:[ \t]|/?>|$)", ""),
        (rf"(?:<[a-z][a-z0-9-]*+(?:{_ATTRIBUTE})*+[ \t]*+/?>|</[a-z][a-z0-9-]*+[ \t]*+>)[ \t]*+$", ""),
    )
)
"""How each kind of HTML block begins and ends. The last kind can't interrupt a paragraph."""


class BlockKind(Enum):
    CODE = auto()
    PROSE = auto()
    TABLE = auto()
    """Code in a row can't contain a `|` without a backslash."""
    HTML = auto()
    DEEP = auto()
    """All kinds of blocks, which nest too deep."""


@dataclass(slots=True, kw_only=True)
class Block:
    """Whole lines of the text, with what encloses them, such as `>`. Blank lines are in no block, or in code."""

    kind: BlockKind
    start: int
    end: int
    """Where the last line ends, without its line break."""
    code_start: int
    """Of fenced code: where the line with the fence ends. Of other blocks: `start`."""
    contents: list[int] = field(default_factory=list)
    """Of HTML: where the content of each line begins, after what encloses it."""
    interrupts: bool = False
    """Of HTML, and of indented code after a table: a parser could take it for more of the text before it."""
    lazy_lines: list[int] = field(default_factory=list)
    """Of prose: where each line begins that lacks what encloses the block. Parsers disagree about such lines."""
    delimiters: list[int] = field(default_factory=list)
    """Of prose and tables: where a line begins that has the form of a table's second line, after what encloses it."""


@dataclass(slots=True, kw_only=True)
class MarkdownBlocks:
    blocks: list[Block]
    open_fence: str | None
    """The line that would end the last block, if this is code that is open at the end of the text."""


@dataclass(slots=True)
class _Container:
    width: int
    """The columns of a list item before its content; 0 for a quote."""
    is_empty: bool


class _Leaf(Enum):
    NONE = auto()
    PARAGRAPH = auto()
    TABLE = auto()
    FENCED = auto()
    INDENTED = auto()
    HTML = auto()


def markdown_blocks(text: str) -> MarkdownBlocks:
    """The blocks of the text. Its line breaks are `\\n` and `\\r\\n`."""
    return _Scanner(text).blocks()


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._blocks: list[Block] = []
        self._containers: list[_Container] = []
        self._leaf = _Leaf.NONE
        self._fence = ""
        self._html_end = _UNTIL_BLANK
        self._last_content = 0
        """Where the content of the paragraph's last line begins."""
        # The current line: its end, and how much of it is read. A tab can be read in part.
        self._start = self._end = self._position = self._column = 0
        self._next = self._indent = 0

    def blocks(self) -> MarkdownBlocks:
        text = self._text
        length = len(text)
        start = 0
        while start < length:
            line_end = text.find("\n", start)
            line_end = length if line_end < 0 else line_end
            self._start = self._position = start
            self._end = line_end - 1 if line_end > start and text[line_end - 1] == "\r" else line_end
            self._column = 0
            if not self._read_line():
                self._blocks.append(Block(kind=BlockKind.DEEP, start=start, end=length, code_start=start))
                return MarkdownBlocks(blocks=self._blocks, open_fence=None)
            start = line_end + 1
        if self._leaf is not _Leaf.FENCED:
            return MarkdownBlocks(blocks=self._blocks, open_fence=None)
        enclosing = "".join(" " * container.width or "> " for container in self._containers)
        return MarkdownBlocks(blocks=self._blocks, open_fence=enclosing + self._fence)

    def _read_line(self) -> bool:
        """False if the line nests too deep."""
        matched = self._matched_containers()
        is_inside = matched == len(self._containers)
        if is_inside and self._continues_leaf():
            return True
        leaf = self._leaf
        is_after_paragraph = is_inside and leaf is _Leaf.PARAGRAPH
        can_be_lazy = leaf is _Leaf.PARAGRAPH
        while True:
            self._find_next()
            if self._is_blank():
                self._close(matched)
                return True
            if self._indent >= _CODE_INDENT:
                if can_be_lazy:
                    break
                is_after_table = self._leaf is _Leaf.TABLE
                self._close(matched)
                self._add(_Leaf.INDENTED, BlockKind.CODE)
                self._blocks[-1].interrupts = is_after_table
                return True
            if self._starts_leaf(matched, is_after_paragraph=is_after_paragraph):
                return True
            container = self._container_here(is_after_paragraph=is_after_paragraph)
            if container is None:
                break
            self._close(matched)
            if len(self._containers) >= DEPTH_MAX:
                return False
            if self._containers:
                self._containers[-1].is_empty = False
            self._containers.append(container)
            matched = len(self._containers)
            is_inside = True
            is_after_paragraph = can_be_lazy = False
        if self._leaf is _Leaf.PARAGRAPH and (is_after_paragraph or not is_inside):
            self._continue_paragraph(is_inside=is_inside)
        elif is_inside and self._leaf is _Leaf.TABLE:
            block = self._blocks[-1]
            block.end = self._end
            if _DELIMITER_ROW.match(self._text, self._next, self._end):
                block.delimiters.append(self._next)
        else:
            self._close(matched)
            self._add(_Leaf.PARAGRAPH, BlockKind.PROSE)
            self._last_content = self._next
        return True

    def _matched_containers(self) -> int:
        for number, container in enumerate(self._containers):
            self._find_next()
            if container.width == 0:
                if self._indent >= _CODE_INDENT or self._is_blank() or self._text[self._next] != ">":
                    return number
                self._read_quote_marker()
            elif self._indent >= container.width:
                self._advance(container.width)
            elif self._is_blank() and not container.is_empty:
                self._position = self._next
            else:
                return number
        return len(self._containers)

    def _continues_leaf(self) -> bool:
        """Whether the line belongs to open code or HTML."""
        if self._leaf not in (_Leaf.FENCED, _Leaf.INDENTED, _Leaf.HTML):
            return False
        self._find_next()
        block = self._blocks[-1]
        if self._leaf is _Leaf.FENCED:
            block.end = self._end
            if self._indent < _CODE_INDENT and self._ends_fence():
                self._leaf = _Leaf.NONE
            return True
        if self._leaf is _Leaf.INDENTED:
            if self._is_blank():
                return True
            if self._indent < _CODE_INDENT:
                return False
            block.end = self._end
            return True
        if self._is_blank() and self._html_end is _UNTIL_BLANK:
            self._leaf = _Leaf.NONE
            return True
        self._add_html_line()
        return True

    def _ends_fence(self) -> bool:
        line = self._text[self._next : self._end].rstrip(" \t")
        return len(line) >= len(self._fence) and not line.strip(self._fence[0])

    def _starts_leaf(self, matched: int, *, is_after_paragraph: bool) -> bool:
        """Whether a heading, fenced code, HTML or a thematic break begins here, or underlines the paragraph."""
        text, at, end = self._text, self._next, self._end
        character = text[at]
        is_after_text = self._leaf in (_Leaf.PARAGRAPH, _Leaf.TABLE)
        if character in "`~" and (fence := _FENCE.match(text, at, end)):
            self._close(matched)
            self._fence = fence[1] or fence[2]
            self._add(_Leaf.FENCED, BlockKind.CODE)
            self._blocks[-1].code_start = end
            return True
        if character == "<":
            for kind, (begins, ends) in enumerate(_HTML):
                if begins.match(text, at, end) and not (kind == len(_HTML) - 1 and is_after_paragraph):
                    self._html_end = ends
                    self._close(matched)
                    self._add(_Leaf.HTML, BlockKind.HTML)
                    self._blocks[-1].interrupts = is_after_text
                    self._add_html_line()
                    return True
            return False
        is_underline = is_after_paragraph and character in "=-" and _SETEXT_UNDERLINE.match(text, at, end)
        if (
            is_underline
            or (character == "#" and _HEADING.match(text, at, end))
            or (character in "*_-" and _THEMATIC_BREAK.match(text, at, end))
        ):
            self._close(matched)
            self._add(_Leaf.NONE, BlockKind.PROSE)
            return True
        return False

    def _add_html_line(self) -> None:
        block = self._blocks[-1]
        block.end = self._end
        block.contents.append(self._position)
        if self._html_end.search(self._text, self._next, self._end):
            self._leaf = _Leaf.NONE

    def _container_here(self, *, is_after_paragraph: bool) -> _Container | None:
        """The quote or the list item that begins here; its marker is read."""
        text = self._text
        if text[self._next] == ">":
            self._read_quote_marker()
            return _Container(0, is_empty=False)
        marker = _LIST_MARKER.match(text, self._next, self._end)
        if marker is None:
            return None
        is_blank = not text[marker.end() : self._end].strip(" \t")
        if is_after_paragraph and (is_blank or (marker[1] is not None and int(marker[1]) != 1)):
            return None
        marker_width = self._indent + len(marker[0])
        self._advance(marker_width)
        self._find_next()
        spaces = self._indent
        if is_blank or spaces > _CODE_INDENT:
            self._advance(1)
            spaces = 1
        else:
            self._advance(spaces)
        return _Container(marker_width + spaces, is_empty=True)

    def _continue_paragraph(self, *, is_inside: bool) -> None:
        block = self._blocks[-1]
        if not is_inside:
            block.lazy_lines.append(self._start)
        text = self._text
        if _DELIMITER_ROW.match(text, self._next, self._end):
            header = text[self._last_content : block.end]
            # GitHub tries only the first such line of a paragraph.
            if is_inside and not block.delimiters and _cells(header) == _cells(text[self._next : self._end]):
                line_start = text.rfind("\n", block.start, block.end) + 1
                if line_start > block.start:
                    block.end = line_start - 1
                    block = Block(kind=BlockKind.TABLE, start=line_start, end=self._end, code_start=line_start)
                    self._blocks.append(block)
                self._leaf = _Leaf.TABLE
                block.kind = BlockKind.TABLE
            block.delimiters.append(self._next)
        block.end = self._end
        self._last_content = self._next

    def _add(self, leaf: _Leaf, kind: BlockKind) -> None:
        self._blocks.append(Block(kind=kind, start=self._start, end=self._end, code_start=self._start))
        self._leaf = leaf
        if self._containers:
            self._containers[-1].is_empty = False

    def _close(self, matched: int) -> None:
        """Close the open block, and the containers that the line does not continue."""
        del self._containers[matched:]
        self._leaf = _Leaf.NONE

    def _is_blank(self) -> bool:
        return self._next >= self._end

    def _read_quote_marker(self) -> None:
        self._position = self._next + 1
        self._column += self._indent + 1
        if self._position < self._end and self._text[self._position] in " \t":
            self._advance(1)

    def _find_next(self) -> None:
        """Find the next character that is no space and no tab, and the columns before it."""
        text, position, column, end = self._text, self._position, self._column, self._end
        while position < end:
            character = text[position]
            if character == " ":
                column += 1
            elif character == "\t":
                column += 4 - column % 4
            else:
                break
            position += 1
        self._next = position
        self._indent = column - self._column

    def _advance(self, columns: int) -> None:
        text = self._text
        while columns > 0 and self._position < self._end:
            width = 4 - self._column % 4 if text[self._position] == "\t" else 1
            if width > columns:
                self._column += columns
                return
            self._column += width
            self._position += 1
            columns -= width


def _cells(row: str) -> int:
    row = row.strip(" \t\r")
    ends = len(_CELL_END.findall(row))
    return ends + 1 - row.startswith("|") - (len(row) > 1 and row.endswith("|") and not row.endswith("\\|"))
