"""Reads forms. The size and time limits depend on the sender."""

from typing import Final

from hookmill.domain.errors import Invalid
from hookmill.web.body import BodyCutShort, BodyReader, BodyTooLarge, BodyTooSlow
from hookmill.web.dashboard.page_context import PageContext, SubmittedForm, parse_form
from hookmill.web.delivery_body import BODY_SECONDS

FORM_BYTES_MAX: Final = 1_048_576
OPEN_FORM_BYTES_MAX: Final = 16_384
"""For forms without sign-in: an address, a name and passwords."""
SIGNED_OUT_FORM_BYTES_MAX: Final = 65_536
"""For a form whose session has ended. The response contains it, and escaping can enlarge it many times."""
UNPROVEN_SECONDS: Final = 10.0
"""The time limit for forms of unauthenticated clients."""


class Incomplete(Exception):
    """The form was not received completely. The connection is closed after the response."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class FormReader:
    """Reads forms, with separate limits for each kind of sender, so that no kind can block another."""

    def __init__(self) -> None:
        self._of_members = BodyReader(32)
        self._of_unauthenticated = BodyReader(32, grace_seconds=0.1)
        # A member whose session has ended must not lose the input. Any client can send such a form.
        self._signed_out = BodyReader(4)

    async def read(self, context: PageContext, *, is_open: bool) -> SubmittedForm:
        """Read a form. `is_open` is true for forms without sign-in.

        Raises `Invalid` for a malformed form, and `Incomplete` for a form that did not arrive completely.
        """
        kind = context.request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/x-www-form-urlencoded":
            raise Invalid("The content type of a form must be application/x-www-form-urlencoded.")
        reader, bytes_max, seconds = self._signed_out, SIGNED_OUT_FORM_BYTES_MAX, UNPROVEN_SECONDS
        if context.signed_in is not None:
            reader, bytes_max, seconds = self._of_members, FORM_BYTES_MAX, BODY_SECONDS
        elif is_open:
            reader, bytes_max = self._of_unauthenticated, OPEN_FORM_BYTES_MAX
        try:
            body = await reader.read(
                context.request.scope, context.request.receive, bytes_max=bytes_max, seconds=seconds
            )
        except BodyTooLarge:
            raise Incomplete(413, f"The form is larger than {bytes_max:,} bytes.") from None
        except BodyTooSlow:
            raise Incomplete(408, "The form took too long to arrive. Submit it again.") from None
        except BodyCutShort:
            raise Incomplete(400, "The form did not arrive completely. Submit it again.") from None
        try:
            # Decoding a large form takes 0.1 s, which would block the event loop.
            return parse_form(body) if len(body) <= OPEN_FORM_BYTES_MAX else await context.in_thread(parse_form, body)
        except ValueError:
            raise Invalid("The form can't be read. Reload the page and submit it again.") from None
