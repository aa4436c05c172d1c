"""One POST to the URL that an operator has configured."""

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from hookmill.domain.alarm_destination import parsed_url
from hookmill.domain.errors import DestinationUnavailable
from hookmill.domain.secret import SecretValue
from hookmill.outbound.answer_text import quoted_answer, secret_parts
from hookmill.outbound.connection import MessageDeadline, in_thread

REQUEST_SECONDS: Final = 20.0
"""The time limit of one request, from the look-up of the host's name to the last byte of the response."""


HTTP_ACCEPTED: Final = 202
_TOKEN: Final = re.compile("hat_[A-Za-z0-9_-]{43}")
"""The token of an attempt, which is in the body."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A URL to which requests are sent. Its path and query may contain a token, so texts show only `origin`."""

    url: str

    @property
    def origin(self) -> str:
        """The URL's scheme, host and port."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """There was no response, or one with another status than 202. The reason is a sentence without any secret."""

    reason: str


class PostRequest:
    """A POST in a thread of its own, so that the caller can do other work, or stop waiting.

    A look-up of a host's name can't be interrupted. Its thread may outlive the request, and ends with the look-up.
    """

    def __init__(self, endpoint: Endpoint, headers: Mapping[str, str], body: bytes) -> None:
        self._endpoint = endpoint
        self._deadline = MessageDeadline(REQUEST_SECONDS)

        def send() -> int | RequestFailed:
            # Imported here, because the settings load this module, and few installations send such requests.
            from hookmill.outbound import http

            try:
                url = parsed_url(SecretValue(endpoint.url))
                response = http.request(
                    "POST", url, body, headers, self._deadline, tls=ssl.create_default_context, where=endpoint.origin
                )
                if response.status == HTTP_ACCEPTED:
                    return HTTP_ACCEPTED
                note = ", which is a redirect and is not followed" if 300 <= response.status < 400 else ""
                words = quoted_answer(response.body, [*secret_parts(url, headers), *_TOKEN.findall(body.decode())])
                said = f": {words}" if words else ""
                return RequestFailed(f"{endpoint.origin} answered {response.status}{note}, instead of 202{said}.")
            except DestinationUnavailable as error:
                return RequestFailed(str(error))
            except ValueError:
                return RequestFailed(f"The URL at {endpoint.origin} can't be used.")
            except MemoryError:
                return RequestFailed(f"The request to {endpoint.origin} failed: Cannot allocate memory.")

        self._response = in_thread(send)

    def wait(self, seconds: float) -> int | RequestFailed | None:
        """202, or the reason why the platform has not accepted it. None if `seconds` are not enough.

        After the deadline, the result is `RequestFailed`.
        """
        try:
            return self._response.result(min(seconds, self._deadline.remaining))
        except TimeoutError:
            if not self._deadline.is_over:
                return None
        return RequestFailed(str(self._deadline.timeout_error(self._endpoint.origin)))

    def wait_until_done(self) -> int | RequestFailed:
        while (result := self.wait(REQUEST_SECONDS)) is None:
            pass
        return result

    def close(self) -> None:
        """End the request early. The server may already have received it."""
        self._deadline.end()
