"""Sends one request over HTTP/2."""

from typing import Final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, StreamEnded, StreamReset
from h2.exceptions import H2Error

from hookmill.app.doctor.exchange import RESPONSE_BYTES_MAX, Connection, Headers, NoResponse, Response

RECEIVE_BYTES: Final = 65_536
FRAME_HEAD_BYTES: Final = 9
GOAWAY: Final = 7
"""The type of the frame with which a server announces that it will close the connection."""


def offers_http2(connection: Connection) -> bool:
    """Whether the server chose HTTP/2 for this TLS connection."""
    tls_socket = connection.tls_socket
    return tls_socket is not None and tls_socket.selected_alpn_protocol() == "h2"


def post(connection: Connection, authority: str, target: str, headers: Headers, body: bytes) -> Response:
    """Send a small body, and return the response. Raises `NoResponse`."""
    try:
        return _post(connection, authority, target, headers, body)
    except H2Error as error:
        raise NoResponse("sent no valid HTTP/2 response") from error


def _post(connection: Connection, authority: str, target: str, headers: Headers, body: bytes) -> Response:
    protocol = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
    protocol.initiate_connection()
    stream = protocol.get_next_available_stream_id()
    pseudo_headers = [(":method", "POST"), (":scheme", "https"), (":authority", authority), (":path", target)]
    own_headers = [(name.lower(), value) for name, value in headers]
    protocol.send_headers(stream, [*pseudo_headers, *own_headers, ("content-length", str(len(body)))])
    protocol.send_data(stream, body, end_stream=True)
    connection.send(protocol.data_to_send())
    received: list[tuple[str, str]] = []
    content = b""
    frames = _Frames()
    while len(content) <= RESPONSE_BYTES_MAX:
        for event in protocol.receive_data(frames.complete(connection.receive(RECEIVE_BYTES))):
            match event:
                case ResponseReceived():
                    received = [(str(name), str(value)) for name, value in event.headers]
                case DataReceived():
                    content += event.data
                    protocol.acknowledge_received_data(event.flow_controlled_length, stream)
                case StreamEnded():
                    status = dict(received).get(":status", "0")
                    return Response(
                        status=int(status),
                        headers=tuple(pair for pair in received if not pair[0].startswith(":")),
                        body=content,
                    )
                case StreamReset():
                    raise NoResponse("reset the HTTP/2 stream without a response")
                case _:
                    pass
        connection.send(protocol.data_to_send())
    raise NoResponse("sent an endless HTTP/2 response")


class _Frames:
    """Passes on complete frames, without GOAWAY: after one, the library would reject the response that follows."""

    def __init__(self) -> None:
        self._buffer = b""

    def complete(self, content: bytes) -> bytes:
        self._buffer += content
        frames = b""
        while len(self._buffer) >= FRAME_HEAD_BYTES:
            size = FRAME_HEAD_BYTES + int.from_bytes(self._buffer[:3])
            if len(self._buffer) < size:
                break
            frame, self._buffer = self._buffer[:size], self._buffer[size:]
            if frame[3] != GOAWAY:
                frames += frame
        return frames
