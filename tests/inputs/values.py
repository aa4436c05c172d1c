"""A thousand unusual values: dates, numbers, JSON, ids, names, attacks and Unicode. They are the same in every run."""

import base64
import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

COUNT: Final = 1_000
SEED: Final = 20_261_121
DIGITS_MAX: Final = 5_000
LENGTHS: Final = (100, 101, 128, 254, 255, 256, 1_000, 1_001, 4_096, 4_201, 16_384, 65_536, 100_001)


@dataclass(frozen=True, slots=True)
class UnusualValue:
    """A value as text and in JSON. In JSON, it is not always a string."""

    text: str
    json: str


def unusual_values() -> list[UnusualValue]:
    """All listed values, and random ones up to `COUNT`."""
    chance = random.Random(SEED)
    listed = [*_numbers(), *_json(), *map(_string, (*_dates(), *_ids(), *_names(), *_attacks(), *_characters()))]
    random_values = itertools.chain.from_iterable(
        (_string(_random_date(chance)), _random_number(chance), _string(_random_text(chance)))
        for _ in itertools.count()
    )
    values = list(itertools.islice(dict.fromkeys(listed), COUNT))
    for value in random_values:
        if len(values) == COUNT:
            break
        if value not in values:
            values.append(value)
    # Each slice of the shuffled values has values of several kinds.
    chance.shuffle(values)
    return values


def _string(text: str) -> UnusualValue:
    return UnusualValue(text, json.dumps(text))


# Dates

_OFFSETS: Final = (
    "Z",
    "z",
    "",
    "+00:00",
    "-00:00",
    "+00:01",
    "-00:01",
    "+14:00",
    "+23:59",
    "-23:59",
    "+24:00",
    "+99:99",
)


def _dates() -> Iterator[str]:
    for day in ("0001-01-01", "9999-12-31"):
        for clock, offset in itertools.product(("00:00:00", "23:59:59", "23:59:59.999999"), _OFFSETS):
            yield f"{day}T{clock}{offset}"
    yield from ("0000-01-01T00:00:00Z", "10000-01-01T00:00:00Z", "-0001-01-01T00:00:00Z", "+012026-01-01T00:00:00Z")
    yield from ("2016-12-31T23:59:60Z", "2026-06-30T23:59:60+23:59", "9999-12-31T23:59:60Z", "2026-01-01T24:00:00Z")
    yield from ("2026-02-29T00:00:00Z", "2026-00-01T00:00:00Z", "2026-13-01T00:00:00Z", "2026-04-31T00:00:00Z")
    yield from (f"2026-11-21T09:12:36.{'9' * digits}Z" for digits in range(1, 31))
    yield from ("2026-11-21T09:12:36.Z", "2026-11-21T09:12:36,5Z", "2026-11-21 09:12:36Z", "2026-11-21", "9999-12-31")
    yield from ("9999-W52-7", "0001-W01-1", "2026-366", "20261121T091236Z", "T09:12", "2999-12-31", "3000-01-01")
    yield from (
        "２０２６-11-21T09:12:36Z",
        "2026-11-21T09:12:36\u2212\u0030\u0031:00",
        "2026-11-21T09:12:36Z\n",
        " 2026-11-21 ",
    )
    yield from ("0s", "1s", "999999w", "999999d", "-2h", "2 h", "1e3s", "٣d")


def _random_date(chance: random.Random) -> str:
    year = chance.choice(("0000", "0001", "0002", "1969", "1970", "2038", "2106", "2262", "9998", "9999", "10000"))
    day = chance.choice(("01-01", "01-02", "02-28", "02-29", "12-30", "12-31"))
    clock = chance.choice(("00:00:00", "23:59:59", "23:59:60", "24:00:00", "12:00", "00:00:01"))
    digits = chance.randrange(31)
    fraction = "." + "".join(chance.choice("0123456789") for _ in range(digits)) if digits else ""
    sign, hours, minutes = chance.choice("+-"), chance.randrange(24), chance.randrange(60)
    return f"{year}-{day}{chance.choice('T t')}{clock}{fraction}{sign}{hours:02}:{minutes:02}"


# Numbers


def _numbers() -> Iterator[UnusualValue]:
    edges = [power + step for power in (2**31, 2**32, 2**53, 2**63, 2**64, 10**18, 10**400) for step in (-1, 0, 1)]
    whole = [0, 1, -1, 200, 201, 1_000, 65_536, *edges, *(-edge for edge in edges)]
    for word in (*map(str, whole), "1" + "0" * DIGITS_MAX, "9" * (DIGITS_MAX - 100), "-1" + "0" * DIGITS_MAX):
        yield UnusualValue(word, word)
    for word in (
        "-0",
        "-0.0",
        "0.0",
        "1.0",
        "1.5",
        "1e400",
        "-1e400",
        "1e-400",
        "1E+2",
        "1e99999999999999999999",
        "0.1",
    ):
        yield UnusualValue(word, word)
    yield UnusualValue("0." + "3" * DIGITS_MAX, "0." + "3" * DIGITS_MAX)
    # Words that are no JSON numbers. A body can contain them nevertheless.
    for word in ("NaN", "Infinity", "-Infinity", "+5", ".5", "5.", "0x10", "1_000", "00", "1e", "--1", "1,000"):
        yield UnusualValue(word, word)
        yield _string(word)
    yield from map(
        _string, ("nan", "inf", "\u0663", "\uff11", "\u00b2", "\u2162", "\u0bf0", "1\u00a0000", "0b1", "1e400", "-0")
    )


