"""Requests that no client library would send, each with what the contract allows in answer.

Every request that is not about its credentials carries the right ones: its form must refuse it, not a wrong secret.
"""

import gzip
import hashlib
import zlib
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

CLOSED = 0
"""In a set of answers: the connection may end without one. For requests that can't be told from noise."""

UNPARSABLE = frozenset({CLOSED, 400})
TOO_LONG = frozenset({CLOSED, 400, 414, 431})
WRONG_VERSION = frozenset({CLOSED, 400, 505})
TAKEN = frozenset({202})
NO_METHOD = frozenset({400, 405, 501})

BODY_BYTES_MAX = 262_144
CANARY = b"Canary7Q"
"""In credentials, queries, headers and bodies that are refused: nothing of these may be kept or shown anywhere."""

IDENTITY_PLACE = b"@IDENTITY@"
"""Where the test puts an event id of its own, by which it finds in the log what was taken."""


class Then(Enum):
    """What becomes of the connection, and of the honest delivery that was sent behind on it."""

    SERVED = auto()
    """The request ended where it seemed to: the delivery behind is served."""
    CLOSED = auto()
    """Nobody can say where the request ended: the connection ends, and the delivery behind never happened."""
    EITHER = auto()
    """Well-formed and refused: either will do, but nothing in between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The two webhooks that the requests are aimed at, one of each token mode."""

    uid: bytes
    token: bytes
    url_uid: bytes
    url_token: bytes

    @property
    def path(self) -> bytes:
        return b"/webhooks/w/" + self.uid

    @property
    def url_path(self) -> bytes:
        """Without the segment that is the credential."""
        return b"/webhooks/w/" + self.url_uid


@dataclass(frozen=True, slots=True, kw_only=True)
class Hostile:
    """One attack: the bytes, the answers in their order, and what must follow."""

    name: str
    sends: bytes
    answers: tuple[frozenset[int], ...]
    then: Then
    alone: bool = False
    """Nothing is sent behind."""
    half_closes: bool = False
    """The client says that nothing more will come, which ends what would wait for more."""
    is_head: bool = False


NOBODY = Target(uid=b"wh_0", token=b"t" * 43, url_uid=b"wh_1", url_token=b"u" * 43)
"""For the list of names, before there is a service."""


def hostile_requests(target: Target = NOBODY) -> list[Hostile]:
    """All of them, aimed at these webhooks. Names are unique."""
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


def honest(target: Target, identity: bytes) -> bytes:
    """A delivery as it should be."""
    return _post(target, identity=identity)


def _post(
    target: Target,
    *,
    method: bytes = b"POST",
    path: bytes | None = None,
    version: bytes = b"HTTP/1.1",
    host: bytes = b"Host: hooks.test\r\n",
    authorization: bytes | None = None,
    identity: bytes = IDENTITY_PLACE,
    more: bytes = b"",
    framing: bytes | None = None,
    body: bytes = b"{}",
) -> bytes:
    """A delivery, right in everything that is not given. Header lines are given with their CRLF."""
    if authorization is None:
        authorization = b"Authorization: Bearer " + target.token + b"\r\n"
    if framing is None:
        framing = b"Content-Length: %d\r\n" % len(body)
    line = method + b" " + (target.path if path is None else path) + b" " + version + b"\r\n"
    identity_line = b"X-Service-Delivery-Id: " + identity + b"\r\n" if identity else b""
    return line + host + authorization + identity_line + more + framing + b"\r\n" + body


def _one(name: str, sends: bytes, answers: set[int] | frozenset[int], then: Then, **more: bool) -> Hostile:
    return Hostile(name=name, sends=sends, answers=(frozenset(answers),), then=then, **more)


CHUNKED = b"Transfer-Encoding: chunked\r\n"
WHOLE_CHUNKS = b"2\r\n{}\r\n0\r\n\r\n"
WEBSOCKET = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)


def _methods(target: Target) -> Iterator[Hostile]:
    known = (
        "GET PUT PATCH DELETE OPTIONS TRACE CONNECT PROPFIND MKCOL COPY LOCK REPORT SEARCH LINK PURGE QUERY PRI".split()
    )
    for name in known:
        sends = _post(target, method=name.encode())
        yield _one(f"method {name}", sends, {405}, Then.EITHER)
    yield _one("method HEAD", _post(target, method=b"HEAD"), {405}, Then.EITHER, is_head=True)
    bodiless = _post(target, method=b"GET", framing=b"", body=b"")
    yield _one("method GET without a body", bodiless, {405}, Then.EITHER)
    yield _one(
        "method GET in disguise",
        _post(target, method=b"GET", more=b"X-HTTP-Method-Override: POST\r\nX-Method-Override: POST\r\n"),
        {405},
        Then.EITHER,
    )
    yield _one("method POST in disguise", _post(target, more=b"X-HTTP-Method-Override: DELETE\r\n"), TAKEN, Then.SERVED)
    for name in ("post", "Post", "POSTS", "POS", "XPOST", "POST-", "P0ST", "POST!", "P" * 100):
        yield _one(f"method {name}", _post(target, method=name.encode()), NO_METHOD, Then.EITHER)
    for size in (1_000, 8_000):
        sends = _post(target, method=b"P" * size)
        yield _one(f"method of {size} letters", sends, NO_METHOD | TOO_LONG, Then.EITHER)
    for name, method in (
        ("with a bracket", b"PO(ST"),
        ("with a NUL", b"PO\0ST"),
        ("with a colon", b"POST:"),
        ("with a slash", b"PO/ST"),
        ("in quotes", b'"POST"'),
        ("beyond ASCII", "PÖST".encode()),
        ("of a control character", b"\x01"),
        ("empty", b""),
        ("after a space", b" POST"),
        ("with a space in it", b"PO ST"),
        ("after a byte order mark", b"\xef\xbb\xbfPOST"),
    ):
        yield _one(f"method {name}", _post(target, method=method), UNPARSABLE, Then.CLOSED)


