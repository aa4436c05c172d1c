"""Untrusted Markdown for comments: nothing in it acts, and code arrives byte for byte.

Two independent parsers read each text. A parser must find nothing that acts, and the same code as in the original.
"""

import json
import re
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hookmill.domain.check_run import check_run_body
from hookmill.domain.inert_text import fitted, inert, inert_in_chat
from hookmill.domain.markdown_blocks import DEPTH_MAX
from hookmill.domain.result_text import comment_body, slack_body, webhook_body
from tests.domain.summaries import INDENTS, SUMMARY_COUNT, summary
from tests.domain.test_result_text import MARKER, URL, result
from tests.support.counts import count, one_usually
from tests.support.markdown_engines import ENGINES, rendered

EXAMPLES = count(4_000, usually=150)
TAGS = frozenset(
    "a blockquote br code del em h1 h2 h3 h4 h5 h6 hr input li ol p pre s strong table tbody td th thead tr ul".split()
)
"""What Markdown alone can create, without images."""
ACTS = re.compile(r"(?<![a-zA-Z0-9])@[\w-]|[#!]\d|(?<![a-zA-Z])[gG][hH]-\d|\[\[[^\[\]\n]*\]\]")
"""What GitHub or Gitea finds in the text of one node outside of code."""
MENTION = re.compile(r"(?<![a-zA-Z0-9])@[\w-]|@(?:all|channel|everyone|here)\b", re.IGNORECASE)
ISSUE = re.compile(r"https?://[\w.]+/[\w./-]*/?(issues|pull)/\d")
COMMAND = re.compile(
    r"/[a-z]|\.[a-z]+(\s|$)|![a-z]|(atlantis|bors|recheck|reverify|retest)(\s|:|$)|@[a-z]|ok\s+to\s+test\b|"
    r"test\s+this\s+please\b",
    re.IGNORECASE,
)
BLANK = " \t\xa0\u1680\u2028\u2029\u202f\u3000\ufeff\u200b\u200c\u200d\u202e\x0b\x0c\x1c\x1d\x1e\x1f\x85\r\U000e0041"


def acting(engine: str, text: str) -> list[str]:
    """What acts in the text, as this parser reads it, or for a bot that reads it line by line."""
    found = rendered(engine, text)
    lines_of_code = {line.strip(BLANK) for block in found.code_blocks for line in re.split(r"[\n\u2028\u2029]", block)}
    # Code is not changed: a bot that does not know Markdown can take U+2028 in it for the end of a line.
    ends_of_spans = [
        end.strip(BLANK)
        for span in found.code_spans
        for end in re.split(r"[\u2028\u2029]", span)[1:]
        if end.strip(BLANK)
    ]
    lines = [line.strip(BLANK) for line in re.split(r"[\n\u2028\u2029]", text)]
    return [
        *sorted(found.tags - TAGS),
        *(url for url in found.urls if ISSUE.match(url) or not re.match(r"(?i:https?|ftp)://|mailto:", url)),
        *(match[0] for node in found.texts for match in ACTS.finditer(node)),
        *(
            line
            for line in lines
            if COMMAND.match(line)
            and line not in lines_of_code
            and not any(line.startswith(end) or end.startswith(line) for end in ends_of_spans)
        ),
    ]


def has_code_of(original: list[str], code: list[str]) -> bool:
    """Whether each code of the original is there, in the same order. What was made inert can be further code."""
    rest = iter(code)
    return all(each in rest for each in original)


def to_comment(text: str) -> str:
    body = comment_body(result(summary=text))
    assert body is not None
    return body.removeprefix(MARKER)


def to_check_run(text: str) -> str:
    body = check_run_body(result(summary=text), name="ci", commit="a" * 40, started_at=0, details_url=None)
    return str(body["output"]["summary"])


def to_slack(text: str) -> str:
    body = slack_body(result(summary=text))
    assert (body["mrkdwn"], body["link_names"]) == (False, False)
    assert not re.search(r"[<>]|&(?!amp;|lt;|gt;)", body["text"])
    shown = body["text"].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    return str(shown.removeprefix("review: The run succeeded.\n\n").removesuffix(f"\n\n{URL}"))


