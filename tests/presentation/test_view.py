"""What holds of every view."""

from hookmill.presentation import view
from hookmill.presentation.secret import SecretWithValueView
from hookmill.presentation.view import View


class Pair(View, frozen=True):
    first: int
    second: str


class Triple(Pair, frozen=True):
    third: bool


def test_fields_come_in_their_order_with_those_of_an_extension_last():
    extended = Pair(first=1, second="2").extended(Triple, third=True)

    assert extended == Triple(first=1, second="2", third=True)
    assert extended.as_json() == b'{"first":1,"second":"2","third":true}'
    assert list(view.plain(extended)) == ["first", "second", "third"]


def test_a_view_with_a_secret_does_not_show_it_in_tracebacks_and_logs():
    shown = SecretWithValueView(
        name="SPARE",
        created_at="2026-11-21T09:12:36.000000Z",
        changed_at=None,
        has_value=True,
        used_by=[],
        used_elsewhere=False,
        value="the-secret",
    )

    assert "the-secret" not in f"{shown!r} {shown} {[shown]}"