def _targets(target: Target) -> Iterator[Hostile]:
    uid, path = target.uid, target.path
    for name, given in (
        ("with a query", path + b"?a=" + CANARY),
        ("with an empty query", path + b"?"),
        ("with slashes in the query", path + b"?/../../x"),
        ("with question marks in the query", path + b"???"),
        ("with a percent sign in the query", path + b"?%00%2f%zz"),
        ("with a query of 8,000 characters", path + b"?" + b"q" * 8_000),
        ("in absolute form", b"http://hooks.test" + path),
        ("in absolute form of another host", b"http://elsewhere.test:81" + path),
        ("in absolute form with a query", b"http://hooks.test" + path + b"?a"),
    ):
        yield _one(f"target {name}", _post(target, path=given), TAKEN, Then.SERVED)

    for name, given in (
        ("the prefix alone", b"/webhooks/w/"),
        ("the prefix without its slash", b"/webhooks/w"),
        ("one level up", b"/webhooks/"),
        ("with a slash at its end", path + b"/"),
        ("with two slashes at its end", path + b"//"),
        ("with a slash at its end, and a query", path + b"/?a"),
        ("with another segment", path + b"/" + CANARY),
        ("with a token segment where none belongs", path + b"/" + target.token),
        ("with two more segments", path + b"/" + target.token + b"/more"),
        ("beginning with two slashes", b"/" + path),
        ("with two slashes inside", path.replace(b"/w/", b"//w/")),
        ("with two slashes before the uid", b"/webhooks/w//" + uid),
        ("with a dot segment", b"/webhooks/w/./" + uid),
        ("with a dot segment at its end", path + b"/."),
        ("with a double dot segment", b"/webhooks/w/../w/" + uid),
        ("with a double dot segment at its end", path + b"/.."),
        ("climbing out of another route", b"/healthz/.." + path),
        ("climbing into another route", b"/webhooks/w/../../healthz"),
        ("with an encoded dot segment", b"/webhooks/w/%2e/" + uid),
        ("with an encoded double dot segment", b"/webhooks/w/%2e%2e/w/" + uid),
        ("with an overlong double dot", b"/webhooks/w/%c0%ae%c0%ae/w/" + uid),
        ("with an encoded slash before the uid", b"/webhooks/w%2f" + uid),
        ("with a doubly encoded slash before the uid", b"/webhooks/w%252f" + uid),
        ("with an encoded slash behind the uid", path + b"%2f"),
        ("with an encoded NUL behind the uid", path + b"%00"),
        ("with an encoded line end behind the uid", path + b"%0d%0aX-A:%20b"),
        ("with an encoded space behind the uid", path + b"%20"),
        ("with an encoded question mark", path + b"%3fa=b"),
        ("with a broken encoding", path + b"%zz"),
        ("with a cut encoding", path + b"%"),
        ("with the first letter of the uid encoded", b"/webhooks/w/%%%02x" % uid[0] + uid[1:]),
        ("with the whole uid encoded", b"/webhooks/w/" + b"".join(b"%%%02x" % byte for byte in uid)),
        ("with the prefix encoded", b"/%77ebhooks/w/" + uid),
        ("with the uid in upper case", b"/webhooks/w/" + uid.upper()),
        ("with the prefix in upper case", b"/WEBHOOKS/W/" + uid),
        ("with one capital", b"/webhooks/W/" + uid),
        ("with a uid cut short", path[:-1]),
        ("with a uid prolonged", path + b"0"),
        ("with the uid twice", path + uid),
        ("with a semicolon parameter", path + b";a=b"),
        ("with a semicolon parameter in the prefix", b"/webhooks/w;a=b/" + uid),
        ("with an extension", path + b".json"),
        ("with a comma", path + b"," + target.url_uid),
        ("with an asterisk for the uid", b"/webhooks/w/*"),
        ("with a wildcard for the uid", b"/webhooks/w/%25"),
        ("with an underscore for the uid", b"/webhooks/w/" + b"_" * len(uid)),
        ("with a quote in the uid", path + b"'"),
        ("with a uid of 4,000 characters", b"/webhooks/w/" + b"w" * 4_000),
        ("with a thousand segments", b"/webhooks/w" + b"/a" * 1_000),
        ("of another version", b"/api/v1" + path),
        ("with the query before the uid", b"/webhooks/w/?" + uid),
        ("with a full URL for the uid", b"/webhooks/w/http://hooks.test" + path),
    ):
        yield _one(f"target {name}", _post(target, path=given), {404}, Then.EITHER)
    yield _one("target the root", _post(target, path=b"/"), {405}, Then.EITHER)

    for name, given in (
        ("in asterisk form", b"*"),
        ("in authority form", b"hooks.test:80"),
        ("relative", path[1:]),
        ("in absolute form of no scheme", b"//hooks.test" + path),
        ("in absolute form without a host", b"http://" + path),
        ("with every slash encoded", path.replace(b"/", b"%2f")),
        ("with a letter beyond ASCII", path + "ü".encode()),
        ("with backslashes", path.replace(b"/", b"\\")),
        ("with a backslash at its end", path + b"\\"),
        ("with brackets", path + b'<>"{}|^`[]'),
        ("empty but for a query", b"?a=b"),
    ):
        yield _one(f"target {name}", _post(target, path=given), {CLOSED, 400, 404}, Then.EITHER)
    # A server may pass over what a target should not have; the rest is the right path, with the right credentials.
    for name, given in (
        ("with a fragment", path + b"#a"),
        ("in absolute form of another scheme", b"ftp://hooks.test" + path),
    ):
        yield _one(f"target {name}", _post(target, path=given), {202, 400, 404}, Then.EITHER)
    yield _one(
        "target in asterisk form, OPTIONS",
        _post(target, method=b"OPTIONS", path=b"*"),
        {200, 204, 400, 404, 405},
        Then.EITHER,
    )
    yield _one(
        "target in authority form, CONNECT",
        _post(target, method=b"CONNECT", path=b"hooks.test:80"),
        {400, 404, 405, 501},
        Then.EITHER,
    )

    for name, given in (
        ("with a space", path + b" x"),
        ("with a tab", path + b"\tx"),
        ("with a NUL", path + b"\0"),
        ("with a DEL", path + b"\x7f"),
        ("with a carriage return", path + b"\r"),
        ("with a line feed", path + b"\nX-A: b"),
        ("with a byte that is no letter", path + b"\xff"),
        ("of nothing", b""),
    ):
        yield _one(f"target {name}", _post(target, path=given), UNPARSABLE, Then.CLOSED)
    for size in (70_000, 200_000):
        sends = _post(target, path=path + b"?" + b"q" * size)
        yield _one(f"target of {size} characters", sends, TOO_LONG, Then.CLOSED)


def _url_tokens(target: Target) -> Iterator[Hostile]:
    path, token = target.url_path, target.url_token

    def request(given: bytes, authorization: bytes = b"") -> bytes:
        return _post(target, path=given, authorization=authorization)

    yield _one("url token right", request(path + b"/" + token), TAKEN, Then.SERVED)
    yield _one("url token right, with a query", request(path + b"/" + token + b"?a=b"), TAKEN, Then.SERVED)
    yield _one(
        "url token right, beside a wrong bearer",
        request(path + b"/" + token, b"Authorization: Bearer x\r\n"),
        TAKEN,
        Then.SERVED,
    )
    for name, given in (
        ("missing", path),
        ("missing, with a query", path + b"?" + token),
        ("wrong", path + b"/" + CANARY),
        ("cut short", path + b"/" + token[:-1]),
        ("prolonged", path + b"/" + token + b"x"),
        ("of one letter", path + b"/" + token[:1]),
        ("in another case", path + b"/" + token.swapcase()),
        ("encoded", path + b"/" + b"".join(b"%%%02x" % byte for byte in token)),
        ("with its first letter encoded", path + b"/%%%02x" % token[0] + token[1:]),
        ("followed by an encoded slash", path + b"/" + token + b"%2f"),
        ("followed by an encoded NUL", path + b"/" + token + b"%00"),
        ("followed by a semicolon", path + b"/" + token + b";"),
        ("as a placeholder", path + b"/%7Btoken%7D"),
        ("a dot", path + b"/."),
        ("two dots", path + b"/.."),
        ("the other webhook's", path + b"/" + target.token),
        ("its own digest", path + b"/" + hashlib.sha256(token).hexdigest().encode()),
        ("of 8,000 letters", path + b"/" + b"x" * 8_000),
    ):
        yield _one(f"url token {name}", request(given), {401}, Then.EITHER)
    for name, given in (
        ("an empty segment", path + b"/"),
        ("followed by a slash", path + b"/" + token + b"/"),
        ("followed by a segment", path + b"/" + token + b"/more"),
        ("after an empty segment", path + b"//" + token),
        ("before the uid", b"/webhooks/w/" + token + b"/" + target.url_uid),
        ("with another uid", b"/webhooks/w/wh_nobody/" + token),
    ):
        yield _one(f"url token {name}", request(given), {404}, Then.EITHER)
    bearer = b"Authorization: Bearer " + token + b"\r\n"
    yield _one("url token as a bearer", request(path, bearer), {401}, Then.EITHER)


