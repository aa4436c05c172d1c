"""Makes untrusted Markdown inert for GitHub and Gitea: nothing in it acts, and code stays as it is.

These act: mentions, references to issues and commands to bots, links that are no plain links to http and https, images
and HTML. A reader sees what was changed. Names, numbers and commands become code (@`octocat`), because GitHub and Gitea
look for them after they have removed backslashes and entities. The others get a backslash. Invisible characters become
U+FFFD.

The number of backquotes is one that the block does not contain. So they never change what other backquotes mean, even
if a parser finds other code in the block than this module.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Final

from hookmill.domain.markdown_blocks import Block, BlockKind, MarkdownBlocks, markdown_blocks

CUT: Final = "\n\n…"
"""Shows that the text was cut."""
_CUTS_MAX: Final = 8
_INVISIBLE: Final = (
    r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    r"\ufff9-\ufffb\U000e0000-\U000e0fff"
)
"""Controls, line separators, controls of the text direction, and characters without width that no emoji needs."""
_BLANK: Final = rf"(?:[^\S\n]|[{_INVISIBLE}\u200c\u200d])"
"""What bots may skip before a command."""
_COMMAND: Final = (
    r"[/!~$%][a-z]++|\.[a-z]++(?=[\w-]*+(?:\s|\Z))|(?:atlantis|bors|recheck|reverify|retest)(?=[\s:]|\Z)|r\?(?=[\ \t])"
    rf"|ok{_BLANK}++to{_BLANK}++test\b|test{_BLANK}++this{_BLANK}++please\b"
)
"""What bots obey at the beginning of a line."""
_URL_MAX: Final = 2_000
"""A longer URL becomes code in part, so that no text is read again and again."""
_PLAIN_URL: Final = r"https?://(?:(?!&[\#a-z0-9]+;)[!\#-'*-;=?-Z_a-z~])++"
_TOKEN: Final = re.compile(
    rf"""
    ^(?u:(?P<lead>{_BLANK}*+)(?P<command>{_COMMAND}))
    | (?P<scheme>(?:https?|ftp)://|www(?=\.))(?P<url>[^ \t\r\n<]{{0,{_URL_MAX}}}+)
    | (?P<email>(?<=[a-z0-9])@(?:[a-z0-9-]++\.)+[a-z]{{2,}}+(?![\w-]))
    | (?P<sign>\\?@)\\?(?u:(?P<name>[\w-]++(?:/[\w.-]++)?))
    | (?P<mark>\\?[\#!]|(?<![a-z])gh\\?-)(?P<number>[0-9]++)
    | (?P<wiki>\\?\[(?=\\?\[[^\[\]\n]*+\]\]))
    | (?P<escape>\\[!-/:-@\[-`{{-~])
    | (?P<ticks>`++)
    | (?P<autolink><{_PLAIN_URL}>)
    | (?P<link>\]\({_PLAIN_URL}\))
    | (?P<active><(?=[a-z/!?]) | \](?=[(:]) | !(?=\[) | &(?=\#|(?!(?:amp|lt|gt|quot|nbsp);)[a-z][a-z0-9]*+;))
    | (?P<invisible>[{_INVISIBLE}]++)
    """,
    # Otherwise, `[a-z]` would also match four letters that GitHub and Gitea take for none, such as U+017F.
    re.ASCII | re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
_CHAT_TOKEN: Final = re.compile(
    rf"""
    (?P<scheme>(?:https?|ftp)://|www(?=\.))(?P<url>[^ \t\r\n<]{{0,{_URL_MAX}}}+)
    | (?P<email>(?<=[a-z0-9])@(?!(?:all|channel|everyone|here)\b)(?:[a-z0-9-]++\.)+[a-z]{{2,}}+(?![\w-]))
    | (?P<sign>\\?@)\\?(?u:(?P<name>[\w-]++))
    | (?P<image>!)\[
    | (?P<active>\](?=:|\((?!
        [^\s<>()`\\@\[]*+(?:\ "[^"`\\@\n]*+")?+\)(?:[^\s<@`!]|!(?!\[)){{0,200}}+(?:[\s<]|\Z)
      )))
    | (?P<escape>\\[!-/:-@\[-`{{-~])
    | (?P<ticks>`++)
    | (?P<invisible>[{_INVISIBLE}]++)
    """,
    re.ASCII | re.IGNORECASE | re.VERBOSE,
)
"""What acts in chats that are compatible with Slack, but read Markdown, such as Mattermost. In other destinations
of links, backquotes would not enclose code. A URL may go on after the link."""
_ACTS_IN_URL: Final = re.compile(
    r"/(?:issues|pulls?|discussions|merge_requests)/|@(?=[\w-])|[#!](?=[0-9])|gh-[0-9]|\\|&[#a-z0-9]+;"
    rf"|!\[|\[\[|\](?=:|\((?!(?a:{_PLAIN_URL})\)))",
    re.IGNORECASE,
)
"""GitHub refers to an issue by its full URL. The others act if a parser finds no URL here, or a shorter one."""
_ACTS_IN_CHAT_URL: Final = re.compile(r"@(?=[\w-])|!\[")
_ANY_URL: Final = re.compile("")
_AFTER_URL: Final = "?!.,:;*_~'\")|>"
_LONE_SCHEME: Final = re.compile(
    rf"(?:(?:https?|ftp)://|www\.)[{_AFTER_URL}\\]*+(?:[\[\]]|\Z)", re.ASCII | re.IGNORECASE
)
_LIST_MARKER: Final = r"(?:[-+*]|[0-9]{1,9}[.)])[ \t]*+"
_LINE_START: Final = re.compile(
    rf"((?:\r?\n{_BLANK}*+(?:{_LIST_MARKER}(?=\r?\n))?+)++)((?:@|{_COMMAND})?)", re.IGNORECASE
)
_ENDS_WITH_LIST_MARKER: Final = re.compile(rf"(?:.*[ \t>])?{_LIST_MARKER}\r?")
_LINE_BREAK: Final = re.compile(r"\r?\n[ \t]*")
_COMMAND_LINE: Final = re.compile(rf"^{_BLANK}*+(?={_COMMAND})", re.IGNORECASE | re.MULTILINE)
_TICKS: Final = re.compile("`+")
_TICKS_OR_ESCAPE: Final = re.compile(r"`+|\\[!-/:-@\[-`{-~]")
_CELL_END: Final = re.compile(r"(?<!\\)\|")
_TICKS_MAX: Final = 80
"""GitHub finds no code in more backquotes."""
_BRACKET: Final = re.compile(r"[\[\]]")
_FOLLOWING_LINE: Final = re.compile(r"\r?\n[ \t]*+[^ \t\r\n]")
_STRUCTURE: Final = re.compile(r"([0-9]*)(?=[-+*>#=~_|:`<.)])")
_INVISIBLE_CHARACTERS: Final = re.compile(f"[{_INVISIBLE}]")
_UNUSABLE: Final = re.compile("[\x00\ud800-\udfff]")
_LONE_CARRIAGE_RETURN: Final = re.compile(r"\r(?!\n)")


def inert(text: str, following: str = "") -> str:
    """The Markdown, so that nothing in it acts, and then `following`, which is outside of all its blocks."""
    return _written(text, following, _TOKEN, _ACTS_IN_URL)


def inert_in_chat(text: str, following: str = "") -> str:
    """The Markdown for chats: without mentions, images and invisible characters outside of code. Links stay."""
    return _written(text, following, _CHAT_TOKEN, _ACTS_IN_CHAT_URL)


def inert_names(line: str) -> str:
    """A line with names, so that nothing in it acts in a chat: URLs become code, too."""
    return _written(line, "", _CHAT_TOKEN, _ANY_URL)


def inert_line(text: str) -> str:
    """A line for a receiver where no text acts: only invisible characters are replaced."""
    return _shown(_usable(text))


def _written(text: str, following: str, token: re.Pattern[str], acts_in_url: re.Pattern[str]) -> str:
    text = _plain(_usable(text))
    found = markdown_blocks(text)
    pieces: list[str] = []
    position = 0
    for block in found.blocks:
        pieces.append(text[position : block.start])
        position = block.end
        if block.kind is BlockKind.CODE:
            pieces += (_shown(text[block.start : block.code_start]), text[block.code_start : block.end])
            continue
        writer = _Writer(text, block, pieces, token, acts_in_url)
        for start, end in _contexts(text, block):
            writer.rewrite(start, end)
    pieces.append(text[position:])
    return "".join(pieces) + _ending(text, found, following)


def _ending(text: str, found: MarkdownBlocks, following: str) -> str:
    if not following or found.open_fence is None:
        return following
    return ("" if text.endswith("\n") else "\n") + found.open_fence + following


def closed(text: str) -> str:
    """The inert Markdown, with an end for the block of code that it leaves open. Other text may follow."""
    return text + _ending(text, markdown_blocks(text), "\n")


def fitted(
    text: str,
    size_max: int,
    make: Callable[[str, str], str],
    *,
    cut: str = CUT,
    is_cut: bool = False,
    following: str = "",
    size: Callable[[str], int] = len,
) -> str:
    """`make(text, following)`, with as much of the text as fits. `cut` then precedes `following`, as with `is_cut`.

    The source is cut, and then made inert: what a cut leaves open, such as code, can't act.
    """
    ending = cut + following
    made = make(text, ending if is_cut else following)
    available = max(0, size_max - size(ending))
    for _ in range(_CUTS_MAX):
        if size(made) <= size_max:
            return made
        made_size = size(make(text, ""))
        text = text[: min(len(text) - 1, len(text) * available // made_size)]
        made = make(text, ending)
    return made if size(made) <= size_max else ending


def _usable(text: str) -> str:
    """Text that can be encoded, and that all parsers divide into the same lines."""
    return _LONE_CARRIAGE_RETURN.sub("\n", _UNUSABLE.sub("\N{REPLACEMENT CHARACTER}", text))


def _shown(text: str) -> str:
    return _INVISIBLE_CHARACTERS.sub("\N{REPLACEMENT CHARACTER}", text)


def _plain(text: str) -> str:
    """The Markdown without blocks about which parsers could disagree. Nothing in it is inert yet.

    HTML becomes lines of text between blank lines, so that it changes no other block. What only looks like a table
    becomes text, or stays code. What nests too deep becomes code.
    """
    pieces: list[str] = []
    position = 0
    for block in markdown_blocks(text).blocks:
        if block.interrupts:
            pieces.append(text[position : block.start] + "\n")
            position = block.start
        if block.kind is BlockKind.HTML:
            pieces.append(text[position : block.start])
            position = _write_html(text, block, pieces)
        elif block.kind is BlockKind.PROSE or (
            block.kind is BlockKind.TABLE and text.find(r"\\|", block.start, block.end) >= 0
        ):
            spans = list(_code_spans(text, block)) if block.delimiters else []
            for delimiter in block.delimiters:
                number = bisect_left(spans, (delimiter, 0)) - 1
                is_code = number >= 0 and delimiter < spans[number][1]
                line_end = text.rfind("\n", 0, delimiter)
                line_start = text.rfind("\n", 0, max(0, line_end)) + 1
                if is_code and not _ENDS_WITH_LIST_MARKER.fullmatch(text, line_start, line_end):
                    # A space means the same in code as a line break.
                    pieces.append(text[position:line_end].removesuffix("\r") + " ")
                else:
                    pieces.append(text[position:delimiter] + "\\")
                position = delimiter
        elif block.kind is BlockKind.DEEP:
            fence = "`" * max(3, 1 + max(map(len, _TICKS.findall(text, block.start)), default=0))
            content = _COMMAND_LINE.sub(r"\\\g<0>", text[block.start :])
            pieces.append(f"{text[position : block.start]}\n{fence}\n{content}\n{fence}")
            position = len(text)
    pieces.append(text[position:])
    return "".join(pieces)


def _write_html(text: str, block: Block, pieces: list[str]) -> int:
    position = block.start
    for content in block.contents:
        pieces.append(text[position:content])
        position = content
        while position < block.end and text[position] in " \t":
            position += 1
        if structure := _STRUCTURE.match(text, position, block.end):
            pieces.append(f"{structure[0]}\\")
            position = structure.end()
    pieces.append(text[position : block.end])
    if _FOLLOWING_LINE.match(text, block.end):
        pieces.append("\n")
    return block.end


def _contexts(text: str, block: Block) -> Iterator[tuple[int, int]]:
    """Where code can begin and end: in the whole block, or in one cell of a table."""
    start = block.start
    if block.kind is not BlockKind.TABLE:
        for end in (*block.lazy_lines, block.end):
            yield start, end
            start = end
        return
    while start < block.end:
        line_end = text.find("\n", start, block.end)
        line_end = block.end if line_end < 0 else line_end
        for cell_end in _CELL_END.finditer(text, start, line_end):
            yield start, cell_end.end()
            start = cell_end.end()
        yield start, min(line_end + 1, block.end)
        start = line_end + 1


class _CodeSpans:
    """Finds the end of code that begins with backquotes."""

    def __init__(self, text: str, start: int, end: int) -> None:
        self._starts: dict[int, list[int]] = {}
        for ticks in _TICKS.finditer(text, start, end):
            self._starts.setdefault(len(ticks[0]), []).append(ticks.start())

    def end_of(self, start: int, length: int) -> int | None:
        starts = self._starts.get(length, []) if length <= _TICKS_MAX else []
        number = bisect_left(starts, start + length)
        return starts[number] + length if number < len(starts) else None


class _Writer:
    """Writes the text of one block so that it is inert."""

    def __init__(
        self, text: str, block: Block, pieces: list[str], token: re.Pattern[str], acts_in_url: re.Pattern[str]
    ) -> None:
        self._text = text
        self._token = token
        self._acts_in_url = acts_in_url
        self._pieces = pieces
        lengths = {len(ticks) for ticks in _TICKS.findall(text, block.start, block.end)}
        unused = next((length for length in range(1, _TICKS_MAX + 1) if length not in lengths), None)
        self._keeps_code = unused is not None
        # Where no code is kept, each of the original backquotes stands for itself.
        self._quote = "`" * (unused or 2)

    def rewrite(self, start: int, end: int) -> None:
        text = self._text
        spans = _CodeSpans(text, start, end)
        position = start
        while token := self._token.search(text, position, end):
            self._pieces.append(text[position : token.start()])
            position = token.end()
            match token.lastgroup:
                case "command":
                    lead, command = token["lead"], token["command"]
                    name_start = 0 if command[0].isalpha() else 1
                    self._pieces.append(_shown(lead) + command[:name_start])
                    self._write_code(command[name_start:], position)
                case "url":
                    position = self._write_url(token["scheme"], token["url"], token.start("url"))
                case "email" if not self._before().isalnum() or self._acts_in_url.search(token["email"], 1):
                    self._pieces.append("@")
                    self._write_code(token["email"][1:], position)
                case "name":
                    self._pieces.append(token["sign"])
                    self._write_code(token["name"], position)
                case "number":
                    self._pieces.append(token["mark"])
                    self._write_code(token["number"], position)
                case "image":
                    self._pieces.append("!")
                    self._write_code("[", position)
                case "wiki":
                    self._pieces.append("[")
                    self._write_code("[", position)
                    position = text.index("[", position) + 1
                case "ticks":
                    code_end = spans.end_of(token.start(), len(token[0])) if self._keeps_code else None
                    if code_end is None:
                        # GitHub finds no code of this length after backquotes that enclose nothing.
                        self._pieces.append("\\`" * len(token[0]))
                    else:
                        position = code_end
                        self._pieces.append(_on_one_line(text[token.start() : position]))
                case "autolink" | "link" if not _ACTS_IN_URL.search(token[0]):
                    self._pieces.append(token[0])
                case "autolink" | "link" | "active":
                    self._pieces.append(f"\\{token[0][0]}")
                    position = token.start() + 1
                case "invisible":
                    self._pieces.append(_shown(token[0]))
                case _:
                    self._pieces.append(token[0])
        self._pieces.append(text[position:end])

    def _write_url(self, scheme: str, run: str, start: int) -> int:
        """Write the URL at the beginning of the run. Returns where it ends.

        GitHub's URLs go on until a space or a `<`. So backquotes would be part of the URL, and so would a backslash
        before a `<`. Even a scheme alone can be a URL for GitHub.
        """
        url, ticks, _ = run.partition("`")
        if not ticks:
            url = _BRACKET.split(run, maxsplit=1)[0].rstrip(_AFTER_URL)
        if not url.strip("\\"):
            if ticks:
                self._pieces.append(scheme)
            else:
                self._write_code(scheme, start)
            return start
        self._pieces.append(scheme)
        end = start + len(url)
        goes_on = len(run) == _URL_MAX or self._text.startswith("<", start + len(run))
        if ticks or goes_on or self._acts_in_url.search(run) or _LONE_SCHEME.search(run, len(url)):
            self._write_code(url, end)
        else:
            self._pieces.append(_shown(url))
        return end

    def _before(self) -> str:
        """The last character that was written. After code, an address is a mention: receivers remove the code first."""
        return next((piece[-1] for piece in reversed(self._pieces) if piece), "")

    def _write_code(self, code: str, end: int) -> None:
        """Write text as code. A space separates it from backquotes around it, and from a backslash."""
        separator = " " if self._before() in ("`", "\\") else ""
        self._pieces.append(separator + self._quote + _shown(code) + self._quote)
        if self._text.startswith("`", end):
            self._pieces.append(" ")


def _on_one_line(span: str) -> str:
    """Code between backquotes, with spaces for the line breaks before a command: they mean the same.

    A list marker without text, which can't interrupt the code, would begin a list in front of the command.
    """
    return _LINE_START.sub(lambda match: match[0] if not match[2] else _LINE_BREAK.sub(" ", match[0]), span)


def _code_spans(text: str, block: Block) -> Iterator[tuple[int, int]]:
    for start, end in _contexts(text, block):
        spans = _CodeSpans(text, start, end)
        position = start
        while ticks := _TICKS_OR_ESCAPE.search(text, position, end):
            position = ticks.end()
            if ticks[0][0] == "`" and (code_end := spans.end_of(ticks.start(), len(ticks[0]))):
                yield ticks.start(), code_end
                position = code_end
