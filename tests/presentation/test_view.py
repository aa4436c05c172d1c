"""Properties of all views."""

from hookmill.presentation import view
from hookmill.presentation.secret import SecretWithValueView
from hookmill.presentation.view import View


class Pair(View, frozen=True):
    first: int
    second: str


class Triple(Pair, frozen=True):
    third: bool


def test_fields_keep_their_order_and_those_of_an_extension_are_last():
    extended = Pair(first=1, second="2").extended(Triple, third=True)

    assert extended == Triple(first=1, second="2", third=True)
    assert extended.encoded() == b'{"first":1,"second":"2","third":true}'
    assert list(view.plain(extended)) == ["first", "second", "third"]


def test_representation_of_a_view_hides_its_secret():
    secret_view = SecretWithValueView(
        name="SPARE",
        created_at="2026-11-21T09:12:36.000000Z",
        changed_at=None,
        has_value=True,
        used_by=[],
        used_elsewhere=False,
        for_runs=False,
        created_here=True,
        used_by_automations=[],
        value="the-secret",
    )

    assert "the-secret" not in f"{secret_view!r} {secret_view} {[secret_view]}"