def _versions(target: Target) -> Iterator[Hostile]:
    yield _one("version 1.0", _post(target, version=b"HTTP/1.0"), TAKEN, Then.CLOSED)
    yield _one("version 1.0 without a Host", _post(target, version=b"HTTP/1.0", host=b""), TAKEN, Then.CLOSED)
    kept = _post(target, version=b"HTTP/1.0", more=b"Connection: keep-alive\r\n")
    yield _one("version 1.0 that asks to be kept", kept, TAKEN, Then.EITHER)
    for version in (
        b"HTTP/0.9",
        b"HTTP/1.2",
        b"HTTP/1.9",
        b"HTTP/2",
        b"HTTP/2.0",
        b"HTTP/3.0",
        b"HTTP/10.1",
        b"HTTP/1.10",
        b"HTTP/11",
        b"HTTP/1,1",
        b"HTTP/1.",
        b"HTTP/.1",
        b"HTTP/",
        b"HTTP",
        b"HTTP /1.1",
        b"HTTP/ 1.1",
        b"HTTP/1.1 HTTP/1.1",
        b"HTTPS/1.1",
        b"http/1.1",
        b"Http/1.1",
        b"ICY/1.1",
        b"HTTP/-1.1",
        b"HTTP/1.1\0",
        b"\xff\xff\xff\xff/1.1",
    ):
        sends = _post(target, version=version)
        yield _one(f"version {version.decode('latin-1')!r}", sends, WRONG_VERSION, Then.CLOSED)
    yield _one("version left out", b"POST " + target.path + b"\r\n\r\n", WRONG_VERSION, Then.CLOSED)
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
        yield _one(f"instead of a request, {name}", noise, WRONG_VERSION, Then.CLOSED, half_closes=True)


def _header_lines(target: Target) -> Iterator[Hostile]:
    for name, lines in (
        ("of odd but fair names", b"!#$%&'*+-.^_`|~09aZ: x\r\n"),
        ("empty", b"X-A:\r\n"),
        ("of spaces", b"X-A:      \r\n"),
        ("between tabs", b"X-A:\tb\tc\t\r\n"),
        ("beyond ASCII", b"X-A: \xe9\xff\xfe\r\n"),
        ("in UTF-8", "X-A: 文字\r\n".encode()),
        ("of 16 KB", b"X-A: " + b"b" * 16_384 + b"\r\n"),
        ("many times", b"X-A: b\r\n" * 80),
        ("that names the credentials as hop-by-hop", b"Connection: Authorization\r\n"),
        ("that claims another host", b"X-Forwarded-Host: elsewhere.test\r\nForwarded: host=elsewhere.test\r\n"),
        ("that claims another path", b"X-Original-URL: /healthz\r\nX-Rewrite-URL: /healthz\r\n"),
        ("that looks like a script", b"User-Agent: <script>" + CANARY + b"</script>\r\n"),
        ("that looks like a look-up", b"User-Agent: ${jndi:ldap://elsewhere.test/a}\r\n"),
        ("that looks like a log line", b'Referer: {"level": "error"} %s %n\r\n'),
    ):
        yield _one(f"header {name}", _post(target, more=lines), TAKEN, Then.SERVED)
    yield _one("header lines that end with LF", _post(target).replace(b"\r\n", b"\n"), {202, 400}, Then.EITHER)
    yield _one("empty lines before the request", b"\r\n\r\n" + _post(target), {202, 400}, Then.EITHER)

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
        ("with a name beyond ASCII", "X-Ä: b\r\n".encode()),
        ("with a bracket in its name", b"X(A): b\r\n"),
        ("with a quoted name", b'"X-A": b\r\n'),
        ("with a slash in its name", b"X/A: b\r\n"),
        ("that begins with a space", b" X-A: b\r\n"),
        ("of an equals sign", b"X-A=b\r\n"),
    ):
        yield _one(f"header {name}", _post(target, more=lines), UNPARSABLE, Then.CLOSED)
    folded_first = _post(target, host=b" Host: hooks.test\r\n")
    yield _one("header that is folded into the request line", folded_first, UNPARSABLE, Then.CLOSED)

    for name, lines in (
        ("of 1,000 lines", b"X-A: b\r\n" * 1_000),
        ("of 10,000 lines", b"X-A: b\r\n" * 10_000),
        ("of 70 KB", b"X-A: " + b"b" * 70_000 + b"\r\n"),
        ("of 1 MB", b"X-A: " + b"b" * 1_000_000 + b"\r\n"),
        ("with a name of 70 KB", b"X" * 70_000 + b": b\r\n"),
        ("of 500 KB in many lines", b"".join(b"X-%d: %s\r\n" % (n, b"b" * 1_000) for n in range(500))),
    ):
        yield _one(f"header {name}", _post(target, more=lines), TOO_LONG, Then.CLOSED)

    for name, host in (
        ("missing", b""),
        ("empty", b"Host:\r\n"),
        ("twice", b"Host: hooks.test\r\nHost: hooks.test\r\n"),
        ("twice, differing", b"Host: hooks.test\r\nHost: elsewhere.test\r\n"),
        ("twice, in two cases", b"Host: hooks.test\r\nhOST: hooks.test\r\n"),
        ("three times", b"Host: a\r\nHost: b\r\nHost: c\r\n"),
    ):
        yield _one(f"Host {name}", _post(target, host=host), {400}, Then.CLOSED)
    two = b"Host: a\r\nHost: b\r\n"
    yield _one("Host twice, on another path", _post(target, host=two, path=b"/healthz"), {400}, Then.CLOSED)
    yield _one("Host twice, on no path", _post(target, host=two, path=b"/nothing"), {400}, Then.CLOSED)
    yield _one(
        "Host twice, with a wrong token",
        _post(target, host=two, authorization=b"Authorization: Bearer x\r\n"),
        {400},
        Then.CLOSED,
    )
    for name, host in (
        ("of another house", b"Host: elsewhere.test\r\n"),
        ("with a port", b"Host: hooks.test:99999\r\n"),
        ("that is no host", b"Host: a b/@?\r\n"),
        ("of 8,000 letters", b"Host: " + b"h" * 8_000 + b"\r\n"),
    ):
        yield _one(f"Host {name}", _post(target, host=host), {202, 400}, Then.EITHER)


