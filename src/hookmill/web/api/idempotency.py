"""Idempotent requests: a retry with the same `Idempotency-Key` returns the first request's stored response.

So a retry does not perform the operation again.
"""

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Annotated, Final

from fastapi import Depends, Header, Request, Response

from hookmill.domain.permission import MayAdminister, MayManage
from hookmill.management import IdempotencyKeyReused, Management
from hookmill.web.api.access import ManagementDependency, context_of
from hookmill.web.api.fields import IDEMPOTENCY_KEY_PATTERN

STORED_BYTES_MAX: Final = 65_536
"""The body of a response above this size is not stored, if `reload` can build it again."""
_STORED_HEADERS: Final = ("content-type", "location")


class IdempotentRequest:
    """A request to perform an operation. If it has an `Idempotency-Key`, it may be a retry."""

    def __init__(self, management: Management, key: str | None, target: bytes, body: bytes) -> None:
        """`key`: the value of `Idempotency-Key`, if any. `target`: the method and the path, as sent."""
        self._management = management
        self._key = key
        self._target_digest = sha256(target).digest()
        # A reader of the database could try weak secrets against this digest. So it is stored only inside the response,
        # which `Idempotency.store` seals.
        self._body_sha256 = sha256(body).hexdigest()

    def respond(
        self,
        permission: MayManage | MayAdminister,
        perform: Callable[[], Response],
        reload: Callable[[str], Response] | None = None,
    ) -> Response:
        """The response of `perform`, or the stored response of the first request.

        Raises `IdempotencyKeyReused` if the actor used the key with another method, path or body.

        If a response was too large to store, `reload` builds it from the stored `Location` header. It then shows the
        present state of the resource.
        `perform` and the storing share a transaction: if one of them fails, the operation is rolled back.
        Otherwise a secret could be generated that no response ever shows.
        """
        with self._management.one_transaction(permission):
            if self._key is None:
                return perform()
            stored = self._management.idempotency.stored_response(permission, self._key, self._target_digest)
            if stored is not None:
                return self._replayed_response(stored, reload)
            response = perform()
            self._management.idempotency.store(
                permission, self._key, self._target_digest, self._serialized(response, reload is not None)
            )
            return response

    def _serialized(self, response: Response, can_reload: bool) -> bytes:
        headers = {name: response.headers[name] for name in _STORED_HEADERS if name in response.headers}
        head = json.dumps(
            {"status": response.status_code, "headers": headers, "request_sha256": self._body_sha256}
        ).encode()
        body = bytes(response.body)
        # The head is one line of JSON. The body follows unescaped, because escaping could multiply its size.
        return head if can_reload and len(body) > STORED_BYTES_MAX else head + b"\n" + body

    def _replayed_response(self, stored: bytes, reload: Callable[[str], Response] | None) -> Response:
        head, separator, body = stored.partition(b"\n")
        metadata = json.loads(head)
        if metadata["request_sha256"] != self._body_sha256:
            raise IdempotencyKeyReused("This Idempotency-Key was used for another request. Use a new one.")
        if separator or reload is None:
            response = Response(body, status_code=metadata["status"], headers=metadata["headers"])
        else:
            response = reload(metadata["headers"]["location"])
        response.headers["Idempotency-Replayed"] = "true"
        return response


def idempotent_request(
    request: Request,
    management: ManagementDependency,
    key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            pattern=IDEMPOTENCY_KEY_PATTERN,
            description=(
                "A unique value of your choice. Retries of the request with the same key within a day return the "
                "first response and do nothing."
            ),
            examples=["6f0c0b9e-5a0e-4f4e-9b0c-2f7a3c1d8e55"],
        ),
    ] = None,
) -> IdempotentRequest:
    # The path is still percent-encoded. A decoded path could equal the path of another resource.
    target = f"{request.method} {request.scope['path']}".encode()
    return IdempotentRequest(management, key, target, context_of(request).body)


Idempotency = Annotated[IdempotentRequest, Depends(idempotent_request)]