def _random_number(chance: random.Random) -> UnusualValue:
    word = chance.choice(("", "-")) + str(chance.getrandbits(chance.randrange(1, 700)))
    word += chance.choice(("", "", f".{chance.getrandbits(100)}", f"e{chance.randrange(-5000, 5000)}"))
    return UnusualValue(word, word)


# JSON

_DEEP: Final = 600


def _json() -> Iterator[UnusualValue]:
    for word in (
        "null",
        "true",
        "false",
        "[]",
        "{}",
        "[[]]",
        "[null]",
        '[""]',
        '{"": ""}',
        '{"": {}}',
        "[1e400]",
        "[{}]",
    ):
        yield UnusualValue(word, word)
    for word in (
        '{"a": 1, "a": 2}',
        '{"\\u0000": 1}',
        '{"\\ud800": 1}',
        '["\\udfff"]',
        '{"__proto__": {}}',
        '{"in": []}',
    ):
        yield UnusualValue(word, word)
    for word in (
        '{"exists": true}',
        '{"$and": []}',
        '{"a": {"in": [null]}}',
        '{"a": {"$fields": {}}}',
        '"',
        "[",
        "{",
        "",
    ):
        yield UnusualValue(word, word)
    yield UnusualValue("[" * _DEEP + "]" * _DEEP, "[" * _DEEP + "]" * _DEEP)
    yield UnusualValue('{"a":' * _DEEP + "1" + "}" * _DEEP, '{"a":' * _DEEP + "1" + "}" * _DEEP)
    yield UnusualValue(json.dumps(["x"] * 10_000), json.dumps(["x"] * 10_000))


# Ids, cursors, tags and tokens


def _ids() -> Iterator[str]:
    for prefix in ("wh_", "aut_", "dlv_", "run_", "key_", "mbr_", "aud_", "sec_", "hmk_"):
        yield from (prefix, prefix + "0" * 27, prefix + "f" * 32, prefix + "0" * 32, prefix + "\u0663" * 32)
        yield from (f"{prefix}{'f' * 32}\n", prefix.upper() + "F" * 32, prefix + "x" * 64, prefix + "\x00" * 32)
    for cursor in (
        "[1e400]",
        "[NaN]",
        '["\\ud800"]',
        '["\\u0000"]',
        "[]",
        "[[]]",
        '["' + "f" * 32 + '"]',
        f"[{2**64}]",
        "[null]",
    ):
        yield base64.urlsafe_b64encode(cursor.encode()).rstrip(b"=").decode()
    yield from (
        '["a", 1, "b"]',
        "AAAA",
        "_",
        "-",
        "====",
        "W10",
        '""',
        '"*"',
        "*",
        'W/"x"',
        '"x", "y"',
        '"\u00e9"',
        '"x',
    )
    yield from ("Bearer", "Bearer ", "Bearer hmk_\u00e9", f"Bearer hmk_{'x' * 200}", "Basic Og==", "bearer  x y")


# Names


def _names() -> Iterator[str]:
    yield from (
        "",
        " ",
        "   ",
        "\t",
        "\n",
        "\r\n",
        "\u00a0",
        "\u3000",
        "\u1680",
        "\u2028",
        "\u2029",
        "\u0085",
        "\u180e",
    )
    yield from (
        "CON",
        "PRN",
        "AUX",
        "NUL",
        "COM1",
        "LPT9",
        "con.txt",
        "nul .",
        "aux:",
        "name.",
        "name ",
        ".",
        "..",
        "~",
        "-",
        "--",
    )
    yield from (
        "--help",
        "--json",
        "-1",
        "--factory",
        "@file",
        "$HOME",
        "%PATH%",
        "`id`",
        "$(id)",
        ";id",
        "|id",
        "&&id",
        "a\\b",
    )
    yield from (
        "null",
        "undefined",
        "None",
        "true",
        "default",
        "DEFAULT",
        "de\u0301fault",
        "\uff44efault",
        "wh_",
        "first",
    )
    yield from (
        "Authorization",
        "Cookie",
        "Host",
        "Content-Length",
        "Transfer-Encoding",
        "X-\u00c9v\u00e9nement",
        "X Y",
        "X:Y",
        ":path",
    )
    yield from (
        "a@b",
        "a@b.example",
        "\u00e9@\u00e9.example",
        "a@b@c",
        "@",
        '"a b"@c',
        "a@[::1]",
        "<a@b>",
        "a@b.example\r\nBcc: c@d",
    )
    yield from (
        "Stra\u00dfe",
        "STRASSE",
        "\u0130",
        "\u0131",
        "\u017f",
        "\ufb03",
        "\u03a3\u03c3\u03c2",
        "\u01c5",
        "\u1e9e",
    )
    for length in LENGTHS:
        yield from ("x" * length, "\U0001f600" * length)
    yield from (
        "e\u0301" * 100,
        "a" + "\u0301" * 99,
        "a" + "\u0301" * 5_000,
        " " * 1_000,
        "\x00" * 100,
        "\u202e" * 100,
        "x" * 99 + " ",
    )