INERT = [
    ("@octocat", "@`octocat`"),
    ("@acme/security", "@`acme/security`"),
    ("\\@octocat", "\\@`octocat`"),
    ("*a*@octocat", "*a*@`octocat`"),
    ("`x`@octocat`y`", "`x`@``octocat`` `y`"),
    ("array@flat", "array@`flat`"),
    ("acme/shop@deadbeef", "acme/shop@`deadbeef`"),
    ("&#x40;octocat", "\\&#x40;octocat"),
    ("&commat;octocat", "\\&commat;octocat"),
    ("@x@john.doe #1@john.doe", "@`x`@`john.doe` #`1`@`john.doe`"),
    ("a@b.example.gh-1 a@gh-1.example", "a@b.example.gh-`1` a@`gh-1.example`"),
    ("\u212a@octocat.\u017f\u017f x@octocat.\u0131\u0130", "\u212a@`octocat`.\u017f\u017f x@`octocat`.\u0131\u0130"),
    ("\u017fGH-1 \u212aGH-1", "\u017fGH-`1` \u212aGH-`1`"),
    ("[x](http\u017f://a.example)", "[x\\](http\u017f://a.example)"),
    ("Fixes #1", "Fixes #`1`"),
    ("acme/shop#1", "acme/shop#`1`"),
    ("\\#1 \\!1", "\\#`1` \\!`1`"),
    ("GH-1 gh\\-1 12GH-1", "GH-`1` gh\\-`1` 12GH-`1`"),
    ("https://github.com/acme/shop/issues/1.", "https://`github.com/acme/shop/issues/1`."),
    ("https://evil.example/@octocat", "https://`evil.example/@octocat`"),
    ("https://evil.example/<b>", "https://`evil.example/`\\<b>"),
    ("https://evil.example/`x @octocat `y`", "https://``evil.example/`` `x @octocat `y\\`"),
    ("[x](https://github.com/a/b/pull/1)", "[x\\](https://`github.com/a/b/pull/1`)"),
    ("[x](/login)", "[x\\](/login)"),
    ("[x](javascript:y)", "[x\\](javascript:y)"),
    ("[x](/u`) @octocat `", "[x\\](/u`) @octocat `"),
    ("[x]: /login", "[x\\]: /login"),
    ("[^1]: @octocat", "[^1\\]: @`octocat`"),
    ("![x](https://evil.example/x.png)", "\\![x](https://evil.example/x.png)"),
    ("www.<img src=https://evil.example/x.png>", "`www`.\\<img src=https://evil.example/x.png>"),
    ("(www.*<a href='/logout'>", "(`www`.*\\<a href='/logout'>"),
    ("www.~~<https://evil.example/issues/1>", "`www`.~~\\<https://`evil.example/issues/1`>"),
    ("[[x.png]]", "[`[`x.png]]"),
    ("<https://evil.example/issues/1>", "\\<https://`evil.example/issues/1`>"),
    ("a <img src=x> b", "a \\<img src=x> b"),
    ("<!-- hookmill run_1 0 -->", "\\<!-- hookmill run_1 0 -->"),
    ("/merge", "/`merge`"),
    ("\u00a0 /merge it", "\u00a0 /`merge` it"),
    ("a\u2028/merge", "a\ufffd/merge"),
    ("a\r/merge", "a\n/`merge`"),
    ("bors r+", "`bors` r+"),
    ("atlantis apply", "`atlantis` apply"),
    ("OK  to test", "`OK  to test`"),
    ("Test this please.\n- retest this please", "`Test this please`.\n- retest this please"),
    ("retest this please", "`retest` this please"),
    (".deploy now", ".`deploy` now"),
    ("`a\n/merge`", "`a /merge`"),
    ("a\u202eb\u200bc\U000e0041", "a\ufffdb\ufffdc\ufffd"),
    ("odd ` ``a`` ``b``", "odd \\` ``a`` ``b``"),
    ("\ud800\0", "\ufffd\ufffd"),
    ("```x\u2028/merge\n```", "```x\ufffd/merge\n```"),
]


@pytest.mark.parametrize(("text", "expected"), INERT)
@pytest.mark.parametrize("engine", ENGINES)
def test_what_would_act_is_inert_and_visible(engine, text, expected):
    assert inert(text) == expected
    assert acting(engine, expected) == []
    assert acting(engine, f"a\n{expected} b") == []


