"""Creating something once, however often it is asked for: a request is repeated with the same Idempotency-Key."""

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Annotated

from fastapi import Depends, Header, Request, Response

from hookmill.domain.permission import MayAdminister, MayManage
from hookmill.management import KeyReused, Management
from hookmill.web.api.access import Operations, asking_of

_KEPT_HEADERS = ("content-type", "location")


class Once:
    """One request, which may be a repeated one."""

    def __init__(self, management: Management, key: str | None, address: bytes, body: bytes) -> None:
        self._management = management
        self._key = key
        self._address = sha256(address).digest()
        # The body may hold a secret that can be guessed from its digest, so this is kept with the answer, sealed.
        self._body = sha256(body).hexdigest()

    def answer(self, may: MayManage | MayAdminister, make: Callable[[], Response]) -> Response:
        """What `make` answers, or answered the first time. Raises `KeyReused`."""
        if self._key is None:
            return make()
        with self._management.together(may):
            kept = self._management.idempotency.answered(may, self._key, self._address)
            if kept is not None:
                return self._again(kept)
            response = make()
            self._management.idempotency.keep(may, self._key, self._address, self._to_keep(response))
            return response

    def _to_keep(self, response: Response) -> bytes:
        headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
        answer = {"status": response.status_code, "headers": headers, "body": bytes(response.body).decode()}
        return json.dumps(answer | {"asked": self._body}).encode()

    def _again(self, kept: bytes) -> Response:
        told = json.loads(kept)
        if told["asked"] != self._body:
            raise KeyReused("This Idempotency-Key was used for another request. Take a new one.")
        headers = told["headers"] | {"Idempotency-Replayed": "true"}
        return Response(told["body"], status_code=told["status"], headers=headers)


def once(
    request: Request,
    management: Operations,
    key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            pattern=r"^[\x21-\x7e]([\x20-\x7e]{0,253}[\x21-\x7e])?$",
            description="Any text of your own. The same request with the same key is done once, within a day.",
            examples=["6f0c0b9e-5a0e-4f4e-9b0c-2f7a3c1d8e55"],
        ),
    ] = None,
) -> Once:
    # The address as it was sent: what it names is decoded by now, and could pose as another.
    address = f"{request.method} {request.scope['path']}".encode()
    return Once(management, key, address, asking_of(request).body)


OnlyOnce = Annotated[Once, Depends(once)]
