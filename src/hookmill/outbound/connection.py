"""Connections with one deadline for everything: the look-up of the name, TLS, the request and the response.

The timeout of a socket is the time between two bytes, so a peer that sends one byte every few seconds would never reach
it. Here, the connection is shut down when the time is over, which ends every call that waits for it.
"""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

from hookmill.domain.errors import DestinationUnavailable
from hookmill.domain.networks import Address
from hookmill.domain.outgoing import parsed_address

T = TypeVar("T")

ADDRESSES_MAX: Final = 4
"""How many addresses of one name are tried."""
LOOKUPS_MAX: Final = 8
"""How many look-ups of names may be in progress. One can't be cancelled, so it may outlive its deadline."""
_TIMER_MARGIN_SECONDS: Final = 0.02
"""How long after the deadline the timer fires, so that `MessageDeadline.is_over` is then always true."""
_TIMEOUT_SECONDS_MIN: Final = 0.001
"""Used if the deadline is already over, because a socket with a timeout of 0 would not wait at all."""
_LOOKUP_SLOTS: Final = threading.BoundedSemaphore(LOOKUPS_MAX)


class MessageDeadline:
    """The end of the time that one message may take."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._ends_at = time.monotonic() + seconds
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()

    @property
    def remaining(self) -> float:
        """The remaining seconds; 0 if the time is over."""
        return max(self._ends_at - time.monotonic(), 0.0)

    @property
    def is_over(self) -> bool:
        return self.remaining == 0.0

    def timeout_error(self, where: str) -> DestinationUnavailable:
        return DestinationUnavailable(f"{where} did not answer within {self.seconds:g} seconds.")

    def end(self) -> None:
        """End the time now, and so every call that waits for a connection. Any thread may call this."""
        with self._lock:
            self._ends_at = 0.0
            for connection in self._connections:
                _shut_down(connection)

    @contextmanager
    def limits(self, connection: socket.socket) -> Iterator[None]:
        """Shut the connection down at the deadline."""
        # TLS detaches `connection` from its descriptor. The duplicate can still shut the connection down.
        with closing(connection.dup()) as duplicate:
            timer = threading.Timer(self.remaining + _TIMER_MARGIN_SECONDS, _shut_down, [duplicate])
            timer.daemon = True
            timer.start()
            with self._lock:
                self._connections.add(duplicate)
            try:
                yield
            finally:
                timer.cancel()
                timer.join()
                with self._lock:
                    self._connections.remove(duplicate)


def in_thread(call: Callable[[], T]) -> Future[T]:
    """Call the function in a thread of its own, which does not keep the process alive."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="request", daemon=True).start()
    return future


@contextmanager
def connected(host: str, port: int, deadline: MessageDeadline, *, where: str) -> Iterator[socket.socket]:
    """A connection to one of the host's addresses, which is shut down at the deadline and closed at the end.

    Raises `DestinationUnavailable`; `where` is the destination's name in its text.
    """
    addresses = permitted_addresses(host, deadline, where=where)

    def connect(address: str, seconds: float) -> socket.socket:
        return socket.create_connection((address, port), seconds)

    with closing(first_connected(addresses, deadline, where, connect)) as connection, deadline.limits(connection):
        # The time that an address had to answer must not limit the pauses of the peer that did answer.
        connection.settimeout(max(deadline.remaining, _TIMEOUT_SECONDS_MIN))
        yield connection


@contextmanager
def reporting_failures(where: str, deadline: MessageDeadline) -> Iterator[None]:
    """Convert errors of the connection to `DestinationUnavailable`. The texts contain nothing that the peer sent."""
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        raise DestinationUnavailable(f"The certificate of {where} is not valid: {error.verify_message}.") from None
    except (OSError, EOFError) as error:
        if deadline.is_over or isinstance(error, TimeoutError):
            raise deadline.timeout_error(where) from None
        if isinstance(error, ssl.SSLError):
            raise DestinationUnavailable(f"{where} failed the TLS handshake.") from None
        reason = error.strerror if isinstance(error, OSError) else None
        raise DestinationUnavailable(f"The connection to {where} failed: {reason or 'it was closed'}.") from None


def permitted_addresses(
    host: str, deadline: MessageDeadline, *, where: str, permits: Callable[[Address], bool] | None = None
) -> Sequence[Address]:
    """The first addresses of the host that `permits` allows. Raises `DestinationUnavailable` if there is none."""
    addresses = _addresses(host, deadline, where)
    permitted = [address for address in addresses if permits is None or permits(address)][:ADDRESSES_MAX]
    if not permitted:
        raise DestinationUnavailable(
            f"{where} has no public address, so nothing was sent. The setting alarm_private_addresses allows others."
        )
    return permitted


def _addresses(host: str, deadline: MessageDeadline, where: str) -> Sequence[Address]:
    """The addresses of the host, which may be an address itself."""
    if (address := parsed_address(host)) is not None:
        return [address]
    if not _LOOKUP_SLOTS.acquire(timeout=deadline.remaining):
        raise DestinationUnavailable(f"The name of {where} can't be looked up: too many look-ups wait for an answer.")
    results: SimpleQueue[Sequence[str] | OSError | UnicodeError] = SimpleQueue()

    def look_up() -> None:
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            results.put([str(entry[4][0]) for entry in found])
        except (OSError, UnicodeError) as error:
            results.put(error)
        finally:
            _LOOKUP_SLOTS.release()

    try:
        threading.Thread(target=look_up, name="look-up", daemon=True).start()
    except RuntimeError:
        # The system has no thread left, so nothing else releases the slot.
        _LOOKUP_SLOTS.release()
        raise
    try:
        result = results.get(timeout=max(deadline.remaining, _TIMEOUT_SECONDS_MIN))
    except Empty:
        raise deadline.timeout_error(where) from None
    if isinstance(result, OSError | UnicodeError):
        raise DestinationUnavailable(f"The name of {where} has no address. Check it.")
    return [address for text in dict.fromkeys(result) if (address := parsed_address(text)) is not None]


def first_connected(
    addresses: Sequence[Address], deadline: MessageDeadline, where: str, connect: Callable[[str, float], T]
) -> T:
    """The connection to the first address that answers. `connect` gets an address and the seconds that it may take."""
    failure: OSError | None = None
    for number, address in enumerate(addresses):
        # An address that never answers leaves time for those after it.
        timeout = deadline.remaining / (len(addresses) - number)
        if timeout == 0.0:
            break
        try:
            return connect(str(address), timeout)
        except OSError as error:
            failure = error
    if failure is None or deadline.is_over or isinstance(failure, TimeoutError):
        raise deadline.timeout_error(where)
    raise DestinationUnavailable(f"Could not connect to {where}: {failure.strerror or 'no answer'}.")


def _shut_down(connection: socket.socket) -> None:
    # The peer may have closed the connection already.
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
