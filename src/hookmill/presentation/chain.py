"""A hash chain over exported lines, which anybody can check. `docs/export.md` describes it byte for byte."""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from hookmill.domain.errors import Invalid

FORMAT: Final = "hookmill deliveries 1"
NO_HASH: Final = "0" * 64
"""What the first line of a chain has as the hash of the previous line."""
_HASH_FIELD: Final = ', "hash": "'
_END_CHARACTERS: Final = len(_HASH_FIELD) + 64 + len('"}')


class Chain:
    """Makes the lines of a chain. `head` is the hash of the latest one, and `sequence` its number."""

    def __init__(
        self, json_line: Callable[[Any], str], *, head: str = NO_HASH, sequence: int = 0, deliveries: int = 0
    ) -> None:
        """`json_line` renders an object in one line.

        To continue a chain, pass the `head`, `sequence` and `deliveries` of its end.
        """
        self._json_line = json_line
        self.head = head
        self.sequence = sequence
        self.deliveries = deliveries
        """How many deliveries the chain has."""

    def begin(self, *, factory: str, webhook: str | None) -> str:
        """The first line of a file. `webhook`: the uid of the webhook to which the export is limited; None for all."""
        return self._line({"chain": FORMAT, "factory": factory, "webhook": webhook})

    def add(self, fields: Mapping[str, Any], payload_sha256: str | None) -> str:
        """The line of a delivery. `payload_sha256` is None for one without a stored payload."""
        self.deliveries += 1
        return self._line({**fields, "payload_sha256": payload_sha256})

    def end(self, last_delivery: str | None) -> str:
        """The last line of a file. Its hash is the chain's head, which must be stored elsewhere."""
        return self._line({"end": {"deliveries": self.deliveries, "last_delivery": last_delivery}})

    def _line(self, fields: Mapping[str, Any]) -> str:
        self.sequence += 1
        # The hash covers the line up to its own field.
        content = self._json_line({"sequence": self.sequence, "previous": self.head, **fields}).removesuffix("}")
        self.head = hashlib.sha256(content.encode()).hexdigest()
        return f'{content}{_HASH_FIELD}{self.head}"}}'


def read_line(line: str) -> dict[str, Any]:
    """The fields of a line without its newline. Raises `Invalid` if its hash is wrong, or if it is no such line."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        fields = None
    if (
        not isinstance(fields, dict)
        or fields.get("hash") != hashlib.sha256(line[:-_END_CHARACTERS].encode()).hexdigest()
        or type(fields.get("sequence")) is not int
    ):
        raise Invalid("one of its lines is not part of a hash chain, or was altered")
    return fields
