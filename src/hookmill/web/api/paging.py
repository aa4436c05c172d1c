"""Pagination of lists. A page's cursor is opaque to clients, and contains the sort key of the last item of the page
before it."""

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Final, Generic, TypeVar

from msgspec import Meta

from hookmill.domain.errors import Invalid
from hookmill.domain.queue import QueuePosition
from hookmill.presentation.view import View
from hookmill.web.api.problems import ApiError, invalid_parameter_error

T = TypeVar("T")
_ID: Final = re.compile("[a-z]{3}_([0-9a-f]{32})")


class ResultPage(View, Generic[T], frozen=True):
    items: list[T]
    next_cursor: Annotated[str | None, Meta(description="The `cursor` of the next page. Null on the last page.")]


def paginate(
    items: Iterable[T],
    sort_key: Callable[[T], tuple[str | int, ...]],
    *,
    limit: int,
    cursor: str | None,
    newest_first: bool = False,
) -> tuple[list[T], str | None]:
    """Sort a complete list, and return one page of it, and the cursor of the next page if there is one.

    The sort keys must be unique. `cursor` is the one of this page, None for the first. Raises `ApiError` if it is
    invalid.
    """
    ordered = sorted(items, key=sort_key, reverse=newest_first)
    if cursor is not None:
        last_sort_key = _sort_key_from(cursor)
        try:
            ordered = [
                item
                for item in ordered
                if (sort_key(item) < last_sort_key if newest_first else sort_key(item) > last_sort_key)
            ]
        except TypeError:
            # The cursor belongs to another list, whose sort key has values of other types.
            raise _invalid_cursor_error() from None
    return cut_page(ordered, lambda item: cursor_after(*sort_key(item)), limit=limit)


def cut_page(rows: Sequence[T], cursor_of: Callable[[T], str], *, limit: int) -> tuple[list[T], str | None]:
    """The first `limit` rows, and the cursor of the next page if there are more rows.

    `rows` begins after the cursor of this page, and contains a row of the next page if there is a next page.
    """
    if len(rows) <= limit:
        return list(rows), None
    return list(rows[:limit]), cursor_of(rows[limit - 1])


def cursor_after(*sort_key: str | int) -> str:
    """The cursor of the page that begins with the item after this sort key."""
    return base64.urlsafe_b64encode(json.dumps(sort_key).encode()).rstrip(b"=").decode()


def key_cursor(key: bytes) -> str:
    """The cursor of the page that begins after this key, for lists that the store sorts by 16-byte keys."""
    return cursor_after(key.hex())


def key_from(cursor: str | None) -> bytes | None:
    """The key in a cursor of `key_cursor`, or in the id of the last item that the client has.

    None for the first page. Raises `ApiError` for an invalid cursor.
    """
    if cursor is None:
        return None
    if (item_id := _ID.fullmatch(cursor)) is not None:
        return bytes.fromhex(item_id[1])
    sort_key = _sort_key_from(cursor)
    try:
        key = bytes.fromhex(str(sort_key[0]))
    except ValueError:
        raise _invalid_cursor_error() from None
    if len(sort_key) != 1 or len(key) != 16:
        raise _invalid_cursor_error()
    return key


def queue_cursor(position: QueuePosition) -> str:
    """The cursor of the page that begins after this position, for the waiting runs of a queue."""
    return cursor_after(position.as_text())


def queue_position_from(cursor: str | None) -> QueuePosition | None:
    """The position in a cursor of `queue_cursor`; None for the first page. Raises `ApiError` for an invalid cursor."""
    if cursor is None:
        return None
    try:
        (text,) = _sort_key_from(cursor)
        return QueuePosition.parse(str(text))
    except (Invalid, ValueError):
        raise _invalid_cursor_error() from None


def _sort_key_from(cursor: str) -> tuple[str | int, ...]:
    try:
        sort_key = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        raise _invalid_cursor_error() from None
    if not isinstance(sort_key, list) or not sort_key or not all(type(value) in (str, int) for value in sort_key):
        raise _invalid_cursor_error()
    return tuple(sort_key)


def _invalid_cursor_error() -> ApiError:
    return invalid_parameter_error("cursor", "Use the next_cursor of a page of this list.")
