"""Words of other hosts are not shown if they have a part of a credential, in any of its usual forms."""

import base64
import json
from urllib.parse import quote

import pytest

from hookmill.outbound.answer_text import HIDDEN, quoted, quoted_answer

TOKEN = "ghp_16/C7e42F+292c6912E7710c838347Ae178B4a"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "words",
    [
        TOKEN,
        TOKEN[5:35],
        TOKEN.upper(),
        f"{TOKEN[:9]} {TOKEN[9:]}",
        " ".join(TOKEN),
        "\u200b".join(TOKEN),
        "-".join(TOKEN[start : start + 4] for start in range(0, len(TOKEN), 4)),
        quote(TOKEN, safe=""),
        "".join(f"%{ord(character):02x}" for character in TOKEN),
        "".join(f"&#{ord(character)};" for character in TOKEN),
        TOKEN.encode().hex(),
        TOKEN.encode().hex(" "),
        encoded(TOKEN),
        encoded(f"u:{TOKEN}"),
        encoded(f"us:{TOKEN}"),
        encoded(f"x-access-token:{TOKEN}")[20:50],
        " ".join(encoded(f"user:{TOKEN}")),
        quote(encoded(f"user:{TOKEN}"), safe=""),
        base64.urlsafe_b64encode(f"user:{TOKEN}".encode()).decode(),
    ],
)
def test_words_with_a_part_of_the_credential_are_not_shown(words):
    assert quoted(f"Bad credentials: {words}.", [TOKEN]) == HIDDEN
    assert quoted_answer(json.dumps({"message": words}).encode(), [TOKEN]) == HIDDEN


@pytest.mark.parametrize("scheme", ["Basic ", ""])
def test_password_of_a_header_in_base64_is_not_shown(scheme):
    assert quoted(f"Wrong password: {TOKEN}", [f"{scheme}{encoded(f'user:{TOKEN}')}"]) == HIDDEN


def test_divided_credential_of_few_letters_is_not_shown():
    assert quoted("Wrong: !#$% &()*+,-.", ["!#$%&()*+,-."]) == HIDDEN


def test_words_without_the_credential_are_shown():
    for words in (
        "Bad credentials.",
        "Resource not accessible by integration",
        TOKEN[:11],
        encoded("user:another one"),
    ):
        assert quoted(words, [TOKEN]) == f'"{words}"'
