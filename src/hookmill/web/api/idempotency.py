"""Creating something once, however often it is asked for: a request is repeated with the same Idempotency-Key."""

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Annotated, Final

from fastapi import Depends, Header, Request, Response

from hookmill.domain.permission import MayAdminister, MayManage
from hookmill.management import KeyReused, Management
from hookmill.web.api.access import Operations, asking_of
from hookmill.web.api.fields import IDEMPOTENCY_KEY

KEPT_BYTES: Final = 65_536
"""A larger answer is not kept, where what it shows can be looked at again."""
_KEPT_HEADERS: Final = ("content-type", "location")


class Once:
    """One request, which may be a repeated one."""

    def __init__(self, management: Management, key: str | None, address: bytes, body: bytes) -> None:
        self._management = management
        self._key = key
        self._address = sha256(address).digest()
        # The body may hold a secret that can be guessed from its digest, so this is kept with the answer, sealed.
        self._body = sha256(body).hexdigest()

    def answer(
        self,
        may: MayManage | MayAdminister,
        make: Callable[[], Response],
        look_again: Callable[[str], Response] | None = None,
    ) -> Response:
        """What `make` answers, or answered the first time. Raises `KeyReused`.

        `look_again` shows what was made at a location, as it is now: instead of an answer that is too large to keep.

        The answer is made inside the transaction: where it can't be, nothing is kept, and no secret in it is lost.
        """
        with self._management.together(may):
            if self._key is None:
                return make()
            kept = self._management.idempotency.answered(may, self._key, self._address)
            if kept is not None:
                return self._again(kept, look_again)
            response = make()
            self._management.idempotency.keep(
                may, self._key, self._address, self._to_keep(response, look_again is not None)
            )
            return response

    def _to_keep(self, response: Response, can_look_again: bool) -> bytes:
        headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
        head = json.dumps({"status": response.status_code, "headers": headers, "asked": self._body}).encode()
        body = bytes(response.body)
        # The body as it is, after the only line break of the head: escaped, it would take several times as much.
        return head if can_look_again and len(body) > KEPT_BYTES else head + b"\n" + body

    def _again(self, kept: bytes, look_again: Callable[[str], Response] | None) -> Response:
        head, has_body, body = kept.partition(b"\n")
        told = json.loads(head)
        if told["asked"] != self._body:
            raise KeyReused("This Idempotency-Key was used for another request. Take a new one.")
        if has_body or look_again is None:
            response = Response(body, status_code=told["status"], headers=told["headers"])
        else:
            response = look_again(told["headers"]["location"])
        response.headers["Idempotency-Replayed"] = "true"
        return response


def once(
    request: Request,
    management: Operations,
    key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            pattern=IDEMPOTENCY_KEY,
            description="Any text of your own. The same request with the same key is done once, within a day.",
            examples=["6f0c0b9e-5a0e-4f4e-9b0c-2f7a3c1d8e55"],
        ),
    ] = None,
) -> Once:
    # The address as it was sent: what it names is decoded by now, and could pose as another.
    address = f"{request.method} {request.scope['path']}".encode()
    return Once(management, key, address, asking_of(request).body)


OnlyOnce = Annotated[Once, Depends(once)]