# Attacks


def _attacks() -> Iterator[str]:
    # These paths don't exist on any machine, so a command that writes creates no file.
    yield from ("../" * deep + "nowhere-at-all/passwd" for deep in (1, 2, 8, 40))
    yield from (
        "/nowhere-at-all/etc/passwd",
        "..\\..\\nowhere-at-all\\win.ini",
        "..%2f..%2fnowhere-at-all",
        "%2e%2e%2f",
        "..;/",
        "%00",
        "%",
    )
    yield from (
        "C:\\nowhere-at-all\\x",
        "\\\\nowhere-at-all\\share",
        "file:///nowhere-at-all",
        "....//nowhere-at-all",
        "%c0%ae",
        "%ff%fe",
        "%zz",
    )
    yield from (
        "' OR '1'='1",
        "'; DROP TABLE webhooks; --",
        '" OR ""="',
        "1; SELECT pg_sleep(10)",
        "\\'; --",
        "%' LIKE '_",
        "$1",
        ":id",
        "?",
        "$$",
    )
    yield from (
        "%s%s%s%n",
        "%(name)s",
        "{0}",
        "{}",
        "{name}",
        "{0.__class__}",
        "{{7*7}}",
        "${7*7}",
        "#{7*7}",
        "<%= 7 %>",
        "{% raw %}",
        "%d",
        "{:>99999}",
    )
    yield from (
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "javascript:alert(1)",
        "</title>",
        "&lt;",
        "<!--",
        "]]>",
        "<bdi>",
        "</time>",
    )
    yield from (
        "x\r\nSet-Cookie: a=b",
        "x\r\n\r\n<html>",
        "\x1b[31m",
        "\x1b]0;owned\x07",
        "\x9b2J",
        "\x08\x08",
        "=1+1",
        "+cmd|' /C calc'!A0",
        "[red]x[/red]",
    )
    yield from (
        "${jndi:ldap://nowhere}",
        "!!python/object:os.system",
        "&a [*a]",
        "---\n",
        "a: b",
        "- a",
        "# a",
        "(a+)+$",
        "[[:alpha:]]",
        "\\u0000",
        "\\x00",
    )
    yield from (
        "__proto__",
        "constructor",
        "__class__",
        "toString",
        "../wh_x",
        "a/b",
        "a%2Fb",
        "a?b",
        "a#b",
        "a;b",
        "a b",
        "a+b",
        "a&b=c",
        "a=b",
    )


# Characters

_BIDI: Final = "\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_ZERO_WIDTH: Final = (
    "\u200b\u200c\u200d\u2060\u2061\u2064\ufeff\u00ad\u034f\u180b\ufe0f\ufe00\U000e0100\U000e0001\U000e007f"
)
_NONCHARACTERS: Final = "\ufdd0\ufdef\ufffe\uffff\U0001fffe\U0001ffff\U000ffffe\U0010fffe\U0010ffff"
_PRIVATE: Final = "\ue000\uf8ff\U000f0000\U0010fffd"
_SURROGATES: Final = "\ud800\udbff\udc00\udfff\udcff"
_CONTROLS: Final = "".join(map(chr, (*range(0x20), 0x7F, *range(0x80, 0xA0))))
_OTHER_CHARACTERS: Final = (
    "\ufffd\u0378\U000e0fff\u0e33\u0f77\u0958\u2126\u212b\ufdfa\U0001d54f\U00020000\u0300\u20dd\U0001f1e6\U0001f3ff"
)
_CLUSTERS: Final = (
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    "\U0001f1e9\U0001f1ea",
    "\U0001f3f4\U000e0067\U000e0062\U000e007f",
    "\u0e01\u0e33\u0e49",
    "\u0915\u094d\u0937\u093f",
    "Z\u0351\u036b\u0343\u036a\u0302\u0363\u035b",
    "\u1100\u1161\u11a8",
    "\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd",
    "\u0645\u0631\u062d\u0628\u0627",
    "\udc00\ud800",
    "abc\u202efed\u202c",
    "\u2066user\u2069",
)
_CHARACTERS: Final = _BIDI + _ZERO_WIDTH + _NONCHARACTERS + _PRIVATE + _SURROGATES + _CONTROLS + _OTHER_CHARACTERS


def _characters() -> Iterator[str]:
    yield from (f"a{character}b" for character in _CHARACTERS)
    yield from _CLUSTERS


def _random_text(chance: random.Random) -> str:
    pools = ("abc 09", _CHARACTERS, _BIDI, _OTHER_CHARACTERS, "/\\.%'\"{}<>&;")
    parts = (
        chance.choice(_CLUSTERS) if chance.random() < 0.2 else chance.choice(chance.choice(pools))
        for _ in itertools.count()
    )
    return "".join(itertools.islice(parts, chance.randrange(1, 40)))
