"""Requests that no client library would send, each with the answers that the requirements allow.

A request has the right credentials unless it is about credentials. So a refusal shows that its form was refused.
"""

import gzip
import hashlib
import zlib
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

NO_ANSWER = 0
"""In a set of answers: the server may close the connection without an answer, because it can't parse the request."""

UNPARSABLE = frozenset({NO_ANSWER, 400})
TOO_LONG = frozenset({NO_ANSWER, 400, 414, 431})
WRONG_VERSION = frozenset({NO_ANSWER, 400, 505})
ACCEPTED = frozenset({202})
UNKNOWN_METHOD = frozenset({400, 405, 501})

BODY_BYTES_MAX = 262_144
CANARY = b"Canary7Q"
"""A text in refused credentials, queries, headers and bodies. The service must not store or show it anywhere."""

IDENTITY_PLACEHOLDER = b"@IDENTITY@"
"""The test replaces it with an event id, by which it finds the accepted delivery in the log."""


class Connection(Enum):
    """What happens to the connection, and to a valid delivery that was sent on it after the hostile request."""

    OPEN = auto()
    """The end of the request is clear: the delivery is accepted."""
    CLOSED = auto()
    """The end of the request is unclear: the server closes the connection, and does not read the delivery."""
    EITHER = auto()
    """The request is well-formed and refused: the server may do either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The two webhooks to which the requests are sent, one of each token mode."""

    uid: bytes
    token: bytes
    url_uid: bytes
    url_token: bytes

    @property
    def path(self) -> bytes:
        return b"/webhooks/w/" + self.uid

    @property
    def url_path(self) -> bytes:
        """The path of the `url_token` webhook, without the token."""
        return b"/webhooks/w/" + self.url_uid


@dataclass(frozen=True, slots=True, kw_only=True)
class HostileRequest:
    """The bytes of one or several requests, the allowed statuses of each answer, and what happens to the connection."""

    name: str
    data: bytes
    answers: tuple[frozenset[int], ...]
    connection: Connection
    is_alone: bool = False
    """No valid delivery is sent after it."""
    half_closes: bool = False
    """The client then closes its side of the connection, so that the server does not wait for more bytes."""
    is_head: bool = False


PLACEHOLDER_TARGET = Target(uid=b"wh_0", token=b"t" * 43, url_uid=b"wh_1", url_token=b"u" * 43)
"""For a list of the names, which needs no service."""


def hostile_requests(target: Target = PLACEHOLDER_TARGET) -> list[HostileRequest]:
    """All hostile requests to these webhooks. Their names are unique."""
    families = (
        _methods,
        _targets,
        _url_tokens,
        _versions,
        _header_lines,
        _authorizations,
        _credentials_in_wrong_places,
        _content_lengths,
        _transfer_encodings,
        _chunks,
        _expectations_and_upgrades,
        _pipelines,
        _early_ends,
        _sizes,
        _encodings_and_types,
    )
    return [case for family in families for case in family(target)]


def valid_delivery(target: Target, identity: bytes) -> bytes:
    """A valid delivery request with this event id."""
    return _post(target, identity=identity)


def _post(
    target: Target,
    *,
    method: bytes = b"POST",
    path: bytes | None = None,
    version: bytes = b"HTTP/1.1",
    host: bytes = b"Host: hooks.test\r\n",
    authorization: bytes | None = None,
    identity: bytes = IDENTITY_PLACEHOLDER,
    headers: bytes = b"",
    framing: bytes | None = None,
    body: bytes = b"{}",
) -> bytes:
    """A delivery request. It is valid except for the arguments. Header lines end with CRLF."""
    if authorization is None:
        authorization = b"Authorization: Bearer " + target.token + b"\r\n"
    if framing is None:
        framing = b"Content-Length: %d\r\n" % len(body)
    line = method + b" " + (target.path if path is None else path) + b" " + version + b"\r\n"
    identity_line = b"X-Service-Delivery-Id: " + identity + b"\r\n" if identity else b""
    return line + host + authorization + identity_line + headers + framing + b"\r\n" + body


def _case(
    name: str, data: bytes, answers: set[int] | frozenset[int], connection: Connection, **options: bool
) -> HostileRequest:
    return HostileRequest(name=name, data=data, answers=(frozenset(answers),), connection=connection, **options)


CHUNKED = b"Transfer-Encoding: chunked\r\n"
WHOLE_CHUNKS = b"2\r\n{}\r\n0\r\n\r\n"
WEBSOCKET = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)


def _methods(target: Target) -> Iterator[HostileRequest]:
    known = (
        "GET PUT PATCH DELETE OPTIONS TRACE CONNECT PROPFIND MKCOL COPY LOCK REPORT SEARCH LINK PURGE QUERY PRI".split()
    )
    for name in known:
        data = _post(target, method=name.encode())
        yield _case(f"method {name}", data, {405}, Connection.EITHER)
    yield _case("method HEAD", _post(target, method=b"HEAD"), {405}, Connection.EITHER, is_head=True)
    bodiless = _post(target, method=b"GET", framing=b"", body=b"")
    yield _case("method GET without a body", bodiless, {405}, Connection.EITHER)
    yield _case(
        "method GET with override headers for POST",
        _post(target, method=b"GET", headers=b"X-HTTP-Method-Override: POST\r\nX-Method-Override: POST\r\n"),
        {405},
        Connection.EITHER,
    )
    yield _case(
        "method POST with an override header for DELETE",
        _post(target, headers=b"X-HTTP-Method-Override: DELETE\r\n"),
        ACCEPTED,
        Connection.OPEN,
    )
    for name in ("post", "Post", "POSTS", "POS", "XPOST", "POST-", "P0ST", "POST!", "P" * 100):
        yield _case(f"method {name}", _post(target, method=name.encode()), UNKNOWN_METHOD, Connection.EITHER)
    for size in (1_000, 8_000):
        data = _post(target, method=b"P" * size)
        yield _case(f"method of {size} letters", data, UNKNOWN_METHOD | TOO_LONG, Connection.EITHER)
    for name, method in (
        ("with a bracket", b"PO(ST"),
        ("with a NUL", b"PO\0ST"),
        ("with a colon", b"POST:"),
        ("with a slash", b"PO/ST"),
        ("in quotes", b'"POST"'),
        ("with a letter that is not ASCII", "PÖST".encode()),
        ("of a control character", b"\x01"),
        ("empty", b""),
        ("after a space", b" POST"),
        ("with a space in it", b"PO ST"),
        ("after a byte order mark", b"\xef\xbb\xbfPOST"),
    ):
        yield _case(f"method {name}", _post(target, method=method), UNPARSABLE, Connection.CLOSED)