def _authorizations(target: Target) -> Iterator[Hostile]:
    token = target.token
    for name, value in (
        ("in lower case", b"bearer " + token),
        ("in upper case", b"BEARER " + token),
        ("after two spaces", b"Bearer  " + token),
        ("after twenty spaces", b"Bearer" + b" " * 20 + token),
        ("before spaces", b"Bearer " + token + b"   "),
        ("after a tab at the line's beginning", b"\tBearer " + token),
    ):
        yield _authorization(target, f"right, {name}", b"Authorization: " + value, TAKEN, Then.SERVED)
    yield _authorization(
        target, "right, without the space after its colon", b"Authorization:Bearer " + token, TAKEN, Then.SERVED
    )
    yield _authorization(
        target, "right, with its name in another case", b"aUTHORIZATION: Bearer " + token, TAKEN, Then.SERVED
    )

    for name, value in (
        ("empty", b""),
        ("of spaces", b"    "),
        ("the scheme alone", b"Bearer"),
        ("the scheme and a space", b"Bearer "),
        ("the token alone", token),
        ("wrong", b"Bearer " + CANARY),
        ("wrong and equally long", b"Bearer " + b"x" * len(token)),
        ("without its last letter", b"Bearer " + token[:-1]),
        ("without its first letter", b"Bearer " + token[1:]),
        ("of its first letter", b"Bearer " + token[:1]),
        ("with one letter more", b"Bearer " + token + b"x"),
        ("with an equals sign more", b"Bearer " + token + b"="),
        ("with its last letter changed", b"Bearer " + token[:-1] + bytes([token[-1] ^ 1])),
        ("with its first letter changed", b"Bearer " + bytes([token[0] ^ 1]) + token[1:]),
        ("in another case", b"Bearer " + token.swapcase()),
        ("backwards", b"Bearer " + token[::-1]),
        ("twice over", b"Bearer " + token + token),
        ("twice over with a space", b"Bearer " + token + b" " + token),
        ("twice over with a comma", b"Bearer " + token + b", Bearer " + token),
        ("followed by a comma", b"Bearer " + token + b","),
        ("followed by a parameter", b"Bearer " + token + b', realm="a"'),
        ("followed by another word", b"Bearer " + token + b" x"),
        ("in quotes", b'Bearer "' + token + b'"'),
        ("in single quotes", b"Bearer '" + token + b"'"),
        ("in angle brackets", b"Bearer <" + token + b">"),
        ("percent-encoded", b"Bearer " + b"".join(b"%%%02x" % byte for byte in token)),
        ("as a parameter", b"Bearer token=" + token),
        ("after the scheme twice", b"Bearer Bearer " + token),
        ("after a tab", b"Bearer\t" + token),
        ("after a space and a tab", b"Bearer \t" + token),
        ("after a colon", b"Bearer:" + token),
        ("after an equals sign", b"Bearer=" + token),
        ("of another scheme", b"Token " + token),
        ("of a longer scheme", b"BearerX " + token),
        ("of a shorter scheme", b"Beare " + token),
        ("as a user's name", b"Basic " + b64encode(token + b":")),
        ("as a password", b"Basic " + b64encode(b":" + token)),
        ("in base64", b"Bearer " + b64encode(token)),
        ("as a digest", b"Bearer " + hashlib.sha256(token).hexdigest().encode()),
        ("of the other webhook", b"Bearer " + target.url_token),
        ("the uid", b"Bearer " + target.uid),
        ("null", b"Bearer null"),
        ("undefined", b"Bearer undefined"),
        ("true", b"Bearer true"),
        ("an asterisk", b"Bearer *"),
        ("a percent sign", b"Bearer %"),
        ("a quote and a tautology", b"Bearer ' OR '1'='1"),
        ("beyond ASCII", b"Bearer " + token[:-1] + b"\xe9"),
        ("of bytes that are no text", b"Bearer \xff\xfe\xfd"),
        ("in full-width letters", b"Bearer " + "".join(chr(0xFEE0 + byte) for byte in token).encode()),
        ("after a no-break space", b"Bearer\xc2\xa0" + token),
        ("of 8,192 letters", b"Bearer " + b"x" * 8_185),
        ("of 8,193 letters", b"Bearer " + b"x" * 8_186),
        ("right, behind 9,000 spaces", b"Bearer" + b" " * 9_000 + token),
        ("of 20,000 letters", b"Bearer " + b"x" * 20_000),
        ("of 20,000 letters without a space", b"x" * 20_000),
    ):
        yield _authorization(target, name, b"Authorization: " + value, {401}, Then.EITHER)

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
        yield _authorization(target, name, b"\r\n".join(lines), {401}, Then.EITHER)

    for name, line in (
        ("with a NUL behind", right + b"\0"),
        ("with a NUL inside", b"Authorization: Bearer " + token[:5] + b"\0" + token[5:]),
        ("with a bare CR behind", right + b"\rX-A: b"),
        ("with a space before its colon", b"Authorization : Bearer " + token),
        ("folded", b"Authorization: Bearer\r\n " + token),
    ):
        yield _authorization(target, name, line, UNPARSABLE, Then.CLOSED)


def _authorization(target: Target, name: str, line: bytes, answers: set[int] | frozenset[int], then: Then) -> Hostile:
    lines = line + b"\r\n" if line else b""
    return _one(f"Authorization {name}", _post(target, authorization=lines), answers, then)


