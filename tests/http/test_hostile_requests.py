"""Hundreds of hostile requests: each gets an answer that the requirements allow, and none disturbs the next request."""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg.rows import TupleRow
from psycopg.sql import SQL, Identifier

from hookmill.management import Management
from tests.http.conftest import UNLIMITED, new_target
from tests.http.hostile_requests import (
    CANARY,
    IDENTITY_PLACEHOLDER,
    NO_ANSWER,
    Connection,
    HostileRequest,
    Target,
    hostile_requests,
    valid_delivery,
)
from tests.http.raw_http import RawAnswer, RawConnection
from tests.http.test_slow_clients import seconds_to_202
from tests.support.service import Service, operator, serving

NAMES = [case.name for case in hostile_requests()]
CASE_SECONDS = 8.0
"""The deadline of each case. The service answers each of them quickly, unless it hangs."""
ECHO_BYTES = 12
"""An answer must not repeat so many successive bytes of the request."""


@pytest.fixture(scope="module")
def cases(target):
    """All hostile requests, by name."""
    return {case.name: case for case in hostile_requests(target)}


def test_hostile_request_gets_an_allowed_answer(
    service,
    management,
    target,
    cases,
    subtests,
):
    for name, case in cases.items():
        with subtests.test(name):
            accepted = send_case(service.port, target, case)

            logged = logged_events(management, target, newest=40)
            for event in (event_of(case), next_event_of(case)):
                assert (event in logged) == (event in accepted) or is_uncertain(case, event)


def test_there_are_hundreds_of_hostile_requests_with_unique_names():
    assert len(NAMES) >= 300
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.proof
def test_service_on_sqlite_withstands_all_hostile_requests_at_once(service, management):
    target = new_target(management, "hostile")

    send_all_cases(service, management, target)

    assert CANARY not in b"".join(path.read_bytes() for path in service.data_dir.rglob("*") if path.is_file())


@pytest.mark.proof
def test_service_on_postgresql_withstands_all_hostile_requests_at_once(tmp_path, postgres_url):
    with serving(tmp_path, database_url=postgres_url, **UNLIMITED) as service, service.management() as management:
        send_all_cases(service, management, new_target(management))

    assert CANARY not in stored_bytes(postgres_url)


def test_trailer_is_never_treated_as_a_header(service, management, target):
    body = b'["a body with a trailer"]'
    chunks = b"%x\r\n%s\r\n0\r\nX-Service-Delivery-Id: from a trailer\r\n\r\n" % (len(body), body)

    with RawConnection(service.port) as connection:
        connection.send(
            b"POST " + target.path + b" HTTP/1.1\r\nHost: hooks.test\r\nAuthorization: Bearer " + target.token + b"\r\n"
            b"Trailer: X-Service-Delivery-Id\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks
        )
        answer = connection.read_answer()

    assert answer is not None
    delivery = management.log.get(operator(management), json.loads(answer.body)["delivery_id"])
    assert delivery.identity is None


def test_authenticated_sender_gets_the_100_continue_that_it_expects(service, target):
    head, _, body = valid_delivery(target, b"expects 100").partition(b"\r\n\r\n")

    with RawConnection(service.port) as connection:
        connection.send(head + b"\r\nExpect: 100-continue\r\n\r\n")
        assert connection.read_interim_status() == 100
        connection.send(body)
        answer = connection.read_answer()

    assert answer is not None
    assert answer.status == 202


def test_unauthenticated_client_gets_no_100_continue(service, target):
    with RawConnection(service.port) as connection:
        connection.send(
            b"POST " + target.path + b" HTTP/1.1\r\nHost: hooks.test\r\nAuthorization: Bearer wrong\r\n"
            b"Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n"
        )
        answer = connection.read_answer()

    assert answer is not None
    assert (answer.status, connection.interim_statuses) == (401, [])


def test_unknown_disabled_and_deleted_webhooks_get_the_same_answer(service, management):
    may = operator(management)
    disabled = management.webhooks.create(may, {"name": "disabled"})
    deleted = management.webhooks.create(may, {"name": "deleted"})
    management.webhooks.set_enabled(may, disabled.webhook.uid, enabled=False)
    management.webhooks.delete(may, deleted.webhook.uid)
    bearers = [
        b"Bearer wrong",
        b"Bearer " + disabled.reveal().encode(),
        b"Bearer " + deleted.reveal().encode(),
    ]

    answers = set()
    for uid in (b"wh_unknown", disabled.webhook.uid.encode(), deleted.webhook.uid.encode()):
        for bearer in bearers:
            with RawConnection(service.port) as connection:
                connection.send(
                    b"POST /webhooks/w/" + uid + b" HTTP/1.1\r\nHost: hooks.test\r\nAuthorization: " + bearer + b"\r\n"
                    b"Content-Length: 2\r\n\r\n{}"
                )
                answer = connection.read_answer()
                assert answer is not None
                headers = {name: value for name, value in answer.headers.items() if name != "date"}
                answers.add((answer.status, answer.body, *sorted(headers.items())))

    assert len(answers) == 1
    assert answers.pop()[0] == 404


def test_delivery_can_be_retried_after_a_connection_reset(service, management, target):
    with RawConnection(service.port) as connection:
        connection.send(valid_delivery(target, b"reset"))
        connection.reset()

    with RawConnection(service.port) as connection:
        connection.send(valid_delivery(target, b"reset"))
        answer = connection.read_answer()

    assert answer is not None
    assert answer.status == 202
    rows = [row for row in management.log.newest(operator(management), limit=20) if row.identity == "reset"]
    [accepted] = [row for row in rows if row.label.wording == "Accepted"]
    assert {row.label.wording for row in rows if row is not accepted} <= {"Duplicate"}


