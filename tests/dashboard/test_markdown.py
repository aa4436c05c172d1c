"""Markdown on pages is inert: no raw HTML, no images, and only links to http and https."""

import pytest

from hookmill.web.dashboard.markdown import CHARACTERS_MAX, COST_MAX, inert_markdown

RENDERED = [
    ("# Done", "<h3>Done</h3>\n"),
    ("###### Small", "<h6>Small</h6>\n"),
    ("- a\n- *b*", "<ul>\n<li>a</li>\n<li><em>b</em></li>\n</ul>\n"),
    ("`<b>`", "<p><code>&lt;b&gt;</code></p>\n"),
    ('```"x onload=y\n<b>\n```', '<pre><code class="language-&quot;x">&lt;b&gt;\n</code></pre>\n'),
    (
        "[log](https://ci.example/1?a=1&b=2)",
        '<p><a href="https://ci.example/1?a=1&amp;b=2" rel="nofollow noopener noreferrer">log</a></p>\n',
    ),
    (
        '<http://ci.example/"x>',
        '<p><a href="http://ci.example/%22x" rel="nofollow noopener noreferrer">http://ci.example/&quot;x</a></p>\n',
    ),
    ("<script>alert(1)</script>", "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>\n"),
    ("a <img src=x onerror=y> b", "<p>a &lt;img src=x onerror=y&gt; b</p>\n"),
    ("<!-- hidden -->", "<p>&lt;!-- hidden --&gt;</p>\n"),
    ("![a *cat*](https://evil.example/x.png)", "<p><em>[image: a cat]</em></p>\n"),
    ("![](https://evil.example/x.png)", "<p><em>[image: no description]</em></p>\n"),
    ("![<b>](https://evil.example/x.png)", "<p><em>[image: &lt;b&gt;]</em></p>\n"),
    ("[x](javascript:alert(1))", "<p>[x](javascript:alert(1))</p>\n"),
    ("[x](JaVaScRiPt:alert(1))", "<p>[x](JaVaScRiPt:alert(1))</p>\n"),
    ("[x](data:text/html,x)", "<p>[x](data:text/html,x)</p>\n"),
    ("[x](/f/default/runs)", "<p>[x](/f/default/runs)</p>\n"),
    ("[x](//evil.example)", "<p>[x](//evil.example)</p>\n"),
    ("[x](https:evil.example)", "<p>[x](https:evil.example)</p>\n"),
    ("<mailto:a@b.example>", "<p>&lt;mailto:a@b.example&gt;</p>\n"),
    ("[x]\n\n[x]: javascript:y", "<p>[x]</p>\n<p>[x]: javascript:y</p>\n"),
    ("a\u202eb\u200b", "<p>a\\u202eb\\u200b</p>\n"),
]


@pytest.mark.parametrize(("source", "html"), RENDERED)
def test_markdown_is_rendered_inert(source, html):
    assert inert_markdown(source) == html


def test_link_can_have_no_other_attributes():
    html = inert_markdown('[x](https://a.example "t\\" onclick=\\"y")')

    assert html == (
        '<p><a href="https://a.example" title="t&quot; onclick=&quot;y" rel="nofollow noopener noreferrer">x</a></p>\n'
    )


def test_long_markdown_is_cut():
    assert inert_markdown("x" * (CHARACTERS_MAX + 1)) == f"<p>{'x' * CHARACTERS_MAX}</p>\n"


@pytest.mark.parametrize("source", [">" * 10_000, "[" * 10_000, "- " * 10_000, "*a_" * 10_000])
def test_deep_nesting_is_rendered_without_recursion(source):
    assert len(inert_markdown(source)) < 20 * len(source)


@pytest.mark.parametrize(
    "source",
    [
        "[" * 60_000,
        "- a\n" * 16_000,
        "a|b\n-|-\n" + "a|\n" * 20_000,
        "|a" * 1_000 + "|\n" + "|-" * 1_000 + "|\n" + "|x\n" * 1_000,
        "[a]: https://" + "x" * 20_000 + "\n\n" + "[a] " * 500,
        "\u200b" * 60_000,
        "a\n" * 30_000,
        "[a](https://b) " * 4_000,
    ],
    ids=["brackets", "list", "long table", "wide table", "definitions", "invisible", "lines", "links"],
)
def test_costly_markdown_ends_as_plain_text(source):
    html = inert_markdown(f"# Start\n\n{source}\nThe end.")

    assert html.startswith("<h3>Start</h3>\n")
    assert "The end." in html
    # The elements that are rendered are what takes time.
    assert html.count("<") < COST_MAX * 2
    assert len(html) < 10 * len(source)


def test_line_breaks_of_windows_are_no_text():
    assert inert_markdown("a\r\nb\r\n\r\n```\r\nc\r\n```\r\n") == "<p>a\nb</p>\n<pre><code>c\n</code></pre>\n"