def _credentials_in_wrong_places(target: Target) -> Iterator[Hostile]:
    token, path = target.token, target.path
    for name, given in (
        ("the query, as token", path + b"?token=" + token),
        ("the query, as access_token", path + b"?access_token=" + token),
        ("the query, as a header", path + b"?Authorization=Bearer%20" + token),
        ("the query alone", path + b"?" + token),
    ):
        yield _one(f"credentials in {name}", _post(target, path=given, authorization=b""), {401}, Then.EITHER)
    for name, line in (
        ("a cookie", b"Cookie: token=" + token),
        ("a cookie named Authorization", b"Cookie: Authorization=Bearer " + token),
        ("Proxy-Authorization", b"Proxy-Authorization: Bearer " + token),
        ("X-Authorization", b"X-Authorization: Bearer " + token),
        ("X-Api-Key", b"X-Api-Key: " + token),
        ("X-Forwarded-Authorization", b"X-Forwarded-Authorization: Bearer " + token),
        ("WWW-Authenticate", b"WWW-Authenticate: Bearer " + token),
        ("the delivery id", b"X-Delivery-Token: " + token),
        ("a look-alike name", b"Authorization_: Bearer " + token),
        ("a prefixed name", b"HTTP-Authorization: Bearer " + token),
        ("a name with underscores", b"HTTP_AUTHORIZATION: Bearer " + token),
    ):
        sends = _post(target, authorization=line + b"\r\n")
        yield _one(f"credentials in {name}", sends, {401}, Then.EITHER)
    for name, body in (
        ("the body", b'{"token": "' + token + b'"}'),
        ("the body, as a form", b"token=" + token),
        ("the body, as a header", b"Authorization: Bearer " + token),
    ):
        yield _one(f"credentials in {name}", _post(target, authorization=b"", body=body), {401}, Then.EITHER)
    userinfo = _post(target, authorization=b"", path=b"http://bearer:" + token + b"@hooks.test" + path)
    yield _one("credentials in the target's user part", userinfo, {400, 401, 404}, Then.EITHER)
    trailer = b"2\r\n{}\r\n0\r\nAuthorization: Bearer " + token + b"\r\n\r\n"
    sends = _post(target, authorization=b"", framing=b"Trailer: Authorization\r\n" + CHUNKED, body=trailer)
    yield _one("credentials in a trailer", sends, {401}, Then.EITHER)
    forged = b"X-Forwarded-For: 127.0.0.1\r\nX-Real-IP: 127.0.0.1\r\nX-Forwarded-User: admin\r\n"
    yield _one("credentials replaced by a claim of trust", _post(target, authorization=forged), {401}, Then.EITHER)


def _content_lengths(target: Target) -> Iterator[Hostile]:
    for name, value in (
        ("negative", b"-2"),
        ("minus zero", b"-0"),
        ("with a plus sign", b"+2"),
        ("in hexadecimal", b"0x2"),
        ("in hexadecimal digits", b"a"),
        ("with a space inside", b"2 2"),
        ("as a list", b"2, 2"),
        ("as a list that differs", b"2, 3"),
        ("as a list with an empty end", b"2,"),
        ("with a decimal point", b"2.0"),
        ("with an exponent", b"2e0"),
        ("with an underscore", b"1_0"),
        ("with a unit", b"2 bytes"),
        ("in quotes", b'"2"'),
        ("with a semicolon", b"2;"),
        ("empty", b""),
        ("of spaces", b"   "),
        ("a word", b"two"),
        ("infinite", b"inf"),
        ("in full-width digits", "２".encode()),
        ("in Arabic digits", "٢".encode()),
        ("with a superscript digit", b"\xb2"),
        ("with a vertical tab", b"\x0b2"),
        ("with a NUL", b"2\0"),
        ("of 2^64", b"18446744073709551616"),
        ("of 2^64 + 2", b"18446744073709551618"),
        ("of 40 digits", b"9" * 40),
        ("of 5,000 digits", b"9" * 5_000),
    ):
        yield _one(
            f"Content-Length {name}",
            _post(target, framing=b"Content-Length: " + value + b"\r\n"),
            UNPARSABLE,
            Then.CLOSED,
        )
    for name, value in (
        ("one over the limit", b"262145"),
        ("of a terabyte", b"1099511627776"),
        ("of 2^31", b"2147483648"),
        ("of 2^32 + 2", b"4294967298"),
        ("of 2^53 + 1", b"9007199254740993"),
        ("of 2^63", b"9223372036854775808"),
    ):
        sends = _post(target, framing=b"Content-Length: " + value + b"\r\n", body=b"")
        yield _one(f"Content-Length {name}, and no body", sends, {413}, Then.CLOSED)
        sends = _post(target, framing=b"Content-Length: " + value + b"\r\nExpect: 100-continue\r\n", body=b"")
        yield _one(f"Content-Length {name}, asking first", sends, {413}, Then.CLOSED)
    for value in (b"18446744073709551615", b"18446744073709551614"):
        sends = _post(target, framing=b"Content-Length: " + value + b"\r\n", body=b"")
        yield _one(f"Content-Length {value.decode()}", sends, {CLOSED, 400, 413, 431}, Then.CLOSED)

    yield _one(
        "Content-Length with zeros before it",
        _post(target, framing=b"Content-Length: 0002\r\n"),
        {202, 400},
        Then.EITHER,
    )
    yield _one("Content-Length zero", _post(target, body=b""), {400}, Then.EITHER)
    yield _one("Content-Length missing", _post(target, framing=b"", body=b""), {400, 411}, Then.EITHER)
    yield Hostile(
        name="Content-Length missing, and a body",
        sends=_post(target, framing=b"", body=b"{}"),
        answers=(frozenset({400, 411}), frozenset({CLOSED, 400})),
        then=Then.CLOSED,
    )
    for name, lines in (
        ("twice, differing", b"Content-Length: 2\r\nContent-Length: 3\r\n"),
        ("twice, the first zero", b"Content-Length: 0\r\nContent-Length: 2\r\n"),
        ("twice, the second zero", b"Content-Length: 2\r\nContent-Length: 0\r\n"),
        ("twice, in two spellings", b"Content-Length: 2\r\nContent-Length: +2\r\n"),
        ("three times, the last differing", b"Content-Length: 2\r\nContent-Length: 2\r\nContent-Length: 3\r\n"),
        ("twice, in two cases", b"Content-Length: 2\r\ncontent-length: 3\r\n"),
    ):
        yield _one(f"Content-Length {name}", _post(target, framing=lines), UNPARSABLE, Then.CLOSED)
    # Twice the same says one thing: RFC 9110, 8.6 leaves it to the recipient.
    twice = b"Content-Length: 2\r\n" * 2
    yield _one("Content-Length twice, the same", _post(target, framing=twice), {202, 400}, Then.EITHER)

    yield Hostile(
        name="Content-Length shorter than the body",
        sends=_post(target, framing=b"Content-Length: 2\r\n", body=b"{}{}"),
        answers=(TAKEN, frozenset({CLOSED, 400, 405})),
        then=Then.CLOSED,
        half_closes=True,
    )
    yield _one(
        "Content-Length longer than all that comes",
        _post(target, framing=b"Content-Length: 5000\r\n"),
        {CLOSED, 400},
        Then.CLOSED,
        half_closes=True,
    )
    behind = honest(target, b"never: inside a body")
    for name, authorization, expected in (
        ("of an accepted length", None, {400}),
        ("of a stranger", b"Authorization: Bearer " + CANARY + b"\r\n", {401}),
        ("of nobody", b"", {401}),
    ):
        sends = _post(target, authorization=authorization, body=behind)
        yield _one(f"a delivery inside the body {name}", sends, expected, Then.EITHER)
    yield _one(
        "a delivery inside the body of an unknown webhook",
        _post(target, path=b"/webhooks/w/wh_x", body=behind),
        {404},
        Then.EITHER,
    )
    yield _one("a delivery inside the body of a GET", _post(target, method=b"GET", body=behind), {405}, Then.EITHER)
    yield _one(
        "a delivery inside a body that is too large", _post(target, body=behind + CANARY * 40_000), {413}, Then.CLOSED
    )
    for path in (b"/healthz", b"/nothing", b"/"):
        sends = _post(target, path=path, body=behind)
        yield _one(f"a delivery inside the body of {path.decode()}", sends, {200, 404, 405}, Then.EITHER)
        sends = _post(
            target, method=b"GET", path=path, framing=CHUNKED, body=b"%x\r\n" % len(behind) + behind + b"\r\n0\r\n\r\n"
        )
        yield _one(f"a delivery inside the chunks of GET {path.decode()}", sends, {200, 303, 404, 405}, Then.EITHER)