@pytest.mark.parametrize(
    "text",
    [
        "# Done\n\n- two `a < b` bugs & more\n- [ ] open\n\n1. **3 of 4**, a/b, 5:30 \u2192 1 > 0 [x]\n",
        "[docs](https://docs.example/a?b=1&c=2#d), <https://docs.example/a_b>, https://docs.example/#L12.",
        "ops@example.com, a&amp;b, C#, path/to/x.py, ~~old~~ _new_ \\*, 50 %",
        "| a | `b \\| @c` |\n|---|---|\n| 1 | 2 |\n",
        "Zero-width joiners stay in \U0001f469\u200d\U0001f4bb.\r\n\r\nLast line\r\n",
        "",
    ],
)
def test_harmless_markdown_is_unchanged(text):
    assert inert(text) == text
    assert inert_in_chat(text) == text


HOSTILE_CODE = (
    "@dataclass\n#12 GH-1 https://github.com/a/b/issues/1\n/merge\n\u2028/merge \u00a0\x0b\u200b\u202e<b>&#64;\\`"
)
ENCLOSED_CODE = [
    "```py\n{}\n```",
    "``````\n{}\n```\n``````",
    "~~~ py\n{}\n~~~",
    "   ```\n{}\n  ```  ",
    "text\n```\n{}\n```\ntext",
    "```\n{}\n",
    "~~~~\n{}\n~~~\n",
    "<details>\n<summary>x</summary>\n\n```\n{}\n```\n\n</details>",
    "<!--\n```\n-->\n```\n{}\n```",
    "- a\n\n  ```\n  {}\n  ```\n- b",
    "- ```\n  {}\n  ```",
    "<\u017fcript>\n\n```\n{}\n```",
    "12) a\n    ```\n    {}\n",
    "> ```\n> {}\n> ```",
    "> - a\n>   ~~~\n>   {}\n>   ~~~",
    "text\n\n    {}\n\ntext",
    "\t{}",
    "- a\n\n      {}",
    "-     {}",
    ">     {}",
    "# a\n    {}",
    "<!-- x -->\n    {}",
    "| a |\n|---|\n    {}",
]
LINE_STARTS = re.compile(r"[^\n]*(?=\{\})")


def enclosed(template: str, code: str) -> str:
    """The code in the template, with what encloses its first line before each line."""
    start = LINE_STARTS.search(template)
    assert start is not None
    other_lines = start[0].replace("-", " ") if start[0].startswith("-") else start[0]
    return template.replace("{}", code.replace("\n", f"\n{other_lines}"))


@pytest.mark.parametrize("template", ENCLOSED_CODE)
@pytest.mark.parametrize("engine", ENGINES)
def test_code_arrives_byte_for_byte(engine, template):
    text = enclosed(template, HOSTILE_CODE)
    code = rendered(engine, text).code_blocks

    assert any("@dataclass" in block for block in code)
    for made in (inert(text), inert_in_chat(text), inert(text, "\n\n@octocat")):
        assert has_code_of(code, rendered(engine, made).code_blocks)
    assert acting(engine, inert(text)) == []
    assert "@octocat" not in "".join(rendered(engine, inert(text, "\n\n@octocat")).code_blocks)


@pytest.mark.parametrize(
    "text",
    ["`@a`", "`` ` @a ``", "a `x\ny` c", "**`#1`** [`@a`](https://a.example)", "> `@a\n> #1`", "# `@a` `x\u2028`"],
)
@pytest.mark.parametrize("engine", ENGINES)
def test_code_in_a_line_arrives_byte_for_byte(engine, text):
    assert inert(text) == text
    assert acting(engine, text) == []


URL_STARTS = ["www.", "WWW.", "http://", "https://", "ftp://", "HTTPS://", "mailto:", "xmpp:", "a@b.example", "//"]
AFTER_URL_STARTS = ["", ".", "*", "~~", "a.b", "a.b*", "a.b\\", ")", "|", "[", "&", "\x0b", "\u200b"]
SPECIAL = (
    "<img src=x>|<!-- x -->|<details>|<a href='/logout'>|<https://a.b/issues/1>|<?x?>|![x](/y)|[x](/y)|[[x]]|@octocat|"
    "\\@octocat|#1|GH-1|&#64;octocat|`@x` @octocat|``@octocat|\\<b>|<a\u00a0b|[https://|](www.|\u2028/merge|\n/merge"
).split("|")


@pytest.mark.parametrize(
    "text",
    [
        "`a\n|---|---|\nb`",
        "x ``a `\r\n|-|-|\r\n`` y",
        "> `a | @b\n> |---|\n> #1`",
        "- `a\n  |---|---|\n  b`",
        "`a`\n|-|-|\n`b\n|-|-|`",
    ],
)
@pytest.mark.parametrize("engine", ENGINES)
def test_code_on_lines_like_those_of_a_table_stays(engine, text):
    made = inert(text)

    assert acting(engine, made) == []
    assert rendered(engine, made).code_spans == rendered(engine, text).code_spans
    assert inert(made) == made


