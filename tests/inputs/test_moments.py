"""Moments at and beyond the ends of the calendar: refused where they are given, shown where they are stored."""

from datetime import UTC, datetime, timedelta

import pytest
from starlette.responses import Response

from hookmill.domain.errors import Invalid
from hookmill.domain.permission import Role
from hookmill.web.api.idempotency import IdempotentRequest
from tests.inputs.service import Service

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OUTSIDE = [
    "9999-12-31T23:59:59-23:59",
    "9999-12-31T23:59:59.999999999999-00:01",
    "0001-01-01T00:00:00+00:01",
    "0001-01-01T00:00:00+23:59",
]
STORED = [
    (datetime.max.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1) + 1,
    253_402_387_139_000_000,
    2**63 - 1,
    -(2**63),
]
"""Beyond the last year, as one request stored it; and what a column of integers can hold."""


@pytest.mark.parametrize("expires_at", OUTSIDE)
def test_key_with_an_end_outside_the_calendar_is_refused(service: Service, expires_at: str):
    given = {"name": "x", "role": "viewer", "factory": "default", "expires_at": expires_at}

    refused = service.api.post("/keys", given, key=service.api.admin)

    assert (refused.status, refused.json["errors"][0]["pointer"]) == (422, "/expires_at")
    assert [key.name for key in service.management.keys.all(service.api.team)].count("x") == 0
    assert service.api.get("/keys", key=service.api.admin).status == 200


def test_key_whose_answer_cannot_be_made_is_not_kept(service: Service):
    def make() -> Response:
        service.management.keys.create(service.api.team, "x", Role.ADMIN)
        raise OverflowError("the answer")

    with pytest.raises(OverflowError):
        IdempotentRequest(service.management, None, b"", b"").respond(service.api.team, make)

    assert "x" not in [key.name for key in service.management.keys.all(service.api.team)]


@pytest.mark.parametrize("expires_at", STORED[:3])
def test_management_refuses_a_key_with_such_an_end(service: Service, expires_at: int):
    with pytest.raises(Invalid, match="expire") as refused:
        service.management.keys.create(service.api.team, "x", Role.ADMIN, expires_at=expires_at)

    assert refused.value.faults[0].pointer == "/expires_at"


@pytest.mark.parametrize("moment", OUTSIDE)
def test_list_narrowed_to_a_time_outside_the_calendar_says_so(service: Service, moment: str):
    for name in ("since", "until"):
        by_api = service.api.get(f"/factories/default/deliveries?{name}={moment.replace('+', '%2B')}")
        by_page = service.admin.get(f"/f/default/deliveries?{name}={moment.replace('+', '%2B')}")

        assert (by_api.status, by_api.json["errors"][0]["parameter"]) == (422, name)
        assert by_page.status == 422
        assert "Invalid time" in by_page.body.decode()


@pytest.mark.parametrize("at", STORED)
def test_stored_moment_outside_the_calendar_closes_no_page(service: Service, at: int):
    key = service.places["key"]
    with service.world.database.write() as tx:
        tx.run(
            "UPDATE api_keys SET expires_at = :at, created_at = :at, last_used_at = :at WHERE id = :id", at=at, id=key
        )
        tx.run("UPDATE audit_log SET details = :details, at = :at", details=f'{{"expires_at": {at}}}', at=at)
        tx.run("UPDATE members SET created_at = :at", at=at)
        tx.run("UPDATE webhooks SET created_at = :at", at=at)
        tx.run("UPDATE automations SET created_at = :at, updated_at = :at", at=at)
        tx.run("UPDATE deliveries SET received_at = :at", at=at)
        tx.run("UPDATE runs SET created_at = :at, started_at = :at, finished_at = :at", at=at)
        tx.run("UPDATE secrets SET created_at = :at", at=at)

    service.must_open()
    (shown,) = [each for each in service.api.get("/keys", key=service.api.admin).json["items"] if each["key_id"] == key]
    year = "9999-12-31T23:59:59.999999Z" if at > 0 else "0001-01-01T00:00:00.000000Z"
    assert (shown["expires_at"], shown["created_at"]) == (year, year)