def _targets(target: Target) -> Iterator[HostileRequest]:
    uid, path = target.uid, target.path
    for name, request_target in (
        ("with a query", path + b"?a=" + CANARY),
        ("with an empty query", path + b"?"),
        ("with a percent sign in the query", path + b"?%00%2f%zz"),
        ("with a query of 8,000 characters", path + b"?" + b"q" * 8_000),
        ("in absolute form", b"http://hooks.test" + path),
        ("in absolute form of another host", b"http://elsewhere.test:81" + path),
        ("in absolute form with a query", b"http://hooks.test" + path + b"?a"),
    ):
        yield _case(f"target {name}", _post(target, path=request_target), ACCEPTED, Connection.OPEN)

    for name, request_target in (
        ("the prefix alone", b"/webhooks/w/"),
        ("the prefix without its slash", b"/webhooks/w"),
        ("with a slash at its end", path + b"/"),
        ("with another segment", path + b"/" + CANARY),
        ("with a token segment where none belongs", path + b"/" + target.token),
        ("beginning with two slashes", b"/" + path),
        ("with two slashes inside", path.replace(b"/w/", b"//w/")),
        ("with a dot segment", b"/webhooks/w/./" + uid),
        ("with a double dot segment", b"/webhooks/w/../w/" + uid),
        ("with a double dot segment out of another route", b"/healthz/.." + path),
        ("with a double dot segment into another route", b"/webhooks/w/../../healthz"),
        ("with an encoded double dot segment", b"/webhooks/w/%2e%2e/w/" + uid),
        ("with an overlong double dot", b"/webhooks/w/%c0%ae%c0%ae/w/" + uid),
        ("with an encoded slash before the uid", b"/webhooks/w%2f" + uid),
        ("with an encoded slash behind the uid", path + b"%2f"),
        ("with an encoded NUL behind the uid", path + b"%00"),
        ("with an encoded line end behind the uid", path + b"%0d%0aX-A:%20b"),
        ("with an encoded question mark", path + b"%3fa=b"),
        ("with a broken encoding", path + b"%zz"),
        ("with the first letter of the uid encoded", b"/webhooks/w/%%%02x" % uid[0] + uid[1:]),
        ("with the whole uid encoded", b"/webhooks/w/" + b"".join(b"%%%02x" % byte for byte in uid)),
        ("with the prefix encoded", b"/%77ebhooks/w/" + uid),
        ("with the uid in upper case", b"/webhooks/w/" + uid.upper()),
        ("with a shortened uid", path[:-1]),
        ("with a lengthened uid", path + b"0"),
        ("with a semicolon parameter", path + b";a=b"),
        ("with a comma", path + b"," + target.url_uid),
        ("with an asterisk for the uid", b"/webhooks/w/*"),
        ("with a wildcard for the uid", b"/webhooks/w/%25"),
        ("with an underscore for the uid", b"/webhooks/w/" + b"_" * len(uid)),
        ("with a quote in the uid", path + b"'"),
        ("with a uid of 4,000 characters", b"/webhooks/w/" + b"w" * 4_000),
        ("with a thousand segments", b"/webhooks/w" + b"/a" * 1_000),
        ("with a full URL for the uid", b"/webhooks/w/http://hooks.test" + path),
    ):
        yield _case(f"target {name}", _post(target, path=request_target), {404}, Connection.EITHER)
    yield _case("target the root", _post(target, path=b"/"), {405}, Connection.EITHER)

    for name, request_target in (
        ("in asterisk form", b"*"),
        ("in authority form", b"hooks.test:80"),
        ("relative", path[1:]),
        ("in absolute form of no scheme", b"//hooks.test" + path),
        ("in absolute form without a host", b"http://" + path),
        ("with every slash encoded", path.replace(b"/", b"%2f")),
        ("with a letter that is not ASCII", path + "ü".encode()),
        ("with backslashes", path.replace(b"/", b"\\")),
        ("with a backslash at its end", path + b"\\"),
        ("with brackets", path + b'<>"{}|^`[]'),
        ("with only a query", b"?a=b"),
    ):
        yield _case(f"target {name}", _post(target, path=request_target), {NO_ANSWER, 400, 404}, Connection.EITHER)
    # A server may ignore these parts. The rest is the right path, with the right credentials.
    for name, request_target in (
        ("with a fragment", path + b"#a"),
        ("in absolute form of another scheme", b"ftp://hooks.test" + path),
    ):
        yield _case(f"target {name}", _post(target, path=request_target), {202, 400, 404}, Connection.EITHER)
    yield _case(
        "target in asterisk form, OPTIONS",
        _post(target, method=b"OPTIONS", path=b"*"),
        {200, 204, 400, 404, 405},
        Connection.EITHER,
    )
    yield _case(
        "target in authority form, CONNECT",
        _post(target, method=b"CONNECT", path=b"hooks.test:80"),
        {400, 404, 405, 501},
        Connection.EITHER,
    )

    for name, request_target in (
        ("with a space", path + b" x"),
        ("with a tab", path + b"\tx"),
        ("with a NUL", path + b"\0"),
        ("with a DEL", path + b"\x7f"),
        ("with a carriage return", path + b"\r"),
        ("with a line feed", path + b"\nX-A: b"),
        ("with a byte that is not ASCII", path + b"\xff"),
        ("empty", b""),
    ):
        yield _case(f"target {name}", _post(target, path=request_target), UNPARSABLE, Connection.CLOSED)
    for size in (70_000, 200_000):
        data = _post(target, path=path + b"?" + b"q" * size)
        yield _case(f"target of {size} characters", data, TOO_LONG, Connection.CLOSED)


def _url_tokens(target: Target) -> Iterator[HostileRequest]:
    path, token = target.url_path, target.url_token

    def request(request_target: bytes, authorization: bytes = b"") -> bytes:
        return _post(target, path=request_target, authorization=authorization)

    yield _case("url token right", request(path + b"/" + token), ACCEPTED, Connection.OPEN)
    yield _case("url token right, with a query", request(path + b"/" + token + b"?a=b"), ACCEPTED, Connection.OPEN)
    yield _case(
        "url token right, beside a wrong bearer",
        request(path + b"/" + token, b"Authorization: Bearer x\r\n"),
        ACCEPTED,
        Connection.OPEN,
    )
    for name, request_target in (
        ("missing", path),
        ("missing, with a query", path + b"?" + token),
        ("wrong", path + b"/" + CANARY),
        ("lengthened", path + b"/" + token + b"x"),
        ("in another case", path + b"/" + token.swapcase()),
        ("encoded", path + b"/" + b"".join(b"%%%02x" % byte for byte in token)),
        ("with its first letter encoded", path + b"/%%%02x" % token[0] + token[1:]),
        ("followed by an encoded slash", path + b"/" + token + b"%2f"),
        ("as a placeholder", path + b"/%7Btoken%7D"),
        ("two dots", path + b"/.."),
        ("of the other webhook", path + b"/" + target.token),
        ("replaced by its digest", path + b"/" + hashlib.sha256(token).hexdigest().encode()),
        ("of 8,000 letters", path + b"/" + b"x" * 8_000),
    ):
        yield _case(f"url token {name}", request(request_target), {401}, Connection.EITHER)
    for name, request_target in (
        ("an empty segment", path + b"/"),
        ("followed by a slash", path + b"/" + token + b"/"),
        ("after an empty segment", path + b"//" + token),
        ("before the uid", b"/webhooks/w/" + token + b"/" + target.url_uid),
        ("with another uid", b"/webhooks/w/wh_unknown/" + token),
    ):
        yield _case(f"url token {name}", request(request_target), {404}, Connection.EITHER)
    bearer = b"Authorization: Bearer " + token + b"\r\n"
    yield _case("url token as a bearer", request(path, bearer), {401}, Connection.EITHER)


