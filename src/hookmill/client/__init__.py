"""A client of the HTTP API, for programs in Python and for the command line.

    with Client.of_server("https://hookmill.example.com", key) as client:
        for member in client.list_members():
            print(member["email"])

Importing it takes little time. Requests that may be repeated are retried; those that create something carry an
`Idempotency-Key`. Errors are `ApiProblem` and `Unreachable`.
"""

from __future__ import annotations

from typing import Self

from hookmill.client.operations import ApiOperations
from hookmill.client.requests import ApiProblem, Unreachable


class Client(ApiOperations):
    """The operations of one service. Not for several threads together."""

    @classmethod
    def of_server(cls, server: str, key: str) -> Self:
        """A client with an API key. Raises `Invalid` for an unusable URL. Sends no request."""
        from hookmill.client.http import HttpTransport, usable_server

        return cls(HttpTransport(usable_server(server), key))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


__all__ = ["ApiProblem", "Client", "Unreachable"]
