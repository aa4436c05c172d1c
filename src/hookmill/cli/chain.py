"""`hookmill delivery export --chain`: an export whose lines are a hash chain."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hookmill.cli import export, progress
from hookmill.cli.output import count, json_line, on_terminal, print_error, print_line
from hookmill.domain.errors import Invalid
from hookmill.domain.ids import DeliveryKey, delivery_id, delivery_key
from hookmill.domain.text import shown
from hookmill.presentation.chain import FORMAT, Chain, read_line
from hookmill.presentation.delivery import DeliveryView
from hookmill.presentation.view import plain

if TYPE_CHECKING:
    from hookmill.domain.delivery import Delivery

LINE_BYTES_MAX: Final = 64 * 1024
"""More than the longest line of a delivery."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierExport:
    """The end of a chained export that is to be continued."""

    path: str
    head: str
    sequence: int
    deliveries: int
    last_delivery: DeliveryKey | None
    factory: str
    webhook: str | None


def read_earlier(path: str) -> EarlierExport:
    """Read the first and the last line of an export. Raises `Invalid` if it is not a complete chained export."""
    try:
        # A device may have no end.
        if not Path(path).is_file() and Path(path).exists():
            raise Invalid("it is not a file")
        with Path(path).open("rb") as file:
            first = file.readline(LINE_BYTES_MAX)
            file.seek(max(0, file.seek(0, os.SEEK_END) - LINE_BYTES_MAX))
            lines = file.read().splitlines(keepends=True)
        begin, end = read_line(first.decode().removesuffix("\n")), read_line(lines[-1].decode().removesuffix("\n"))
        if begin["chain"] != FORMAT or not lines[-1].endswith(b"\n"):
            raise Invalid("it has another format, or was cut")
        last_delivery = end["end"]["last_delivery"]
        return EarlierExport(
            path=path,
            head=end["hash"],
            sequence=end["sequence"],
            deliveries=end["end"]["deliveries"],
            last_delivery=delivery_key(last_delivery) if last_delivery is not None else None,
            factory=begin["factory"],
            webhook=begin["webhook"],
        )
    except OSError as error:
        raise Invalid(f"The earlier export {shown(path)} can't be read: {error.strerror}.") from None
    except (Invalid, ValueError, LookupError, TypeError) as error:
        reason = str(error) if isinstance(error, Invalid) else "a line is missing, or it was cut"
        raise Invalid(
            f"The earlier export {shown(path)} can't be continued: {reason.rstrip('.')}. Use a file that `hookmill "
            "delivery export --chain` has written completely, or begin a new chain without --after."
        ) from None


def write(
    pages: Iterable[Sequence[tuple[Delivery, str | None]]],
    output: str | None,
    *,
    factory: str,
    webhook: str | None,
    earlier: EarlierExport | None,
) -> None:
    """Write the deliveries, each with the SHA-256 of its payload, as a chain, and print its head."""
    chain = Chain(json_line)
    last = None
    if earlier is not None:
        chain = Chain(json_line, head=earlier.head, sequence=earlier.sequence, deliveries=earlier.deliveries)
        last = delivery_id(earlier.last_delivery) if earlier.last_delivery is not None else None
    before = chain.deliveries
    with (
        export.open_output(output) as file,
        progress.row_counter("delivery", prints_rows_to_terminal=output is None and on_terminal()) as advance,
    ):
        file.write(f"{chain.begin(factory=factory, webhook=webhook)}\n")
        for page in pages:
            for delivery, payload_sha256 in page:
                file.write(f"{chain.add(plain(DeliveryView.of(delivery)), payload_sha256)}\n")
                last = delivery_id(delivery.key)
            advance(len(page))
        file.write(f"{chain.end(last)}\n")
    head = f"The head of the chain is {chain.head}. Store it where nobody who can change the export can change it."
    if output is None:
        print_error(head)
        return
    print_line(f"Wrote {count(chain.deliveries - before, 'delivery')} to {shown(output)}.")
    print_line(head)
