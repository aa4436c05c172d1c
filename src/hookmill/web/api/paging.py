"""Long lists in pages. A cursor says where the next page begins; what it looks like is nobody's business."""

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Generic, TypeVar

from msgspec import Meta

from hookmill.presentation.view import View
from hookmill.web.api.problems import Refusal, invalid_parameter

T = TypeVar("T")


class Page(View, Generic[T], frozen=True):
    items: list[T]
    next_cursor: Annotated[str | None, Meta(description="The `cursor` of the next page. Null on the last one.")]


def page(
    found: Iterable[T],
    place: Callable[[T], tuple[str | int, ...]],
    *,
    limit: int,
    cursor: str | None,
    newest_first: bool = False,
) -> tuple[list[T], str | None]:
    """One page of a list that is there as a whole, in the order of `place`, which no two of them share."""
    ordered = sorted(found, key=place, reverse=newest_first)
    if cursor is not None:
        begins = _place(cursor)
        try:
            ordered = [each for each in ordered if (place(each) < begins if newest_first else place(each) > begins)]
        except TypeError:
            raise _of_another_list() from None
    return cut(ordered, lambda last: cursor_at(*place(last)), limit=limit)


def cut(found: Sequence[T], cursor_after: Callable[[T], str], *, limit: int) -> tuple[list[T], str | None]:
    """The first `limit` of what was found, and a cursor where there is more."""
    if len(found) <= limit:
        return list(found), None
    return list(found[:limit]), cursor_after(found[limit - 1])


def cursor_at(*place: str | int) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).rstrip(b"=").decode()


def key_cursor(key: bytes) -> str:
    """A cursor of a list that the store pages by 16-byte keys."""
    return cursor_at(key.hex())


def key_at(cursor: str | None) -> bytes | None:
    """The key that `key_cursor` was made of."""
    if cursor is None:
        return None
    place = _place(cursor)
    try:
        key = bytes.fromhex(str(place[0]))
    except ValueError:
        raise _of_another_list() from None
    if len(place) != 1 or len(key) != 16:
        raise _of_another_list()
    return key


def _place(cursor: str) -> tuple[str | int, ...]:
    try:
        place = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        raise _of_another_list() from None
    if not isinstance(place, list) or not place or not all(type(each) in (str, int) for each in place):
        raise _of_another_list()
    return tuple(place)


def _of_another_list() -> Refusal:
    return invalid_parameter("cursor", "Use the next_cursor of a page of this list.")