def _transfer_encodings(target: Target) -> Iterator[Hostile]:
    length = b"Content-Length: 2\r\n"
    # Judged by its chunks alone (RFC 9112, 6.3) or refused: in both cases nothing on the connection counts any more.
    for name, lines, body in (
        ("before a length", CHUNKED + length, WHOLE_CHUNKS),
        ("behind a length", length + CHUNKED, WHOLE_CHUNKS),
        ("beside the length of its chunks", CHUNKED + b"Content-Length: %d\r\n" % len(WHOLE_CHUNKS), WHOLE_CHUNKS),
        ("beside a length of zero", CHUNKED + b"Content-Length: 0\r\n", WHOLE_CHUNKS),
        ("beside a length that is too large", CHUNKED + b"Content-Length: 8000000\r\n", WHOLE_CHUNKS),
        ("beside two lengths", length + CHUNKED + b"Content-Length: 3\r\n", WHOLE_CHUNKS),
        ("beside a broken length", CHUNKED + b"Content-Length: x\r\n", WHOLE_CHUNKS),
    ):
        sends = _post(target, framing=lines, body=body)
        yield _one(f"Transfer-Encoding {name}", sends, {202, 400, 413}, Then.CLOSED)
    smuggled = honest(target, b"never: between two framings")
    yield Hostile(
        name="Transfer-Encoding beside a length that covers another delivery",
        sends=_post(
            target, framing=CHUNKED + b"Content-Length: %d\r\n" % (5 + len(smuggled)), body=b"0\r\n\r\n" + smuggled
        ),
        answers=(frozenset({400}),),
        then=Then.CLOSED,
    )
    yield Hostile(
        name="Transfer-Encoding beside a length that uncovers another delivery",
        sends=_post(
            target,
            framing=b"Content-Length: 4\r\n" + CHUNKED,
            body=b"%x\r\n" % len(smuggled) + smuggled + b"\r\n0\r\n\r\n",
        ),
        answers=(frozenset({400}),),
        then=Then.CLOSED,
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
        ("cut short", b"chunke"),
        ("unknown", b"cow"),
        ("empty", b""),
        ("in quotes", b'"chunked"'),
        ("in single quotes", b"'chunked'"),
        ("with a parameter", b"chunked;q=1"),
        ("with an empty item before", b", chunked"),
        ("with an empty item behind", b"chunked,"),
        ("behind a vertical tab", b"\x0bchunked"),
        ("before a vertical tab", b"chunked\x0b"),
        ("with a NUL", b"chunked\0"),
        ("beyond ASCII", "chunкed".encode()),
        ("behind a no-break space", b"\xa0chunked"),
    ):
        sends = _post(target, framing=b"Transfer-Encoding: " + value + b"\r\n", body=WHOLE_CHUNKS)
        yield _one(f"Transfer-Encoding {name}", sends, UNPARSABLE | {501}, Then.CLOSED)
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
        sends = _post(target, framing=lines, body=WHOLE_CHUNKS)
        yield _one(f"Transfer-Encoding {name}", sends, UNPARSABLE | {501}, Then.CLOSED)
    two = CHUNKED * 2
    yield _one(
        "Transfer-Encoding on two lines, on another path",
        _post(target, path=b"/healthz", framing=two, body=WHOLE_CHUNKS),
        UNPARSABLE,
        Then.CLOSED,
    )
    yield _one(
        "Transfer-Encoding in version 1.0",
        _post(target, version=b"HTTP/1.0", framing=CHUNKED, body=WHOLE_CHUNKS),
        UNPARSABLE,
        Then.CLOSED,
    )
    yield _one(
        "Transfer-Encoding in version 1.0, beside a length",
        _post(target, version=b"HTTP/1.0", framing=CHUNKED + length, body=WHOLE_CHUNKS),
        UNPARSABLE,
        Then.CLOSED,
    )
    for name, value in (("in capitals", b"CHUNKED"), ("in mixed case", b"cHuNkEd"), ("between tabs", b"\tchunked\t")):
        sends = _post(target, framing=b"Transfer-Encoding: " + value + b"\r\n", body=WHOLE_CHUNKS)
        yield _one(f"Transfer-Encoding {name}", sends, {202, 400}, Then.EITHER)
    # A name that merely looks like it is no framing: the length counts.
    for spelled in (b"Transfer_Encoding", b"X-Transfer-Encoding", b"Transfer-Encodings", b"Content-Transfer-Encoding"):
        sends = _post(target, more=spelled + b": chunked\r\n")
        yield _one(f"Transfer-Encoding spelled {spelled.decode()}", sends, TAKEN, Then.SERVED)


