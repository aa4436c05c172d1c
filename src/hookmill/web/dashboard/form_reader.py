"""Reads forms. The size and time limits depend on the sender."""

import asyncio
from contextlib import suppress
from typing import Final

from hookmill.domain.errors import Invalid
from hookmill.web.body import BodyCutShort, BodyReader, BodyTooLarge, BodyTooSlow
from hookmill.web.dashboard.page_context import PageContext, SubmittedForm, parse_form
from hookmill.web.delivery_body import BODY_SECONDS

FORM_BYTES_MAX: Final = 1_048_576
PUBLIC_FORM_BYTES_MAX: Final = 16_384
"""For pages that require no sign-in. Their forms contain an e-mail address, a name and passwords."""
UNAUTHENTICATED_SECONDS: Final = 10.0
"""The time limit for forms of unauthenticated clients."""


class IncompleteForm(Exception):
    """The form was not received completely. The connection is closed after the response."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class FormReader:
    """Reads forms, with separate limits for each kind of sender, so that no kind can block another."""

    def __init__(self) -> None:
        self._member_reader = BodyReader(32)
        self._public_reader = BodyReader(32, grace_seconds=0.1)

    async def discard(self, context: PageContext) -> None:
        """Receive a form that is not used, and keep nothing. A client that still sends may not read the answer."""
        size = 0
        # Some servers report a closed connection by an exception.
        with suppress(Exception):
            async with asyncio.timeout(UNAUTHENTICATED_SECONDS):
                has_more = True
                while has_more and size <= FORM_BYTES_MAX:
                    message = await context.request.receive()
                    size += len(message.get("body", b""))
                    has_more = message.get("more_body", False)

    async def read(self, context: PageContext) -> SubmittedForm:
        """Read a form.

        Raises `Invalid` for a malformed form, and `IncompleteForm` for a form that did not arrive completely.
        """
        media_type = context.request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != "application/x-www-form-urlencoded":
            raise Invalid("The content type of a form must be application/x-www-form-urlencoded.")
        reader, bytes_max, seconds = self._public_reader, PUBLIC_FORM_BYTES_MAX, UNAUTHENTICATED_SECONDS
        if context.signed_in is not None:
            reader, bytes_max, seconds = self._member_reader, FORM_BYTES_MAX, BODY_SECONDS
        try:
            body = await reader.read(
                context.request.scope, context.request.receive, bytes_max=bytes_max, seconds=seconds
            )
        except BodyTooLarge:
            raise IncompleteForm(413, f"The form is larger than {bytes_max:,} bytes. Shorten its content.") from None
        except BodyTooSlow:
            raise IncompleteForm(408, "The form took too long to arrive. Submit it again.") from None
        except BodyCutShort:
            raise IncompleteForm(400, "The form did not arrive completely. Submit it again.") from None
        try:
            # In a thread if the form is large: parsing it takes up to 0.1 s, which would block the event loop.
            return parse_form(body) if len(body) <= PUBLIC_FORM_BYTES_MAX else await context.in_thread(parse_form, body)
        except ValueError:
            raise Invalid("The form can't be read. Reload the page and submit it again.") from None