@pytest.mark.parametrize("start", URL_STARTS)
@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_acts_after_the_beginning_of_a_url(engine, start):
    for before, after, special in product(["", "(", "*"], AFTER_URL_STARTS, SPECIAL):
        made = inert(f"{before}{start}{after}{special}")

        assert acting(engine, made) == [], (before, after, special)
        assert inert(made) == made, (before, after, special)


@pytest.mark.parametrize("indent", INDENTS)
@pytest.mark.parametrize("engine", ENGINES)
def test_no_whitespace_hides_a_command(engine, indent):
    assert acting(engine, inert(f"{indent}/merge\n\n- a\n{indent}/merge")) == []


@pytest.mark.parametrize(
    "text",
    [
        "> ~<a href=\"`\">\n#1 @octocat\n<a href=\"`\">",
        "- a\n  > b ` c\nlazy ` @octocat\n\t- ` @d",
        "[a]: /u\n    @octocat",
        "[a]: /u\n===\n    @octocat",
        "| a ` | b |\n|---|---|\n| ` @octocat | `x` |",
        "| a \\\\| `b |\n|---|---|\n| @octocat` | b |",
        "a | b\n|---|\n` @octocat | `",
        "a | b\n|---|\n|---|\n\\\\| `x | ` @octocat",
        "- x\n</div>\n\n      @octocat",
        "`" * 81 + "@octocat" + "`" * 81,
        "- " * (DEPTH_MAX + 1) + "@octocat\n\n```\n/merge\n@hubot",
        "> " * (DEPTH_MAX + 1) + "```\n@octocat\n/merge",
        "" .join(f"{'`' * number} " for number in range(1, 85)) + "@octocat `@x`",
        "<a title='`'>` @octocat `",
        "[x](<`>) @octocat `",
        "www.evil.example`@octocat `x",
        "`a\n\x0b\n/merge`",
        "`a\n * \n@octocat <img>`",
        "`a\n*\n2)\t\n/merge @x`",
        "`a\n*\n|-|\n@octocat <img>`",
        "> `a\n> +\n> |-|-|\n> @octocat <img>`",
        "www.a](https://b [x",
    ],
)  # fmt: skip
@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_acts_where_parsers_may_disagree(engine, text):
    made = inert(text)

    assert acting(engine, made) == []
    assert inert(made) == made


@pytest.mark.parametrize("deliver", [to_comment, to_check_run])
@pytest.mark.parametrize("engine", ENGINES)
def test_made_up_summaries_are_inert_in_comments(engine, deliver):
    for number in range(SUMMARY_COUNT):
        text = summary(number)
        made = deliver(text)

        assert acting(engine, made) == [], number
        assert has_code_of(rendered(engine, text).code_blocks, rendered(engine, made).code_blocks), number
        assert inert(made) == made, number


@pytest.mark.parametrize("engine", ENGINES)
def test_made_up_summaries_keep_their_code_in_chats(engine):
    for number in range(SUMMARY_COUNT):
        text = summary(number)
        code = rendered(engine, text)
        shown = rendered(engine, to_slack(text))

        assert has_code_of(code.code_blocks, shown.code_blocks), number
        assert not re.search("[\u2028\u202e\u200b\x0b]", "".join(shown.texts)), number


def test_made_up_summaries_are_unchanged_in_webhooks():
    for number in range(SUMMARY_COUNT):
        message = json.loads(webhook_body(result(summary=summary(number))))

        assert message["data"]["summary"] == summary(number)


