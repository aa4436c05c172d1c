"""Everything that reads a payload works with the deepest, longest and oddest payloads that the ingress accepts."""

import json
from typing import Any, Final

from hookmill.domain.ids import DeliveryKey
from hookmill.domain.run import RunState
from hookmill.runs.package import write_package
from hookmill.store import deliveries
from tests.inputs.extreme_payloads import EXTREME_VALUES, payload_with
from tests.inputs.service import InProcessService

FILTER: Final = {
    "k": {
        "$any": [
            {"$gt": 5},
            {"$lte": 5},
            {"$not": {"$prefix": "x"}},
            {"in": [1, "a", None]},
            {"k": {"exists": True}},
        ]
    },
    "missing": {"exists": False},
}
POLICY: Final[dict[str, Any]] = {
    "concurrency": {"key": ["/k", "/k/0", "/k/k"]},
    "debounce": {"seconds": 1},
}
REFUSED_IN_BODIES: Final = {
    "arrays and objects, 510 levels around half a surrogate pair",
    "halves of surrogate pairs",
    "a NUL and control characters",
    "keys with a NUL and half a surrogate pair",
    "equal keys",
}
"""The API refuses these in all bodies."""
OPTIONS: Final[dict[str, Any]] = {
    "fields": {"k": "/k", "first": "/k/0", "inner": "/k/k", "action": "/action"},
    "workspace": {"repository": "app", "ref": {"pointer": "/k"}},
    "results": [{"kind": "github_comment", "destination": "github", "number": "/k", "repository": "/k"}],
}


def test_extreme_payloads_start_their_runs_and_are_shown_everywhere(service, subtests):
    webhook = service.world.webhook("extreme")
    service.world.automation("extreme", webhook, payload=FILTER, policy=POLICY, options=OPTIONS)
    for name, value in EXTREME_VALUES.items():
        with subtests.test(name):
            body = payload_with(value)

            answer = service.world.post(webhook, body)

            assert answer.status == 202, answer.body
            [run] = service.management.runs.of_delivery(service.world.may, answer.delivery_id)
            assert (run.state, run.reason) == (RunState.QUEUED, None)
            assert service.world.packages is not None
            package = write_package(service.world.packages, run, body)
            json.loads(package.envelope_file.read_bytes())
            require_all_answers(service, answer.delivery_id, f"run_{run.id.hex()}", body)


def require_all_answers(service: InProcessService, delivery: str, run: str, body: bytes):
    """Require that the API and the pages answer every question about the delivery."""
    in_factory = "/factories/default"
    tested = {"delivery_id": delivery, "filter": FILTER}
    assert service.api.get(f"{in_factory}/deliveries/{delivery}/payload").body == body
    assert service.api.post(f"{in_factory}/filter-tests", tested).status == 200
    assert service.api.post(f"{in_factory}/backtests", {"filter": FILTER, **POLICY}).status == 200
    assert service.api.post(f"{in_factory}/deliveries/{delivery}/replay").status == 201
    # The editor shows the fields of a delivery, tests the draft on it, and adds a field that is clicked.
    for number in ("0", "1"):
        draft = {"delivery": delivery, "filter": json.dumps(FILTER), "add": number, "action": "preview"}
        assert service.admin.post("/f/default/automations/new", draft).status == 200
    assert service.admin.get(f"/f/default/automations/new?delivery={delivery}").status == 200
    service.path_values |= {"delivery": delivery, "run": run}
    service.require_success_everywhere("{delivery}", "{run}")


def test_extreme_payloads_can_be_given_to_a_run_by_hand(service, subtests):
    automation = service.world.automation("by hand", service.world.webhook("extreme"), policy=POLICY, options=OPTIONS)
    for name, value in EXTREME_VALUES.items():
        if name in REFUSED_IN_BODIES:
            continue
        with subtests.test(name):
            path = f"/factories/default/automations/{automation.id}/runs"
            body = payload_with(value)

            answer = service.api.post(path, raw=b'{"payload": ' + body + b"}")

            assert answer.status == 201, answer.body
            run = service.management.runs.get(service.world.may, answer.json["run_id"])
            assert run.state is RunState.QUEUED
            with service.world.database.read() as tx:
                assert deliveries.payload(tx, DeliveryKey(run.id)) == body
