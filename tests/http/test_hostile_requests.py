"""Hundreds of hostile requests on raw sockets: each is answered within the contract, and none disturbs the next."""

import hashlib
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow
from psycopg.sql import SQL, Identifier

from hookmill.management import Management
from tests.http.conftest import ENOUGH, new_target
from tests.http.hostile import CANARY, CLOSED, IDENTITY_PLACE, Hostile, Target, Then, honest, hostile_requests
from tests.http.wire import Wire, WireAnswer
from tests.support.service import Service, operator, serving
from tests.support.waiting import stalls

NAMES = [case.name for case in hostile_requests()]
CASE_SECONDS = 8.0
"""Nothing here is slow by itself: what is not answered by then hangs."""
ECHO_BYTES = 12


@pytest.fixture(scope="module")
def cases(target: Target) -> dict[str, Hostile]:
    return {case.name: case for case in hostile_requests(target)}


def test_a_hostile_request_is_answered_within_the_contract(
    service: Service, management: Management, target: Target, cases: dict[str, Hostile], subtests: pytest.Subtests
):
    for name, case in cases.items():
        with subtests.test(name):
            taken = attack(service.port, target, case)

            logged = events_in_the_log(management, target, newest=40)
            for event in (event_of(case), event_behind(case)):
                assert (event in logged) == (event in taken) or may_vanish(case, event)


def test_there_are_hundreds_of_them_and_no_two_share_a_name():
    assert len(NAMES) >= 300
    assert len(set(NAMES)) == len(NAMES)


def test_all_of_them_at_once_leave_the_service_well(service: Service, management: Management):
    target = new_target(management, "stormed")

    storm(service, management, target)

    assert CANARY not in b"".join(path.read_bytes() for path in service.data_dir.rglob("*") if path.is_file())


def test_all_of_them_at_once_leave_the_service_on_postgresql_well(tmp_path: Path, postgres_url: str):
    with serving(tmp_path, database_url=postgres_url, **ENOUGH) as service, service.management() as management:
        storm(service, management, new_target(management))

    assert CANARY not in everything_stored(postgres_url)


def test_a_trailer_is_never_taken_for_a_header(service: Service, management: Management, target: Target):
    body = b'["an event of its own"]'
    chunks = b"%x\r\n%s\r\n0\r\nX-Service-Delivery-Id: from a trailer\r\n\r\n" % (len(body), body)

    with Wire(service.port) as wire:
        wire.send(
            b"POST " + target.path + b" HTTP/1.1\r\nHost: hooks.test\r\nAuthorization: Bearer " + target.token + b"\r\n"
            b"Trailer: X-Service-Delivery-Id\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks
        )
        answer = wire.answer()

    assert answer is not None
    delivery = management.log.get(operator(management), json.loads(answer.body)["delivery_id"])
    assert delivery.identity is None


def test_a_sender_that_expects_100_continue_gets_it(service: Service, target: Target):
    head, _, body = honest(target, b"asked first").partition(b"\r\n\r\n")

    with Wire(service.port) as wire:
        wire.send(head + b"\r\nExpect: 100-continue\r\n\r\n")
        assert wire.interim_answer() == 100
        wire.send(body)
        answer = wire.answer()

    assert answer is not None
    assert answer.status == 202


def test_an_unauthenticated_client_gets_no_100_continue(service: Service, target: Target):
    with Wire(service.port) as wire:
        wire.send(
            b"POST " + target.path + b" HTTP/1.1\r\nHost: hooks.test\r\nAuthorization: Bearer wrong\r\n"
            b"Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n"
        )
        answer = wire.answer()

    assert answer is not None
    assert (answer.status, wire.interim) == (401, [])


def test_unknown_disabled_and_deleted_webhooks_are_answered_alike(service: Service, management: Management):
    may = operator(management)
    disabled = management.webhooks.create(may, "disabled")
    deleted = management.webhooks.create(may, "deleted")
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
            with Wire(service.port) as wire:
                wire.send(
                    b"POST /webhooks/w/" + uid + b" HTTP/1.1\r\nHost: hooks.test\r\nAuthorization: " + bearer + b"\r\n"
                    b"Content-Length: 2\r\n\r\n{}"
                )
                answer = wire.answer()
                assert answer is not None
                answers.add(
                    (
                        answer.status,
                        answer.body,
                        *sorted(set(answer.headers.items()) - {("date", answer.headers["date"])}),
                    )
                )

    assert len(answers) == 1
    assert answers.pop()[0] == 404


def test_a_sender_that_vanishes_after_its_delivery_may_repeat_it(
    service: Service, management: Management, target: Target
):
    with Wire(service.port) as wire:
        wire.send(honest(target, b"vanished"))
        wire.reset()

    with Wire(service.port) as wire:
        wire.send(honest(target, b"vanished"))
        answer = wire.answer()

    assert answer is not None
    assert answer.status == 202
    rows = [row for row in management.log.newest(operator(management), limit=20) if row.identity == "vanished"]
    [accepted] = [row for row in rows if row.label.wording == "Accepted"]
    assert {row.label.wording for row in rows if row is not accepted} <= {"Duplicate"}


def test_an_oversized_delivery_is_refused_before_its_body_comes(service: Service, target: Target):
    with Wire(service.port) as wire:
        wire.send(
            b"POST " + target.path + b" HTTP/1.1\r\nHost: hooks.test\r\nAuthorization: Bearer " + target.token + b"\r\n"
            b"Content-Length: 8000000\r\n\r\n"
        )
        # It is waited for less long than a body is.
        answer = wire.answer()

    assert answer is not None
    assert answer.status == 413