LINES = st.sampled_from(
    "    @code|\t@code|  @a|```|~~~~|> ```py|> @b|- @c|- ```|  ```|  @in #12|    ```|1. a `@s`|   @t|||>|-|* - @n|"
    "`@a` b `#1`|text `x|y` @z|# h `@h` @h|===|---|/merge|  /merge|bors r+|> /merge| > > @d|<div>|</div>|<!-- @e|-->|"
    "[a]: /u|      @six|10. @ten|       ```|\u00a0/merge|`` ` @dd`` @e|@e `` x `|\\`@f`|a\\|https://a.b/`c|d` @g|<a|"
    'b="`">`@h`|***|+ + + @deep|'
    "ok to test|test this please|"
    "\t- @tab|-\t@tt|-\t\t@ttt| -     @five|>     @qi|>\t@qt|x\u2028/merge|\r|&#64;x|![i](y)|"
    "[x](/y`)|[[p]]|<b>|</b>|\\\\|<!-- x -->|<?|?>".split("|")
)
TABLE_LINES = st.sampled_from(
    ["| `@a` | b |", "|--|--|", "|--|", "`|--|", "`a", "a | ` | @b", "    @c", "- | -", "\\\\| `x |"]
)
PIECES = st.sampled_from(
    "@u.co \u212a \u017f "
    "@u #12 GH-1 ` `` ``` [a]( ]( [ ] ) ( https://a.b/ www.a.b www. https:// ![i]( <b> </b> <!-- --> <a\u00a0href= "
    "&amp; &#64; \\ * ** _ | x \u2028 \u200b ' \" [[x]] < > ! : # \n".split(" ")
)
DOCUMENTS = st.one_of(
    st.lists(st.one_of(LINES, LINES, TABLE_LINES), max_size=12).map("\n".join),
    st.lists(st.one_of(PIECES, PIECES, LINES), max_size=25).map("".join),
    st.lists(PIECES, max_size=20).map(" ".join),
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(DOCUMENTS)
@example("` ``@a`` ``@b``")
def test_no_combination_of_markdown_acts(text):
    made = inert(text)

    for engine in ENGINES:
        assert acting(engine, made) == []
    assert has_code_of(rendered("cmark", text).code_blocks, rendered("cmark", made).code_blocks)
    assert inert(made) == made


CHAT_PIECES = st.sampled_from(
    ["@here", "@channel", "@all", "a@everyone.com ", "![x](https://a.b/x.png)", "![", "`", "\n"]
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.one_of(CHAT_PIECES, LINES, PIECES), max_size=12).map("".join))
@example("<!--\n```\nx\n-->\n```\n@here\n```")
@example("odd ` @here x ![y](/z) `@all`")
@example("[x](/y`)@here` ")
@example("![x](https://a.b/x.png)https://a.b/@here")
@example("[a]: /u![x](https://a.b/x.png)@here")
@example("[x](/y '`')@here` ")
@example("[x]: /y '`'\n@here` ")
def test_nobody_is_mentioned_and_no_image_loads_in_chats(text):
    made = inert_in_chat(text)

    for engine in ENGINES:
        found = rendered(engine, made.replace("&", "&amp;").replace("<", "&lt;"))
        assert not MENTION.search("\n".join(found.texts))
        assert "img" not in found.tags
    assert has_code_of(rendered("cmark", text).code_blocks, rendered("cmark", made).code_blocks)


@settings(max_examples=EXAMPLES // 2, deadline=None)
@given(DOCUMENTS, st.integers(10, 120))
def test_no_cut_makes_a_text_act(text, size_max):
    made = fitted(text * 3, size_max, inert, following="\n\nNote")

    assert len(made) <= size_max
    for engine in ENGINES:
        assert acting(engine, made) == []
        assert "Note" in "".join(rendered(engine, made).texts)


@pytest.mark.parametrize("engine", ENGINES)
def test_cut_code_ends_before_what_follows(engine):
    text = "Done.\n\n````py\n" + "@dataclass\n" * 50
    made = fitted(text, 200, inert, following="\n\nNote")

    found = rendered(engine, made)
    assert found.texts[-3:] != []
    assert "\u2026" in "".join(found.texts)
    assert "Note" in "".join(found.texts)
    [code] = found.code_blocks
    assert set(code.split("\n")[:-2]) == {"@dataclass"}
    assert len(made) > 180


@pytest.mark.parametrize(
    "piece",
    one_usually(
        3,
        ["https://a`", "[", "- a\n", "[[a", "@a ", "|-|\n", "`a`` ", "[a](", "<!--\n", "<a ", "a|b\n-|-\n", "> - ", "https://[",
         "```\n~~~\n", "|a", "&a", "\\", "www.", "`\n/merge", "\u00a0", " ", "* ", "gh-", "\u200b", "\n\x0b"],
    ),
)  # fmt: skip
def test_longest_hostile_text_takes_linear_time(piece):
    # With quadratic time, this would exceed the time limit of a test.
    text = (piece * 65_536)[:65_536]

    made = inert(text)

    assert 65_535 <= len(made) <= 4 * len(text)
    assert 65_535 <= len(inert_in_chat(text)) <= 4 * len(text)