def test_oversized_delivery_is_refused_before_its_body_arrives(service, target):
    with RawConnection(service.port) as connection:
        connection.send(
            b"POST " + target.path + b" HTTP/1.1\r\nHost: hooks.test\r\nAuthorization: Bearer " + target.token + b"\r\n"
            b"Content-Length: 8000000\r\n\r\n"
        )
        # The deadline of this connection is shorter than that of a body.
        answer = connection.read_answer()

    assert answer is not None
    assert answer.status == 413


# Sending the cases


def send_all_cases(service: Service, management: Management, target: Target):
    """Send all hostile requests, many at the same time.

    Fails unless the service then answers fast, has logged no error and no secret, and has recorded exactly the accepted
    deliveries.
    """
    cases = hostile_requests(target)
    with ThreadPoolExecutor(16) as clients:
        accepted = set().union(*clients.map(lambda case: send_case(service.port, target, case), cases))

    assert seconds_to_202(service, target) < 3.0
    logged = logged_events(management, target, newest=100_000)
    uncertain = {event_of(case) for case in cases if is_uncertain(case, event_of(case))}
    sent = {event for case in cases for event in (event_of(case), next_event_of(case))}
    assert (logged & sent) - uncertain == accepted - uncertain
    assert [event for event in logged if event.startswith("never")] == []
    log = service.log()
    assert "Traceback" not in log
    assert [secret for secret in (target.token, target.url_token, CANARY) if secret.decode() in log] == []


def send_case(port: int, target: Target, case: HostileRequest) -> set[str]:
    """Send the hostile request and a valid delivery after it, and check the answers. Returns the accepted events."""
    event, next_event = event_of(case), next_event_of(case)
    data = case.data.replace(IDENTITY_PLACEHOLDER, event.encode())
    accepted: set[str] = set()
    with RawConnection(port, seconds=CASE_SECONDS) as connection:
        connection.send(data if case.is_alone else data + valid_delivery(target, next_event.encode()))
        if case.half_closes:
            connection.half_close()
        for allowed in case.answers:
            answer = connection.read_answer(to_head=case.is_head)
            assert (answer.status if answer else NO_ANSWER) in allowed, f"{case.name}: {answer}"
            if answer is None:
                return accepted
            check_answer(answer, data)
            if answer.status == 202 and IDENTITY_PLACEHOLDER in case.data:
                accepted.add(event)
        if case.connection is Connection.CLOSED:
            assert connection.wait_for_close(), f"{case.name}: the connection stays open"
        elif not case.is_alone:
            answer = connection.read_answer()
            next_allowed = {202} if case.connection is Connection.OPEN else {NO_ANSWER, 202}
            assert (answer.status if answer else NO_ANSWER) in next_allowed, f"after {case.name}: {answer}"
            if answer:
                accepted.add(next_event)
    return accepted


def check_answer(answer: RawAnswer, request: bytes):
    """Check what must hold for every answer."""
    assert answer.status < 500
    # Paths of the dashboard are answered by pages.
    is_from_dashboard = "content-security-policy" in answer.headers
    if answer.body and not is_from_dashboard:
        assert answer.headers["content-type"] == expected_type(answer)
    if answer.status == 405:
        assert answer.headers["allow"] == ("GET, HEAD" if is_from_dashboard else "POST")
    if answer.status >= 400 and answer.body and not is_from_dashboard:
        # Errors of the API have more keys. Senders get these four, and no reason.
        api_keys = {"detail", "errors"} if answer.headers.get("x-content-type-options") == "nosniff" else set()
        assert set(json.loads(answer.body)) - api_keys == {"type", "title", "status", "code"}
    header_values = [value for name, value in answer.headers.items() if name != "content-type"]
    content = answer.body + "\n".join(header_values).encode("latin-1")
    echo = next((part for part in windows(content, ECHO_BYTES) if part in request), None)
    assert echo is None, f"the answer repeats {echo!r}"


def expected_type(answer: RawAnswer) -> str:
    return {200: "text/plain", 202: "application/json"}.get(answer.status, "application/problem+json")


def windows(text: bytes, size: int) -> list[bytes]:
    return [text[at : at + size] for at in range(len(text) - size + 1)]


def event_of(case: HostileRequest) -> str:
    """The event id of the hostile request."""
    return f"of-{hashlib.sha256(case.name.encode()).hexdigest()[:20]}"


def next_event_of(case: HostileRequest) -> str:
    """The event id of the valid delivery after the hostile request."""
    return f"after-{hashlib.sha256(case.name.encode()).hexdigest()[:20]}"


def is_uncertain(case: HostileRequest, event: str) -> bool:
    """Whether the event may be recorded without an answer, because the client closes its side before the answer."""
    return event == event_of(case) and case.answers[0] >= {NO_ANSWER, 202}


def logged_events(management: Management, target: Target, *, newest: int) -> set[str]:
    """The event ids in the newest rows of the target's webhooks."""
    may = operator(management)
    rows = [
        row
        for uid in (target.uid, target.url_uid)
        for row in management.log.newest(may, webhook=uid.decode(), limit=newest)
    ]
    return {row.identity for row in rows if row.identity is not None}


def stored_bytes(url: str) -> bytes:
    """The contents of all tables of a PostgreSQL database."""
    with psycopg.connect(url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        return b"".join(table_bytes(connection, table) for (table,) in tables)


def table_bytes(connection: "psycopg.Connection[TupleRow]", table: str) -> bytes:
    statement = SQL("COPY {} TO STDOUT WITH (FORMAT binary)").format(Identifier(table))
    with connection.cursor().copy(statement) as chunks:
        return b"".join(chunks)
