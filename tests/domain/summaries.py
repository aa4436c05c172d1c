"""Summaries as agents write them, and hostile ones: pieces of Markdown in every combination."""

import random
from typing import Final

SUMMARY_COUNT: Final = 200
PROSE: Final = (
    "Fixed the cache, as @octocat asked. cc @acme/security, \\@hubot",
    "Fixes #12, closes acme/shop#7, resolves GH-3 and !4.",
    "See https://github.com/acme/shop/issues/12 and [the log](https://ci.example/1).",
    "See [the issue](https://github.com/acme/shop/pull/7), [home](/login) or <https://docs.example/a_b>.",
    "Use `@dataclass(frozen=True)` or ``x = ` @y` `` instead of `#12`.",
    "An odd ` backquote by @octocat, then ``code`` and ``@more``.",
    "![status](https://evil.example/x.png) <img src=https://evil.example/y.png>",
    "<details><summary>More</summary> text by &#64;octocat &commat;hubot </details>",
    "<!-- hookmill run_1 0 -->",
    "Two  bugs: `a < b` and 1 < 2 & 3 > 2; ops@example.com, 5:30, **3 of 4**",
    "Text [x]: y, [a][b], [[Home]], https://evil.example/`x @octocat `y`",
)
COMMANDS: Final = ("/merge", "bors r+", "@dependabot merge", ".deploy production", "/lgtm\n/approve", "!ok")
INDENTS: Final = (
    "", "  ", "\t", "\u00a0", "\u3000", "\u1680", "\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\u200b", "\ufeff",
    "\u202e", "\r", "text\u2028", "text\u2029", "text\x85", "text\r", "\U000e0041", "\u200d",
)  # fmt: skip
"""What bots may skip before a command, or take for the end of a line."""
CODE: Final = (
    "@app.route('/x')\ndef f():\n    return '#12'  # GH-3",
    "diff --git a/x b/x\n-@old\n+@new <b>\n /merge",
    "$ curl https://evil.example/issues/1\n\n\n/merge\n![x](y)",
    "``` nested\n@x\n~~~",
    "a\u2028/merge\u00a0\u200b\u202e\x0b\x0c @x \U0001f469\u200d\U0001f4bb",
    "\t@tab\n  two",
    "| a | b |\n|---|---|",
)
TABLES: Final = (
    "| Name | Who |\n|---|:-:|\n| `@a` | @octocat |\n| `x \\| #1` | ` |",
    "a | b\n- | -\n#1 | `@x`",
    "| a |\n|---|---|\n| @octocat | ` |",
)


def summary(number: int) -> str:
    """The summary with this number, which is always the same one."""
    chance = random.Random(number)
    return "\n\n".join(_block(chance) for _ in range(chance.randint(1, 6))) + chance.choice(("", "\n", "\r\n"))


def _block(chance: random.Random) -> str:
    block = chance.choice((_prose, _prose, _command, _fence, _fence, _indented, _table, _html))(chance)
    for _ in range(chance.choice((0, 0, 0, 1, 1, 2, 3))):
        block = _enclosed(block, chance)
    return block


def _enclosed(block: str, chance: random.Random) -> str:
    first, other = chance.choice(
        (("> ", "> "), ("- ", "  "), ("1. ", "   "), (">", ">"), ("* ", "  "), ("12) ", "    "))
    )
    lines = block.split("\n")
    return "\n".join((first if number == 0 else other) + line for number, line in enumerate(lines))


def _prose(chance: random.Random) -> str:
    start = chance.choice(("", "", "# ", "## ", "**Note** ", "- [ ] "))
    return start + chance.choice((" ", "\n")).join(chance.sample(PROSE, chance.randint(1, 3)))


def _command(chance: random.Random) -> str:
    return chance.choice(("", "Done.\n")) + chance.choice(INDENTS) + chance.choice(COMMANDS)


def _fence(chance: random.Random) -> str:
    code = chance.choice(CODE)
    fence = chance.choice(("`", "~")) * chance.choice((4, 5, 9) if "```" in code else (3, 4, 7))
    indent = chance.choice(("", "", " ", "   "))
    before = chance.choice(("", "", "Text:\n"))
    end = chance.choice((f"\n{indent}{fence}", f"\n{fence}  ", f"\n{fence}{fence[0]}"))
    return f"{before}{indent}{fence}{chance.choice(('', 'py', ' diff @x'))}\n{code}{end}"


def _indented(chance: random.Random) -> str:
    indent = chance.choice(("    ", "\t"))
    return "\n".join(indent + line for line in chance.choice(CODE).split("\n"))


def _table(chance: random.Random) -> str:
    return chance.choice(TABLES)


def _html(chance: random.Random) -> str:
    return chance.choice(
        (
            "<div>\n@octocat\n```\n/merge\n</div>",
            "<!-- hidden\n\n```\n#1 -->",
            "<details>\n<summary>Log of @octocat</summary>",
            "</details>",
            "<script>\nalert(1)\n\n/merge</script>",
            '<a href="`">@octocat</a>` #1',
        )
    )