def _versions(target: Target) -> Iterator[HostileRequest]:
    yield _case("version 1.0", _post(target, version=b"HTTP/1.0"), ACCEPTED, Connection.CLOSED)
    yield _case("version 1.0 without a Host", _post(target, version=b"HTTP/1.0", host=b""), ACCEPTED, Connection.CLOSED)
    keep_alive = _post(target, version=b"HTTP/1.0", headers=b"Connection: keep-alive\r\n")
    yield _case("version 1.0 with keep-alive", keep_alive, ACCEPTED, Connection.EITHER)
    for version in (
        b"HTTP/0.9",
        b"HTTP/1.2",
        b"HTTP/2",
        b"HTTP/2.0",
        b"HTTP/10.1",
        b"HTTP/11",
        b"HTTP/1.",
        b"HTTP",
        b"HTTP /1.1",
        b"HTTP/ 1.1",
        b"HTTP/1.1 HTTP/1.1",
        b"http/1.1",
        b"HTTP/-1.1",
        b"HTTP/1.1\0",
        b"\xff\xff\xff\xff/1.1",
    ):
        data = _post(target, version=version)
        yield _case(f"version {version.decode('latin-1')!r}", data, WRONG_VERSION, Connection.CLOSED)
    yield _case("version missing", b"POST " + target.path + b"\r\n\r\n", WRONG_VERSION, Connection.CLOSED)
    for name, noise in (
        ("HTTP/2 with prior knowledge", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"),
        ("TLS", bytes.fromhex("16030100c8010000c40303") + b"\x5a" * 190),
        ("SSH", b"SSH-2.0-client\r\n"),
        ("SMTP", b"EHLO hooks.test\r\n\r\n"),
        ("a proxy's preamble", b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"),
        ("a proxy's binary preamble", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + b"\1" * 12),
        ("NULs", b"\0" * 64 + b"\r\n\r\n"),
        ("every byte", bytes(range(256)) + b"\r\n\r\n"),
        ("an answer", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        ("a colon", b":\r\n\r\n"),
    ):
        yield _case(f"no request, but {name}", noise, WRONG_VERSION, Connection.CLOSED, half_closes=True)


def _header_lines(target: Target) -> Iterator[HostileRequest]:
    for name, lines in (
        ("with an unusual but valid name", b"!#$%&'*+-.^_`|~09aZ: x\r\n"),
        ("empty", b"X-A:\r\n"),
        ("between tabs", b"X-A:\tb\tc\t\r\n"),
        ("with bytes that are not ASCII", b"X-A: \xe9\xff\xfe\r\n"),
        ("in UTF-8", "X-A: 文字\r\n".encode()),
        ("of 16 KB", b"X-A: " + b"b" * 16_384 + b"\r\n"),
        ("many times", b"X-A: b\r\n" * 80),
        ("that names the credentials as hop-by-hop", b"Connection: Authorization\r\n"),
        ("that claims another host", b"X-Forwarded-Host: elsewhere.test\r\nForwarded: host=elsewhere.test\r\n"),
        ("that claims another path", b"X-Original-URL: /healthz\r\nX-Rewrite-URL: /healthz\r\n"),
        ("that looks like a script", b"User-Agent: <script>" + CANARY + b"</script>\r\n"),
        ("that looks like a JNDI lookup", b"User-Agent: ${jndi:ldap://elsewhere.test/a}\r\n"),
        ("that looks like a log line", b'Referer: {"level": "error"} %s %n\r\n'),
    ):
        yield _case(f"header {name}", _post(target, headers=lines), ACCEPTED, Connection.OPEN)
    yield _case("header lines that end with LF", _post(target).replace(b"\r\n", b"\n"), {202, 400}, Connection.EITHER)
    yield _case("empty lines before the request", b"\r\n\r\n" + _post(target), {202, 400}, Connection.EITHER)

    for name, lines in (
        ("folded", b"X-A: b\r\n c\r\n"),
        ("folded with a tab", b"X-A: b\r\n\tc\r\n"),
        ("folded before the credentials end", b"X-A: b\r\n \r\n"),
        ("with a space before its colon", b"X-A : b\r\n"),
        ("with a tab before its colon", b"X-A\t: b\r\n"),
        ("with a space in its name", b"X A: b\r\n"),
        ("without a name", b": b\r\n"),
        ("without a colon", b"X-A\r\n"),
        ("of a colon", b":\r\n"),
        ("with a NUL", b"X-A: " + CANARY + b"\0c\r\n"),
        ("with a NUL in its name", b"X\0A: b\r\n"),
        ("with a bare CR", b"X-A: b\rc\r\n"),
        ("with a bare CR and another header", b"X-A: b\rX-B: c\r\n"),
        ("with a control character", b"X-A: b\x01c\r\n"),
        ("with an escape sequence", b"X-A: \x1b[31mred\x1b[0m\r\n"),
        ("with a DEL", b"X-A: b\x7f\r\n"),
        ("with a name that is not ASCII", "X-Ä: b\r\n".encode()),
        ("with a bracket in its name", b"X(A): b\r\n"),
        ("with a quoted name", b'"X-A": b\r\n'),
        ("with a slash in its name", b"X/A: b\r\n"),
        ("that begins with a space", b" X-A: b\r\n"),
        ("of an equals sign", b"X-A=b\r\n"),
    ):
        yield _case(f"header {name}", _post(target, headers=lines), UNPARSABLE, Connection.CLOSED)
    folded_first = _post(target, host=b" Host: hooks.test\r\n")
    yield _case("header that is folded into the request line", folded_first, UNPARSABLE, Connection.CLOSED)

    for name, lines in (
        ("of 1,000 lines", b"X-A: b\r\n" * 1_000),
        ("of 10,000 lines", b"X-A: b\r\n" * 10_000),
        ("of 70 KB", b"X-A: " + b"b" * 70_000 + b"\r\n"),
        ("of 1 MB", b"X-A: " + b"b" * 1_000_000 + b"\r\n"),
        ("with a name of 70 KB", b"X" * 70_000 + b": b\r\n"),
        ("of 500 KB in many lines", b"".join(b"X-%d: %s\r\n" % (n, b"b" * 1_000) for n in range(500))),
    ):
        yield _case(f"header {name}", _post(target, headers=lines), TOO_LONG, Connection.CLOSED)

    for name, host in (
        ("missing", b""),
        ("empty", b"Host:\r\n"),
        ("twice", b"Host: hooks.test\r\nHost: hooks.test\r\n"),
        ("twice, differing", b"Host: hooks.test\r\nHost: elsewhere.test\r\n"),
        ("twice, in two cases", b"Host: hooks.test\r\nhOST: hooks.test\r\n"),
        ("three times", b"Host: a\r\nHost: b\r\nHost: c\r\n"),
    ):
        yield _case(f"Host {name}", _post(target, host=host), {400}, Connection.CLOSED)
    two = b"Host: a\r\nHost: b\r\n"
    yield _case("Host twice, on another path", _post(target, host=two, path=b"/healthz"), {400}, Connection.CLOSED)
    yield _case("Host twice, on an unknown path", _post(target, host=two, path=b"/nothing"), {400}, Connection.CLOSED)
    yield _case(
        "Host twice, with a wrong token",
        _post(target, host=two, authorization=b"Authorization: Bearer x\r\n"),
        {400},
        Connection.CLOSED,
    )
    for name, host in (
        ("of another site", b"Host: elsewhere.test\r\n"),
        ("with a port", b"Host: hooks.test:99999\r\n"),
        ("that is not a host", b"Host: a b/@?\r\n"),
        ("of 8,000 letters", b"Host: " + b"h" * 8_000 + b"\r\n"),
    ):
        yield _case(f"Host {name}", _post(target, host=host), {202, 400}, Connection.EITHER)


def _authorizations(target: Target) -> Iterator[HostileRequest]:
    token = target.token
    for name, value in (
        ("in lower case", b"bearer " + token),
        ("in upper case", b"BEARER " + token),
        ("after two spaces", b"Bearer  " + token),
        ("after twenty spaces", b"Bearer" + b" " * 20 + token),
        ("before spaces", b"Bearer " + token + b"   "),
        ("after a tab at the line's beginning", b"\tBearer " + token),
    ):
        yield _authorization(target, f"right, {name}", b"Authorization: " + value, ACCEPTED, Connection.OPEN)
    yield _authorization(
        target, "right, without the space after its colon", b"Authorization:Bearer " + token, ACCEPTED, Connection.OPEN
    )
    yield _authorization(
        target, "right, with its name in another case", b"aUTHORIZATION: Bearer " + token, ACCEPTED, Connection.OPEN
    )

    for name, value in (
        ("empty", b""),
        ("the scheme alone", b"Bearer"),
        ("the token alone", token),
        ("wrong", b"Bearer " + CANARY),
        ("without its last letter", b"Bearer " + token[:-1]),
        ("with one letter more", b"Bearer " + token + b"x"),
        ("with its last letter changed", b"Bearer " + token[:-1] + bytes([token[-1] ^ 1])),
        ("in another case", b"Bearer " + token.swapcase()),
        ("twice over with a space", b"Bearer " + token + b" " + token),
        ("twice over with a comma", b"Bearer " + token + b", Bearer " + token),
        ("followed by a comma", b"Bearer " + token + b","),
        ("followed by a parameter", b"Bearer " + token + b', realm="a"'),
        ("in quotes", b'Bearer "' + token + b'"'),
        ("percent-encoded", b"Bearer " + b"".join(b"%%%02x" % byte for byte in token)),
        ("as a parameter", b"Bearer token=" + token),
        ("after the scheme twice", b"Bearer Bearer " + token),
        ("after a tab", b"Bearer\t" + token),
        ("after a space and a tab", b"Bearer \t" + token),
        ("after an equals sign", b"Bearer=" + token),
        ("of another scheme", b"Token " + token),
        ("of a longer scheme", b"BearerX " + token),
        ("as a user name", b"Basic " + b64encode(token + b":")),
        ("as a password", b"Basic " + b64encode(b":" + token)),
        ("in base64", b"Bearer " + b64encode(token)),
        ("as a digest", b"Bearer " + hashlib.sha256(token).hexdigest().encode()),
        ("of the other webhook", b"Bearer " + target.url_token),
        ("the uid", b"Bearer " + target.uid),
        ("null", b"Bearer null"),
        ("a quote and a tautology", b"Bearer ' OR '1'='1"),
        ("with a byte that is not ASCII", b"Bearer " + token[:-1] + b"\xe9"),
        ("of bytes that are not UTF-8", b"Bearer \xff\xfe\xfd"),
        ("in full-width letters", b"Bearer " + "".join(chr(0xFEE0 + byte) for byte in token).encode()),
        ("after a no-break space", b"Bearer\xc2\xa0" + token),
        ("of 8,192 letters", b"Bearer " + b"x" * 8_185),
        ("of 8,193 letters", b"Bearer " + b"x" * 8_186),
        ("right, behind 9,000 spaces", b"Bearer" + b" " * 9_000 + token),
        ("of 20,000 letters", b"Bearer " + b"x" * 20_000),
    ):
        yield _authorization(target, name, b"Authorization: " + value, {401}, Connection.EITHER)

    right = b"Authorization: Bearer " + token
    wrong = b"Authorization: Bearer " + CANARY
    for name, lines in (
        ("missing", ()),
        ("twice, both right", (right, right)),
        ("twice, the first right", (right, wrong)),
        ("twice, the second right", (wrong, right)),
        ("twice, the first empty", (b"Authorization:", right)),
        ("twice, the second empty", (right, b"Authorization:")),
        ("twice, in two cases", (right, b"authorization: Bearer " + token)),
        ("twenty times", (right,) * 20),
    ):
        yield _authorization(target, name, b"\r\n".join(lines), {401}, Connection.EITHER)

    for name, line in (
        ("with a NUL behind", right + b"\0"),
        ("with a NUL inside", b"Authorization: Bearer " + token[:5] + b"\0" + token[5:]),
        ("with a bare CR behind", right + b"\rX-A: b"),
        ("with a space before its colon", b"Authorization : Bearer " + token),
        ("folded", b"Authorization: Bearer\r\n " + token),
    ):
        yield _authorization(target, name, line, UNPARSABLE, Connection.CLOSED)


def _authorization(
    target: Target, name: str, line: bytes, answers: set[int] | frozenset[int], connection: Connection
) -> HostileRequest:
    lines = line + b"\r\n" if line else b""
    return _case(f"Authorization {name}", _post(target, authorization=lines), answers, connection)


def _credentials_in_wrong_places(target: Target) -> Iterator[HostileRequest]:
    token, path = target.token, target.path
    for name, request_target in (
        ("the query, as token", path + b"?token=" + token),
        ("the query, as access_token", path + b"?access_token=" + token),
        ("the query, as a header", path + b"?Authorization=Bearer%20" + token),
        ("the query alone", path + b"?" + token),
    ):
        yield _case(
            f"credentials in {name}", _post(target, path=request_target, authorization=b""), {401}, Connection.EITHER
        )
    for name, line in (
        ("a cookie", b"Cookie: token=" + token),
        ("a cookie named Authorization", b"Cookie: Authorization=Bearer " + token),
        ("Proxy-Authorization", b"Proxy-Authorization: Bearer " + token),
        ("X-Forwarded-Authorization", b"X-Forwarded-Authorization: Bearer " + token),
        ("WWW-Authenticate", b"WWW-Authenticate: Bearer " + token),
        ("the delivery id", b"X-Delivery-Token: " + token),
        ("a look-alike name", b"Authorization_: Bearer " + token),
        ("a name with underscores", b"HTTP_AUTHORIZATION: Bearer " + token),
    ):
        data = _post(target, authorization=line + b"\r\n")
        yield _case(f"credentials in {name}", data, {401}, Connection.EITHER)
    for name, body in (
        ("the body", b'{"token": "' + token + b'"}'),
        ("the body, as a form", b"token=" + token),
        ("the body, as a header", b"Authorization: Bearer " + token),
    ):
        yield _case(f"credentials in {name}", _post(target, authorization=b"", body=body), {401}, Connection.EITHER)
    userinfo = _post(target, authorization=b"", path=b"http://bearer:" + token + b"@hooks.test" + path)
    yield _case("credentials in the target's user part", userinfo, {400, 401, 404}, Connection.EITHER)
    trailer = b"2\r\n{}\r\n0\r\nAuthorization: Bearer " + token + b"\r\n\r\n"
    data = _post(target, authorization=b"", framing=b"Trailer: Authorization\r\n" + CHUNKED, body=trailer)
    yield _case("credentials in a trailer", data, {401}, Connection.EITHER)
    forged = b"X-Forwarded-For: 127.0.0.1\r\nX-Real-IP: 127.0.0.1\r\nX-Forwarded-User: admin\r\n"
    yield _case(
        "credentials replaced by headers of a trusted proxy",
        _post(target, authorization=forged),
        {401},
        Connection.EITHER,
    )


def _content_lengths(target: Target) -> Iterator[HostileRequest]:
    for name, value in (
        ("negative", b"-2"),
        ("with a plus sign", b"+2"),
        ("in hexadecimal", b"0x2"),
        ("with a space inside", b"2 2"),
        ("as a list", b"2, 2"),
        ("as a list that differs", b"2, 3"),
        ("with a decimal point", b"2.0"),
        ("with an underscore", b"1_0"),
        ("in quotes", b'"2"'),
        ("with a semicolon", b"2;"),
        ("empty", b""),
        ("a word", b"two"),
        ("in full-width digits", "２".encode()),
        ("with a superscript digit", b"\xb2"),
        ("with a vertical tab", b"\x0b2"),
        ("with a NUL", b"2\0"),
        ("of 2^64", b"18446744073709551616"),
        ("of 40 digits", b"9" * 40),
        ("of 5,000 digits", b"9" * 5_000),
    ):
        yield _case(
            f"Content-Length {name}",
            _post(target, framing=b"Content-Length: " + value + b"\r\n"),
            UNPARSABLE,
            Connection.CLOSED,
        )
    for name, value in (
        ("one over the limit", b"262145"),
        ("of a terabyte", b"1099511627776"),
        ("of 2^31", b"2147483648"),
        ("of 2^32 + 2", b"4294967298"),
        ("of 2^53 + 1", b"9007199254740993"),
        ("of 2^63", b"9223372036854775808"),
    ):
        data = _post(target, framing=b"Content-Length: " + value + b"\r\n", body=b"")
        yield _case(f"Content-Length {name}, and no body", data, {413}, Connection.CLOSED)
        data = _post(target, framing=b"Content-Length: " + value + b"\r\nExpect: 100-continue\r\n", body=b"")
        yield _case(f"Content-Length {name}, with Expect", data, {413}, Connection.CLOSED)
    for value in (b"18446744073709551615", b"18446744073709551614"):
        data = _post(target, framing=b"Content-Length: " + value + b"\r\n", body=b"")
        yield _case(f"Content-Length {value.decode()}", data, {NO_ANSWER, 400, 413, 431}, Connection.CLOSED)

    yield _case(
        "Content-Length with zeros before it",
        _post(target, framing=b"Content-Length: 0002\r\n"),
        {202, 400},
        Connection.EITHER,
    )
    yield _case("Content-Length zero", _post(target, body=b""), {400}, Connection.EITHER)
    yield _case("Content-Length missing", _post(target, framing=b"", body=b""), {400, 411}, Connection.EITHER)
    yield HostileRequest(
        name="Content-Length missing, and a body",
        data=_post(target, framing=b"", body=b"{}"),
        answers=(frozenset({400, 411}), frozenset({NO_ANSWER, 400})),
        connection=Connection.CLOSED,
    )
    for name, lines in (
        ("twice, differing", b"Content-Length: 2\r\nContent-Length: 3\r\n"),
        ("twice, the first zero", b"Content-Length: 0\r\nContent-Length: 2\r\n"),
        ("twice, the second zero", b"Content-Length: 2\r\nContent-Length: 0\r\n"),
        ("twice, in two spellings", b"Content-Length: 2\r\nContent-Length: +2\r\n"),
        ("three times, the last differing", b"Content-Length: 2\r\nContent-Length: 2\r\nContent-Length: 3\r\n"),
        ("twice, in two cases", b"Content-Length: 2\r\ncontent-length: 3\r\n"),
    ):
        yield _case(f"Content-Length {name}", _post(target, framing=lines), UNPARSABLE, Connection.CLOSED)
    # For equal values, RFC 9110, 8.6 lets the recipient choose.
    twice = b"Content-Length: 2\r\n" * 2
    yield _case("Content-Length twice, the same", _post(target, framing=twice), {202, 400}, Connection.EITHER)

    yield HostileRequest(
        name="Content-Length shorter than the body",
        data=_post(target, framing=b"Content-Length: 2\r\n", body=b"{}{}"),
        answers=(ACCEPTED, frozenset({NO_ANSWER, 400, 405})),
        connection=Connection.CLOSED,
        half_closes=True,
    )
    yield _case(
        "Content-Length longer than the body",
        _post(target, framing=b"Content-Length: 5000\r\n"),
        {NO_ANSWER, 400},
        Connection.CLOSED,
        half_closes=True,
    )
    behind = valid_delivery(target, b"never: inside a body")
    for name, authorization, expected in (
        ("of another delivery", None, {400}),
        ("with wrong credentials", b"Authorization: Bearer " + CANARY + b"\r\n", {401}),
        ("without credentials", b"", {401}),
    ):
        data = _post(target, authorization=authorization, body=behind)
        yield _case(f"a delivery inside the body {name}", data, expected, Connection.EITHER)
    yield _case(
        "a delivery inside the body of an unknown webhook",
        _post(target, path=b"/webhooks/w/wh_x", body=behind),
        {404},
        Connection.EITHER,
    )
    yield _case(
        "a delivery inside the body of a GET", _post(target, method=b"GET", body=behind), {405}, Connection.EITHER
    )
    yield _case(
        "a delivery inside a body that is too large",
        _post(target, body=behind + CANARY * 40_000),
        {413},
        Connection.CLOSED,
    )
    for path in (b"/healthz", b"/nothing", b"/"):
        data = _post(target, path=path, body=behind)
        yield _case(f"a delivery inside the body of {path.decode()}", data, {200, 404, 405}, Connection.EITHER)
        data = _post(
            target, method=b"GET", path=path, framing=CHUNKED, body=b"%x\r\n" % len(behind) + behind + b"\r\n0\r\n\r\n"
        )
        yield _case(
            f"a delivery inside the chunks of GET {path.decode()}", data, {200, 303, 404, 405}, Connection.EITHER
        )


def _transfer_encodings(target: Target) -> Iterator[HostileRequest]:
    length = b"Content-Length: 2\r\n"
    # The server uses only the chunks (RFC 9112, 6.3), or refuses the request. In both cases it closes the connection.
    for name, lines, body in (
        ("before a length", CHUNKED + length, WHOLE_CHUNKS),
        ("behind a length", length + CHUNKED, WHOLE_CHUNKS),
        ("beside the length of its chunks", CHUNKED + b"Content-Length: %d\r\n" % len(WHOLE_CHUNKS), WHOLE_CHUNKS),
        ("beside a length of zero", CHUNKED + b"Content-Length: 0\r\n", WHOLE_CHUNKS),
        ("beside a length that is too large", CHUNKED + b"Content-Length: 8000000\r\n", WHOLE_CHUNKS),
        ("beside two lengths", length + CHUNKED + b"Content-Length: 3\r\n", WHOLE_CHUNKS),
        ("beside a broken length", CHUNKED + b"Content-Length: x\r\n", WHOLE_CHUNKS),
    ):
        data = _post(target, framing=lines, body=body)
        yield _case(f"Transfer-Encoding {name}", data, {202, 400, 413}, Connection.CLOSED)
    smuggled = valid_delivery(target, b"never: between two framings")
    yield HostileRequest(
        name="Transfer-Encoding beside a length that includes another delivery",
        data=_post(
            target, framing=CHUNKED + b"Content-Length: %d\r\n" % (5 + len(smuggled)), body=b"0\r\n\r\n" + smuggled
        ),
        answers=(frozenset({400}),),
        connection=Connection.CLOSED,
    )
    yield HostileRequest(
        name="Transfer-Encoding beside a length that ends before another delivery",
        data=_post(
            target,
            framing=b"Content-Length: 4\r\n" + CHUNKED,
            body=b"%x\r\n" % len(smuggled) + smuggled + b"\r\n0\r\n\r\n",
        ),
        answers=(frozenset({400}),),
        connection=Connection.CLOSED,
    )
    for name, value in (
        ("twice on one line", b"chunked, chunked"),
        ("identity", b"identity"),
        ("gzip", b"gzip"),
        ("gzip before chunked", b"gzip, chunked"),
        ("identity before chunked", b"identity, chunked"),
        ("gzip behind chunked", b"chunked, gzip"),
        ("identity behind chunked", b"chunked, identity"),
        ("with a letter before", b"xchunked"),
        ("with a letter behind", b"chunkedx"),
        ("empty", b""),
        ("in quotes", b'"chunked"'),
        ("with a parameter", b"chunked;q=1"),
        ("with an empty item before", b", chunked"),
        ("behind a vertical tab", b"\x0bchunked"),
        ("with a NUL", b"chunked\0"),
        ("with a letter that is not ASCII", "chunкed".encode()),
        ("behind a no-break space", b"\xa0chunked"),
    ):
        data = _post(target, framing=b"Transfer-Encoding: " + value + b"\r\n", body=WHOLE_CHUNKS)
        yield _case(f"Transfer-Encoding {name}", data, UNPARSABLE | {501}, Connection.CLOSED)
    for name, lines in (
        ("on two lines", CHUNKED * 2),
        ("on two lines, the second identity", CHUNKED + b"Transfer-Encoding: identity\r\n"),
        ("on two lines, the first identity", b"Transfer-Encoding: identity\r\n" + CHUNKED),
        ("on two lines, the first empty", b"Transfer-Encoding:\r\n" + CHUNKED),
        ("on two lines, the first gzip", b"Transfer-Encoding: gzip\r\n" + CHUNKED),
        ("with a space before its colon", b"Transfer-Encoding : chunked\r\n"),
        ("folded", b"Transfer-Encoding:\r\n chunked\r\n"),
        ("behind a bare CR", b"X-A: b\rTransfer-Encoding: chunked\r\n"),
        ("with a space before its colon, beside a length", length + b"Transfer-Encoding : chunked\r\n"),
        ("folded, beside a length", length + b"Transfer-Encoding:\r\n chunked\r\n"),
    ):
        data = _post(target, framing=lines, body=WHOLE_CHUNKS)
        yield _case(f"Transfer-Encoding {name}", data, UNPARSABLE | {501}, Connection.CLOSED)
    two = CHUNKED * 2
    yield _case(
        "Transfer-Encoding on two lines, on another path",
        _post(target, path=b"/healthz", framing=two, body=WHOLE_CHUNKS),
        UNPARSABLE,
        Connection.CLOSED,
    )
    yield _case(
        "Transfer-Encoding in version 1.0",
        _post(target, version=b"HTTP/1.0", framing=CHUNKED, body=WHOLE_CHUNKS),
        UNPARSABLE,
        Connection.CLOSED,
    )
    yield _case(
        "Transfer-Encoding in version 1.0, beside a length",
        _post(target, version=b"HTTP/1.0", framing=CHUNKED + length, body=WHOLE_CHUNKS),
        UNPARSABLE,
        Connection.CLOSED,
    )
    for name, value in (("in capitals", b"CHUNKED"), ("in mixed case", b"cHuNkEd"), ("between tabs", b"\tchunked\t")):
        data = _post(target, framing=b"Transfer-Encoding: " + value + b"\r\n", body=WHOLE_CHUNKS)
        yield _case(f"Transfer-Encoding {name}", data, {202, 400}, Connection.EITHER)
    # A similar header name does not frame the body, so the length applies.
    for spelled in (b"Transfer_Encoding", b"X-Transfer-Encoding", b"Transfer-Encodings", b"Content-Transfer-Encoding"):
        data = _post(target, headers=spelled + b": chunked\r\n")
        yield _case(f"Transfer-Encoding spelled {spelled.decode()}", data, ACCEPTED, Connection.OPEN)


def _chunks(target: Target) -> Iterator[HostileRequest]:
    for name, body in (
        ("of one byte each", b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"),
        ("with capital digits", b"A\r\n[1,2,3,45]\r\n0\r\n\r\n"),
        ("with zeros before the size", b"0002\r\n{}\r\n000\r\n\r\n"),
        ("with a quoted extension", b'2;name="a;b"\r\n{}\r\n0;last\r\n\r\n'),
        ("with a trailer", b"2\r\n{}\r\n0\r\nX-A: b\r\n\r\n"),
        ("with a trailer that is a length", b"2\r\n{}\r\n0\r\nContent-Length: 500\r\n\r\n"),
        ("with a trailer that is an encoding", b"2\r\n{}\r\n0\r\nTransfer-Encoding: identity\r\n\r\n"),
        ("with a trailer that is a host", b"2\r\n{}\r\n0\r\nHost: elsewhere.test\r\n\r\n"),
    ):
        yield _case(f"chunks {name}", _post(target, framing=CHUNKED, body=body), ACCEPTED, Connection.OPEN)
    yield _case("chunks without data", _post(target, framing=CHUNKED, body=b"0\r\n\r\n"), {400}, Connection.EITHER)
    yield _case(
        "chunks in thousands",
        _post(target, framing=CHUNKED, body=b"1\r\n \r\n" * 5_000 + WHOLE_CHUNKS),
        ACCEPTED,
        Connection.OPEN,
    )
    for name, size in (
        ("with a space behind the size", b"2 "),
        ("with a tab behind the size", b"2\t"),
        ("with twenty zeros", b"0" * 20 + b"2"),
    ):
        data = _post(target, framing=CHUNKED, body=size + b"\r\n{}\r\n0\r\n\r\n")
        yield _case(f"chunks {name}", data, {202, 400}, Connection.EITHER)

    for name, body in (
        ("of a size that is a word", b"x\r\n{}\r\n0\r\n\r\n"),
        ("of a negative size", b"-2\r\n{}\r\n0\r\n\r\n"),
        ("of a size with 0x", b"0x2\r\n{}\r\n0\r\n\r\n"),
        ("of a size with an underscore", b"0_2\r\n{}\r\n0\r\n\r\n"),
        ("of a size after a space", b" 2\r\n{}\r\n0\r\n\r\n"),
        ("without a size", b"\r\n{}\r\n0\r\n\r\n"),
        ("with an extension but no size", b";a=b\r\n{}\r\n0\r\n\r\n"),
        ("of a size that overflows 64 bits", b"10000000000000002\r\n{}\r\n0\r\n\r\n"),
        ("of a size of 5,000 digits", b"1" * 5_000 + b"\r\n{}\r\n0\r\n\r\n"),
        ("of a size in full-width digits", "２\r\n{}\r\n0\r\n\r\n".encode()),
        ("of a size with a NUL", b"2\0\r\n{}\r\n0\r\n\r\n"),
        ("without the line end behind the data", b"2\r\n{}0\r\n\r\n"),
        ("with more data than the size", b"2\r\n{}}\r\n0\r\n\r\n"),
        ("with less data than the size", b"3\r\n{}\r\n0\r\n\r\n"),
        ("with a LF for a line end", b"2\n{}\n0\n\n"),
        ("with a LF behind the size", b"2\n{}\r\n0\r\n\r\n"),
        ("with a LF behind the data", b"2\r\n{}\n0\r\n\r\n"),
        ("with a CR behind the size", b"2\r{}\r\n0\r\n\r\n"),
        ("with a LF in an extension", b"2;a\nb\r\n{}\r\n0\r\n\r\n"),
        ("with a CR in an extension", b"2;a\rb\r\n{}\r\n0\r\n\r\n"),
        ("with extensions of 40 KB", b"2;" + b"a" * 40_000 + b"\r\n{}\r\n0\r\n\r\n"),
        ("with many extensions of 40 KB together", (b"1;" + b"a" * 2_000 + b"\r\n \r\n") * 20 + WHOLE_CHUNKS),
        ("with a trailer that is not a header", b"2\r\n{}\r\n0\r\nno header\r\n\r\n"),
        ("with a folded trailer", b"2\r\n{}\r\n0\r\nX-A: b\r\n c\r\n\r\n"),
        ("with trailers of 40 KB", b"2\r\n{}\r\n0\r\n" + b"X-A: b\r\n" * 5_000 + b"\r\n"),
        ("with a trailer of 100 KB", b"2\r\n{}\r\n0\r\nX-A: " + b"b" * 100_000 + b"\r\n\r\n"),
        ("replaced by text", CANARY),
        ("replaced by a length and a body", b"Content-Length: 2\r\n\r\n{}"),
    ):
        data = _post(target, framing=CHUNKED, body=body)
        yield _case(f"chunks {name}", data, {NO_ANSWER, 400}, Connection.CLOSED)
    # Without an end of the body, the next request is a part of the trailer or of a chunk.
    for name, body in (
        ("without the last one", b"2\r\n{}\r\n"),
        ("without the last line end", b"2\r\n{}\r\n0\r\n"),
        ("that include the next request", b"2\r\n{}\r\nfff\r\n"),
        ("of a size of 2^63", b"8000000000000000\r\n"),
        ("of a size of 2^64 - 1", b"ffffffffffffffff\r\n{}\r\n0\r\n\r\n"),
    ):
        data = _post(target, framing=CHUNKED, body=body)
        yield _case(f"chunks {name}", data, {NO_ANSWER, 400, 413}, Connection.CLOSED, half_closes=True)
    for name, body in (
        ("nothing", b""),
        ("half a size", b"2"),
        ("a size", b"2\r\n"),
        ("half the data", b"2\r\n{"),
        ("all data", b"2\r\n{}"),
        ("the last size", b"2\r\n{}\r\n0"),
        ("half a trailer", b"2\r\n{}\r\n0\r\nX-A: b"),
    ):
        data = _post(target, framing=CHUNKED, body=body)
        yield _case(
            f"chunks that break off after {name}",
            data,
            {NO_ANSWER, 400},
            Connection.CLOSED,
            is_alone=True,
            half_closes=True,
        )


def _expectations_and_upgrades(target: Target) -> Iterator[HostileRequest]:
    for name, value in (
        ("100-continue", b"100-continue"),
        ("100-Continue in capitals", b"100-CONTINUE"),
        ("nothing", b""),
        ("something unknown", b"200-ok"),
        ("several expectations", b"100-continue, 200-ok"),
        ("100", b"100"),
    ):
        data = _post(target, headers=b"Expect: " + value + b"\r\n")
        yield _case(f"Expect {name}", data, {202, 417}, Connection.EITHER)
    data = _post(target, headers=b"Expect: 100-continue\r\n", version=b"HTTP/1.0")
    yield _case("Expect in version 1.0", data, {202}, Connection.CLOSED)
    for name, authorization, path, expected in (
        ("with wrong credentials", b"Authorization: Bearer " + CANARY + b"\r\n", None, 401),
        ("without credentials", b"", None, 401),
        ("of an unknown webhook", None, b"/webhooks/w/wh_x", 404),
    ):
        data = _post(
            target,
            headers=b"Expect: 100-continue\r\n",
            authorization=authorization,
            path=path,
            framing=b"Content-Length: 100000\r\n",
            body=b"",
        )
        yield _case(f"Expect {name}", data, {expected}, Connection.CLOSED)
    for name, lines in (
        ("to HTTP/2", b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"),
        ("to HTTP/2 without settings", b"Connection: Upgrade\r\nUpgrade: h2c\r\n"),
        (
            "to a websocket",
            WEBSOCKET,
        ),
        ("to TLS", b"Connection: Upgrade\r\nUpgrade: TLS/1.2\r\n"),
        ("to an empty protocol", b"Connection: Upgrade\r\nUpgrade:\r\n"),
        ("without a Connection header", b"Upgrade: websocket\r\n"),
    ):
        yield _case(f"Upgrade {name}", _post(target, headers=lines), ACCEPTED, Connection.OPEN)
    yield _case(
        "Upgrade of a GET to a websocket",
        _post(target, method=b"GET", headers=WEBSOCKET, framing=b"", body=b""),
        {405},
        Connection.EITHER,
    )
    yield _case(
        "Upgrade of another path to a websocket",
        _post(target, method=b"GET", path=b"/healthz", headers=WEBSOCKET, framing=b"", body=b""),
        {200, 404},
        Connection.EITHER,
    )
    yield _case("Connection close", _post(target, headers=b"Connection: close\r\n"), ACCEPTED, Connection.CLOSED)
    yield _case(
        "Connection close among others",
        _post(target, headers=b"Connection: keep-alive, close\r\n"),
        ACCEPTED,
        Connection.CLOSED,
    )
    yield _case(
        "Connection of 8,000 letters",
        _post(target, headers=b"Connection: " + b"x" * 8_000 + b"\r\n"),
        ACCEPTED,
        Connection.OPEN,
    )


def _pipelines(target: Target) -> Iterator[HostileRequest]:
    good = _post(target, identity=b"")
    chunked = _post(target, identity=b"", framing=CHUNKED, body=WHOLE_CHUNKS)
    first = _post(target)
    refusal = frozenset({NO_ANSWER, 400})
    for name, data, answers, connection in (
        ("two deliveries", first + good, (ACCEPTED, ACCEPTED), Connection.OPEN),
        ("twenty deliveries", first + good * 19, (ACCEPTED,) * 20, Connection.OPEN),
        ("a delivery with a length, and one in chunks", first + chunked, (ACCEPTED, ACCEPTED), Connection.OPEN),
        ("a delivery in chunks, and one with a length", chunked + first, (ACCEPTED, ACCEPTED), Connection.OPEN),
        ("a delivery, and ten in chunks", first + chunked * 10, (ACCEPTED,) * 11, Connection.OPEN),
        (
            "two deliveries with empty lines between them",
            first + b"\r\n\r\n" + good,
            (ACCEPTED, ACCEPTED),
            Connection.OPEN,
        ),
        (
            "a health check, and a delivery",
            b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n" + first,
            (frozenset({200}),),
            Connection.EITHER,
        ),
        ("a delivery, and garbage", first + b"\0\xff" + CANARY + b"\r\n\r\n", (ACCEPTED, refusal), Connection.CLOSED),
        (
            "a delivery, and the preface of HTTP/2",
            first + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            (ACCEPTED, WRONG_VERSION),
            Connection.CLOSED,
        ),
        (
            "a delivery, and one with two framings",
            first + _post(target, identity=b"", framing=CHUNKED * 2, body=WHOLE_CHUNKS),
            (ACCEPTED, refusal),
            Connection.CLOSED,
        ),
        (
            "a delivery, and an unauthenticated one",
            first + _post(target, identity=b"", authorization=b""),
            (ACCEPTED, frozenset({401})),
            Connection.EITHER,
        ),
        (
            "a delivery, and a GET",
            first + _post(target, identity=b"", method=b"GET"),
            (ACCEPTED, frozenset({405})),
            Connection.EITHER,
        ),
        (
            "a delivery, and one with bad JSON",
            first + _post(target, identity=b"", body=CANARY),
            (ACCEPTED, frozenset({400})),
            Connection.EITHER,
        ),
        (
            "two deliveries, the second with Connection: close",
            first + _post(target, identity=b"", headers=b"Connection: close\r\n"),
            (ACCEPTED, ACCEPTED),
            Connection.CLOSED,
        ),
        (
            "a delivery, and one that is too large",
            first + _post(target, identity=b"", body=b" " * 300_000),
            (ACCEPTED, frozenset({413})),
            Connection.CLOSED,
        ),
    ):
        yield HostileRequest(name=f"pipeline of {name}", data=data, answers=answers, connection=connection)


def _early_ends(target: Target) -> Iterator[HostileRequest]:
    whole = _post(target)
    head, _, _ = whole.partition(b"\r\n\r\n")
    for name, data in (
        ("nothing", b""),
        ("a line end", b"\r\n"),
        ("half the method", b"PO"),
        ("the method", b"POST "),
        ("half the path", b"POST /webh"),
        ("the request line", whole.split(b"\r\n")[0] + b"\r\n"),
        ("half a header's name", whole[: whole.index(b"Authoriz") + 4]),
        ("half the credentials", whole[: whole.index(target.token) + 9]),
        ("the last header line", head + b"\r\n"),
        ("the head without its last byte", head + b"\r\n\r"),
    ):
        yield _case(
            f"the client closes after {name}",
            data,
            {NO_ANSWER, 400, 408},
            Connection.CLOSED,
            is_alone=True,
            half_closes=True,
        )
    for name, data in (
        ("the head", head + b"\r\n\r\n"),
        ("half the body", head + b"\r\n\r\n{"),
        ("the first of 262,144 bytes", _post(target, framing=b"Content-Length: 262144\r\n", body=b"{")),
    ):
        yield _case(
            f"the client closes after {name}",
            data,
            {NO_ANSWER, 400},
            Connection.CLOSED,
            is_alone=True,
            half_closes=True,
        )
    # A client that closes its side before the answer may get one or not.
    yield _case(
        "the client closes after the whole request",
        whole,
        {NO_ANSWER, 202},
        Connection.CLOSED,
        is_alone=True,
        half_closes=True,
    )
    unauthenticated = _post(target, authorization=b"", framing=b"Content-Length: 5000\r\n", body=b"{")
    yield _case(
        "the client closes after half an unauthenticated body",
        unauthenticated,
        {NO_ANSWER, 401},
        Connection.CLOSED,
        is_alone=True,
        half_closes=True,
    )


def _sizes(target: Target) -> Iterator[HostileRequest]:
    for size in (BODY_BYTES_MAX - 1, BODY_BYTES_MAX, BODY_BYTES_MAX + 1, 2 * BODY_BYTES_MAX):
        body = b'"' + b"a" * (size - 2) + b'"'
        answers, connection = ({202}, Connection.OPEN) if size <= BODY_BYTES_MAX else ({413}, Connection.CLOSED)
        yield _case(f"size {size}", _post(target, body=body), answers, connection)
        whole = b"%x\r\n" % size + body + b"\r\n0\r\n\r\n"
        yield _case(f"size {size} in one chunk", _post(target, framing=CHUNKED, body=whole), answers, connection)
        parts = b"".join(
            b"%x\r\n" % len(part) + part + b"\r\n" for part in (body[at : at + 1_000] for at in range(0, size, 1_000))
        )
        yield _case(
            f"size {size} in many chunks",
            _post(target, framing=CHUNKED, body=parts + b"0\r\n\r\n"),
            answers,
            connection,
        )
    for size in (BODY_BYTES_MAX, BODY_BYTES_MAX + 1):
        answers, connection = ({400}, Connection.EITHER) if size <= BODY_BYTES_MAX else ({413}, Connection.CLOSED)
        yield _case(f"size {size} of spaces", _post(target, body=b" " * size), answers, connection)
    spread = b"".join(b"%x;e=%s\r\n" % (n, b"x" * 50) + b" " * n + b"\r\n" for n in (1, 2, 4, 8)) + WHOLE_CHUNKS
    yield _case(
        "size in chunks with extensions", _post(target, framing=CHUNKED, body=spread), ACCEPTED, Connection.OPEN
    )
    wrong = b"Authorization: Bearer " + CANARY + b"\r\n"
    yield _case(
        "size 262145 without authentication",
        _post(target, authorization=wrong, body=b" " * (BODY_BYTES_MAX + 1)),
        {401},
        Connection.CLOSED,
    )


def _encodings_and_types(target: Target) -> Iterator[HostileRequest]:
    json = b'{"a": [1, 2, 3]}'
    bomb = gzip.compress(b"[" + b"0," * 5_000_000 + b"0]", mtime=0)
    for name, value, body in (
        ("gzip", b"gzip", gzip.compress(json, mtime=0)),
        ("deflate", b"deflate", zlib.compress(json)),
        ("gzip, twice", b"gzip, gzip", gzip.compress(gzip.compress(json, mtime=0), mtime=0)),
        ("gzip, a decompression bomb", b"gzip", bomb),
        ("gzip, incomplete", b"gzip", gzip.compress(json, mtime=0)[:-4]),
    ):
        data = _post(target, headers=b"Content-Encoding: " + value + b"\r\n", body=body)
        yield _case(f"Content-Encoding {name}", data, {400}, Connection.EITHER)
    for value in (b"gzip", b"identity", b"br", b"aes128gcm", b"x" * 1_000, b""):
        data = _post(target, headers=b"Content-Encoding: " + value + b"\r\n", body=json)
        yield _case(
            f"Content-Encoding {value[:20].decode()!r} with a body that is not encoded", data, ACCEPTED, Connection.OPEN
        )
    for value in (
        b"text/plain",
        b"application/x-www-form-urlencoded",
        b"multipart/form-data; boundary=a",
        b"application/xml",
        b"application/json; charset=utf-16",
        b"application/json; charset=nonsense",
        b"nonsense",
        b"",
        b"application/json\r\nContent-Type: text/plain",
    ):
        data = _post(target, headers=b"Content-Type: " + value + b"\r\n", body=json)
        yield _case(f"Content-Type {value.decode()!r}", data, ACCEPTED, Connection.OPEN)
    utf16 = json.decode().encode("utf-16")
    yield _case(
        "Content-Type with UTF-16, and a body in UTF-16",
        _post(target, headers=b"Content-Type: application/json; charset=utf-16\r\n", body=utf16),
        {400},
        Connection.EITHER,
    )
    form = b"payload=%7B%22a%22%3A1%7D"
    yield _case(
        "Content-Type of a form, and a body that is a form",
        _post(target, headers=b"Content-Type: application/x-www-form-urlencoded\r\n", body=form),
        {400},
        Connection.EITHER,
    )