def _chunks(target: Target) -> Iterator[Hostile]:
    for name, body in (
        ("of one byte each", b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"),
        ("with capital digits", b"A\r\n[1,2,3,45]\r\n0\r\n\r\n"),
        ("with zeros before the size", b"0002\r\n{}\r\n000\r\n\r\n"),
        ("with an extension", b"2;name=value\r\n{}\r\n0\r\n\r\n"),
        ("with a quoted extension", b'2;name="a;b"\r\n{}\r\n0;last\r\n\r\n'),
        ("with a trailer", b"2\r\n{}\r\n0\r\nX-A: b\r\n\r\n"),
        ("with a trailer that is a length", b"2\r\n{}\r\n0\r\nContent-Length: 500\r\n\r\n"),
        ("with a trailer that is an encoding", b"2\r\n{}\r\n0\r\nTransfer-Encoding: identity\r\n\r\n"),
        ("with a trailer that is a host", b"2\r\n{}\r\n0\r\nHost: elsewhere.test\r\n\r\n"),
    ):
        yield _one(f"chunks {name}", _post(target, framing=CHUNKED, body=body), TAKEN, Then.SERVED)
    yield _one("chunks of nothing", _post(target, framing=CHUNKED, body=b"0\r\n\r\n"), {400}, Then.EITHER)
    yield _one(
        "chunks by the thousand",
        _post(target, framing=CHUNKED, body=b"1\r\n \r\n" * 5_000 + WHOLE_CHUNKS),
        TAKEN,
        Then.SERVED,
    )
    for name, size in (
        ("with a space behind the size", b"2 "),
        ("with a tab behind the size", b"2\t"),
        ("with twenty zeros", b"0" * 20 + b"2"),
    ):
        sends = _post(target, framing=CHUNKED, body=size + b"\r\n{}\r\n0\r\n\r\n")
        yield _one(f"chunks {name}", sends, {202, 400}, Then.EITHER)

    for name, body in (
        ("of a size that is a word", b"x\r\n{}\r\n0\r\n\r\n"),
        ("of a negative size", b"-2\r\n{}\r\n0\r\n\r\n"),
        ("of a size with a sign", b"+2\r\n{}\r\n0\r\n\r\n"),
        ("of a size with 0x", b"0x2\r\n{}\r\n0\r\n\r\n"),
        ("of a size with an underscore", b"0_2\r\n{}\r\n0\r\n\r\n"),
        ("of a size with a point", b"2.0\r\n{}\r\n0\r\n\r\n"),
        ("of a size after a space", b" 2\r\n{}\r\n0\r\n\r\n"),
        ("without a size", b"\r\n{}\r\n0\r\n\r\n"),
        ("with an extension but no size", b";a=b\r\n{}\r\n0\r\n\r\n"),
        ("of a size that overflows 64 bits", b"10000000000000002\r\n{}\r\n0\r\n\r\n"),
        ("of a size that overflows 128 bits", b"f" * 33 + b"\r\n{}\r\n0\r\n\r\n"),
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
        ("with a trailer that is no header", b"2\r\n{}\r\n0\r\nno header\r\n\r\n"),
        ("with a folded trailer", b"2\r\n{}\r\n0\r\nX-A: b\r\n c\r\n\r\n"),
        ("with trailers of 40 KB", b"2\r\n{}\r\n0\r\n" + b"X-A: b\r\n" * 5_000 + b"\r\n"),
        ("with a trailer of 100 KB", b"2\r\n{}\r\n0\r\nX-A: " + b"b" * 100_000 + b"\r\n\r\n"),
        ("that are none", CANARY),
        ("that are a length and a body", b"Content-Length: 2\r\n\r\n{}"),
    ):
        sends = _post(target, framing=CHUNKED, body=body)
        yield _one(f"chunks {name}", sends, {CLOSED, 400}, Then.CLOSED)
    # Where the body's end is missing, the next request is part of the trailer or of a chunk.
    for name, body in (
        ("without the last one", b"2\r\n{}\r\n"),
        ("without the last line end", b"2\r\n{}\r\n0\r\n"),
        ("that swallow what comes behind", b"2\r\n{}\r\nfff\r\n"),
        ("of a size of 2^63", b"8000000000000000\r\n"),
        ("of a size of 2^64 - 1", b"ffffffffffffffff\r\n{}\r\n0\r\n\r\n"),
    ):
        sends = _post(target, framing=CHUNKED, body=body)
        yield _one(f"chunks {name}", sends, {CLOSED, 400, 413}, Then.CLOSED, half_closes=True)
    for name, body in (
        ("nothing", b""),
        ("half a size", b"2"),
        ("a size", b"2\r\n"),
        ("half the data", b"2\r\n{"),
        ("the data", b"2\r\n{}"),
        ("the last size", b"2\r\n{}\r\n0"),
        ("half a trailer", b"2\r\n{}\r\n0\r\nX-A: b"),
    ):
        sends = _post(target, framing=CHUNKED, body=body)
        yield _one(
            f"chunks that break off after {name}", sends, {CLOSED, 400}, Then.CLOSED, alone=True, half_closes=True
        )


def _expectations_and_upgrades(target: Target) -> Iterator[Hostile]:
    for name, value in (
        ("100-continue", b"100-continue"),
        ("100-Continue in capitals", b"100-CONTINUE"),
        ("nothing", b""),
        ("something unknown", b"200-ok"),
        ("the whole list", b"100-continue, 200-ok"),
        ("100", b"100"),
    ):
        sends = _post(target, more=b"Expect: " + value + b"\r\n")
        yield _one(f"Expect {name}", sends, {202, 417}, Then.EITHER)
    sends = _post(target, more=b"Expect: 100-continue\r\n", version=b"HTTP/1.0")
    yield _one("Expect in version 1.0", sends, {202}, Then.CLOSED)
    for name, authorization, path, expected in (
        ("of a stranger", b"Authorization: Bearer " + CANARY + b"\r\n", None, 401),
        ("of nobody", b"", None, 401),
        ("of an unknown webhook", None, b"/webhooks/w/wh_x", 404),
    ):
        sends = _post(
            target,
            more=b"Expect: 100-continue\r\n",
            authorization=authorization,
            path=path,
            framing=b"Content-Length: 100000\r\n",
            body=b"",
        )
        yield _one(f"Expect {name}", sends, {expected}, Then.CLOSED)
    for name, lines in (
        ("to HTTP/2", b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"),
        ("to HTTP/2 without settings", b"Connection: Upgrade\r\nUpgrade: h2c\r\n"),
        (
            "to a websocket",
            WEBSOCKET,
        ),
        ("to TLS", b"Connection: Upgrade\r\nUpgrade: TLS/1.2\r\n"),
        ("to nothing", b"Connection: Upgrade\r\nUpgrade:\r\n"),
        ("without saying so", b"Upgrade: websocket\r\n"),
    ):
        yield _one(f"Upgrade {name}", _post(target, more=lines), TAKEN, Then.SERVED)
    yield _one(
        "Upgrade of a GET to a websocket",
        _post(target, method=b"GET", more=WEBSOCKET, framing=b"", body=b""),
        {405},
        Then.EITHER,
    )
    yield _one(
        "Upgrade of another path to a websocket",
        _post(target, method=b"GET", path=b"/healthz", more=WEBSOCKET, framing=b"", body=b""),
        {200, 404},
        Then.EITHER,
    )
    yield _one("Connection close", _post(target, more=b"Connection: close\r\n"), TAKEN, Then.CLOSED)
    yield _one(
        "Connection close among others", _post(target, more=b"Connection: keep-alive, close\r\n"), TAKEN, Then.CLOSED
    )
    yield _one(
        "Connection of 8,000 letters", _post(target, more=b"Connection: " + b"x" * 8_000 + b"\r\n"), TAKEN, Then.SERVED
    )


def _pipelines(target: Target) -> Iterator[Hostile]:
    good = _post(target, identity=b"")
    chunked = _post(target, identity=b"", framing=CHUNKED, body=WHOLE_CHUNKS)
    first = _post(target)
    refusal = frozenset({CLOSED, 400})
    for name, sends, answers, then in (
        ("two deliveries", first + good, (TAKEN, TAKEN), Then.SERVED),
        ("twenty deliveries", first + good * 19, (TAKEN,) * 20, Then.SERVED),
        ("a length and chunks", first + chunked, (TAKEN, TAKEN), Then.SERVED),
        ("chunks and a length", chunked + first, (TAKEN, TAKEN), Then.SERVED),
        ("chunks ten times", first + chunked * 10, (TAKEN,) * 11, Then.SERVED),
        ("empty lines between", first + b"\r\n\r\n" + good, (TAKEN, TAKEN), Then.SERVED),
        (
            "a health check first",
            b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n" + first,
            (frozenset({200}),),
            Then.EITHER,
        ),
        ("garbage behind", first + b"\0\xff" + CANARY + b"\r\n\r\n", (TAKEN, refusal), Then.CLOSED),
        ("another protocol behind", first + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (TAKEN, WRONG_VERSION), Then.CLOSED),
        (
            "two framings behind",
            first + _post(target, identity=b"", framing=CHUNKED * 2, body=WHOLE_CHUNKS),
            (TAKEN, refusal),
            Then.CLOSED,
        ),
        (
            "a stranger behind",
            first + _post(target, identity=b"", authorization=b""),
            (TAKEN, frozenset({401})),
            Then.EITHER,
        ),
        ("a GET behind", first + _post(target, identity=b"", method=b"GET"), (TAKEN, frozenset({405})), Then.EITHER),
        ("bad JSON behind", first + _post(target, identity=b"", body=CANARY), (TAKEN, frozenset({400})), Then.EITHER),
        (
            "a last one in between",
            first + _post(target, identity=b"", more=b"Connection: close\r\n"),
            (TAKEN, TAKEN),
            Then.CLOSED,
        ),
        (
            "one that is too large behind",
            first + _post(target, identity=b"", body=b" " * 300_000),
            (TAKEN, frozenset({413})),
            Then.CLOSED,
        ),
    ):
        yield Hostile(name=f"pipeline of {name}", sends=sends, answers=answers, then=then)


def _early_ends(target: Target) -> Iterator[Hostile]:
    whole = _post(target)
    head, _, _ = whole.partition(b"\r\n\r\n")
    for name, sends in (
        ("nothing", b""),
        ("a line end", b"\r\n"),
        ("half the method", b"PO"),
        ("the method", b"POST "),
        ("half the path", b"POST /webh"),
        ("the request line", whole.split(b"\r\n")[0] + b"\r\n"),
        ("half a header's name", whole[: whole.index(b"Authoriz") + 4]),
        ("half the credentials", whole[: whole.index(target.token) + 9]),
        ("the last header line", head + b"\r\n"),
        ("the head but for its last byte", head + b"\r\n\r"),
    ):
        yield _one(f"an end after {name}", sends, {CLOSED, 400, 408}, Then.CLOSED, alone=True, half_closes=True)
    for name, sends in (
        ("the head", head + b"\r\n\r\n"),
        ("half the body", head + b"\r\n\r\n{"),
        ("the first of 262,144 bytes", _post(target, framing=b"Content-Length: 262144\r\n", body=b"{")),
    ):
        yield _one(f"an end after {name}", sends, {CLOSED, 400}, Then.CLOSED, alone=True, half_closes=True)
    # Whoever says goodbye before the answer may or may not get one.
    yield _one("an end after all of it", whole, {CLOSED, 202}, Then.CLOSED, alone=True, half_closes=True)
    stranger = _post(target, authorization=b"", framing=b"Content-Length: 5000\r\n", body=b"{")
    yield _one(
        "an end after half a stranger's body", stranger, {CLOSED, 401}, Then.CLOSED, alone=True, half_closes=True
    )


def _sizes(target: Target) -> Iterator[Hostile]:
    for size in (BODY_BYTES_MAX - 1, BODY_BYTES_MAX, BODY_BYTES_MAX + 1, 2 * BODY_BYTES_MAX):
        body = b'"' + b"a" * (size - 2) + b'"'
        answers, then = ({202}, Then.SERVED) if size <= BODY_BYTES_MAX else ({413}, Then.CLOSED)
        yield _one(f"size {size}", _post(target, body=body), answers, then)
        whole = b"%x\r\n" % size + body + b"\r\n0\r\n\r\n"
        yield _one(f"size {size} in one chunk", _post(target, framing=CHUNKED, body=whole), answers, then)
        parts = b"".join(
            b"%x\r\n" % len(part) + part + b"\r\n" for part in (body[at : at + 1_000] for at in range(0, size, 1_000))
        )
        yield _one(
            f"size {size} in many chunks", _post(target, framing=CHUNKED, body=parts + b"0\r\n\r\n"), answers, then
        )
    for size in (BODY_BYTES_MAX, BODY_BYTES_MAX + 1):
        answers, then = ({400}, Then.EITHER) if size <= BODY_BYTES_MAX else ({413}, Then.CLOSED)
        yield _one(f"size {size} of blanks", _post(target, body=b" " * size), answers, then)
    spread = b"".join(b"%x;e=%s\r\n" % (n, b"x" * 50) + b" " * n + b"\r\n" for n in (1, 2, 4, 8)) + WHOLE_CHUNKS
    yield _one("size in chunks with extensions", _post(target, framing=CHUNKED, body=spread), TAKEN, Then.SERVED)
    stranger = b"Authorization: Bearer " + CANARY + b"\r\n"
    yield _one(
        "size 262145 of a stranger",
        _post(target, authorization=stranger, body=b" " * (BODY_BYTES_MAX + 1)),
        {401},
        Then.CLOSED,
    )


def _encodings_and_types(target: Target) -> Iterator[Hostile]:
    json = b'{"a": [1, 2, 3]}'
    bomb = gzip.compress(b"[" + b"0," * 5_000_000 + b"0]", mtime=0)
    for name, value, body in (
        ("gzip", b"gzip", gzip.compress(json, mtime=0)),
        ("deflate", b"deflate", zlib.compress(json)),
        ("gzip, twice", b"gzip, gzip", gzip.compress(gzip.compress(json, mtime=0), mtime=0)),
        ("gzip, a bomb", b"gzip", bomb),
        ("gzip, cut short", b"gzip", gzip.compress(json, mtime=0)[:-4]),
    ):
        sends = _post(target, more=b"Content-Encoding: " + value + b"\r\n", body=body)
        yield _one(f"Content-Encoding {name}", sends, {400}, Then.EITHER)
    for value in (b"gzip", b"identity", b"br", b"aes128gcm", b"x" * 1_000, b""):
        sends = _post(target, more=b"Content-Encoding: " + value + b"\r\n", body=json)
        yield _one(f"Content-Encoding {value[:20].decode()!r} that is not one", sends, TAKEN, Then.SERVED)
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
        sends = _post(target, more=b"Content-Type: " + value + b"\r\n", body=json)
        yield _one(f"Content-Type {value.decode()!r}", sends, TAKEN, Then.SERVED)
    utf16 = json.decode().encode("utf-16")
    yield _one(
        "Content-Type that promises UTF-16, and keeps it",
        _post(target, more=b"Content-Type: application/json; charset=utf-16\r\n", body=utf16),
        {400},
        Then.EITHER,
    )
    form = b"payload=%7B%22a%22%3A1%7D"
    yield _one(
        "Content-Type of a form, and a form",
        _post(target, more=b"Content-Type: application/x-www-form-urlencoded\r\n", body=form),
        {400},
        Then.EITHER,
    )