# What an attack is


def storm(service: Service, management: Management, target: Target) -> None:
    """All of them, many at the same time; then the service must be quick, its log silent, and nothing taken unasked."""
    cases = hostile_requests(target)
    with ThreadPoolExecutor(16) as attackers:
        taken = set().union(*attackers.map(lambda case: attack(service.port, target, case), cases))

    assert seconds_to_an_honest_202(service, target) < 3.0
    logged = events_in_the_log(management, target, newest=100_000)
    uncertain = {event_of(case) for case in cases if may_vanish(case, event_of(case))}
    sent = {event for case in cases for event in (event_of(case), event_behind(case))}
    assert (logged & sent) - uncertain == taken - uncertain
    assert [event for event in logged if event.startswith("never")] == []
    log = service.log()
    assert "Traceback" not in log
    assert [secret for secret in (target.token, target.url_token, CANARY) if secret.decode() in log] == []


def attack(port: int, target: Target, case: Hostile) -> set[str]:
    """Send the request and an honest delivery behind it, and judge the answers. Returns the events that were taken."""
    event, behind = event_of(case), event_behind(case)
    sends = case.sends.replace(IDENTITY_PLACE, event.encode())
    taken: set[str] = set()
    with Wire(port, seconds=CASE_SECONDS) as wire:
        wire.send(sends if case.alone else sends + honest(target, behind.encode()))
        if case.half_closes:
            wire.half_close()
        for allowed in case.answers:
            answer = wire.answer(to_head=case.is_head)
            assert (answer.status if answer else CLOSED) in allowed, f"{case.name}: {answer}"
            if answer is None:
                return taken
            judge(answer, sends)
            if answer.status == 202 and IDENTITY_PLACE in case.sends:
                taken.add(event)
        if case.then is Then.CLOSED:
            assert wire.ends(), f"{case.name}: the connection goes on"
        elif not case.alone:
            answer = wire.answer()
            fair = {202} if case.then is Then.SERVED else {CLOSED, 202}
            assert (answer.status if answer else CLOSED) in fair, f"behind {case.name}: {answer}"
            if answer:
                taken.add(behind)
    return taken


def judge(answer: WireAnswer, sent: bytes) -> None:
    """What holds for every answer, whatever was asked."""
    assert answer.status < 500
    # The dashboard answers what comes to its addresses in its own way: pages, for people.
    by_dashboard = "content-security-policy" in answer.headers
    if answer.body and not by_dashboard:
        assert answer.headers["content-type"] == expected_type(answer)
    if answer.status == 405:
        assert answer.headers["allow"] == ("GET, HEAD" if by_dashboard else "POST")
    if answer.status >= 400 and answer.body and not by_dashboard:
        # The API says more to those who manage; a sender is told these four and no reason.
        more = {"detail", "errors"} if answer.headers.get("x-content-type-options") == "nosniff" else set()
        assert set(json.loads(answer.body)) - more == {"type", "title", "status", "code"}
    headers = [value for name, value in answer.headers.items() if name != "content-type"]
    shown = answer.body + "\n".join(headers).encode("latin-1")
    echo = next((part for part in windows(shown, ECHO_BYTES) if part in sent), None)
    assert echo is None, f"the answer repeats {echo!r}"


def expected_type(answer: WireAnswer) -> str:
    return {200: "text/plain", 202: "application/json"}.get(answer.status, "application/problem+json")


def windows(text: bytes, size: int) -> list[bytes]:
    return [text[at : at + size] for at in range(len(text) - size + 1)]


def event_of(case: Hostile) -> str:
    return f"of-{hashlib.sha256(case.name.encode()).hexdigest()[:20]}"


def event_behind(case: Hostile) -> str:
    return f"behind-{hashlib.sha256(case.name.encode()).hexdigest()[:20]}"


def may_vanish(case: Hostile, event: str) -> bool:
    """Whoever leaves before the answer can't know: no answer is no promise, neither of the one nor of the other."""
    return event == event_of(case) and case.answers[0] >= {CLOSED, 202}


def events_in_the_log(management: Management, target: Target, *, newest: int) -> set[str]:
    may = operator(management)
    rows = [
        row
        for uid in (target.uid, target.url_uid)
        for row in management.log.newest(may, webhook=uid.decode(), limit=newest)
    ]
    return {row.identity for row in rows if row.identity is not None}


def seconds_to_an_honest_202(service: Service, target: Target) -> float:
    """Without those for which the whole machine stood still."""
    started = time.monotonic()
    with stalls() as stood_still, Wire(service.port, seconds=30) as wire:
        wire.send(honest(target, b"%d" % time.time_ns()))
        answer = wire.answer()
        seconds = time.monotonic() - started
    assert answer is not None
    assert answer.status == 202
    return seconds - sum(stood_still)


def everything_stored(url: str) -> bytes:
    with psycopg.connect(url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        return b"".join(everything_in(connection, table) for (table,) in tables)


def everything_in(connection: "psycopg.Connection[TupleRow]", table: str) -> bytes:
    statement = SQL("COPY {} TO STDOUT WITH (FORMAT binary)").format(Identifier(table))
    with connection.cursor().copy(statement) as copied:
        return b"".join(copied)
