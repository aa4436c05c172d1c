"""A secret is in the one answer that is there to show it, and in no other: not in lists, errors, repeats of others."""

import json
from typing import Any

import pytest

from hookmill.domain.permission import Role
from hookmill.web.api import application, operations
from tests.api.client import Api, Stocked
from tests.support.service import Answer

WEBHOOKS = "/factories/default/webhooks"
CANARY = "canary.of-the~provider_0123456789"


class Overheard:
    """An API whose every answer is kept."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.answers: list[tuple[str, Answer]] = []

    def ask(self, method: str, path: str, body: Any = None, **choices: Any) -> Answer:
        answer = self.api.ask(method, path, body, key=choices.pop("key", self.api.admin), **choices)
        self.answers.append((f"{method} {path}", answer))
        return answer

    def saying(self, secret: str) -> list[str]:
        """What was asked where the answer has the secret in it."""
        return [
            asked
            for asked, answer in self.answers
            if secret in answer.body.decode("utf-8", "replace") + json.dumps(dict(answer.headers))
        ]


def look_at_everything(overheard: Overheard, stocked: Stocked) -> None:
    for each in operations(application()):
        if each.method == "GET":
            overheard.ask("GET", each.path.removeprefix("/api/v1").format(**stocked.places))
    for noun in ("webhooks?deleted=true", "deliveries?label=rejected_auth", "audit-log?limit=200"):
        overheard.ask("GET", f"/factories/default/{noun}")


def test_what_is_generated_is_said_once(api: Api, stocked: Stocked):
    overheard = Overheard(api)
    by_url = overheard.ask("POST", WEBHOOKS, {"name": "by URL too", "auth_mode": "url_token"}).json
    told = {
        "POST " + WEBHOOKS: by_url["secret"],
        f"POST {WEBHOOKS}/{stocked.webhook.webhook.uid}/rotate": overheard.ask(
            "POST", f"{WEBHOOKS}/{stocked.webhook.webhook.uid}/rotate"
        ).json["secret"],
        "POST /factories/default/secrets": overheard.ask(
            "POST", "/factories/default/secrets", {"name": "MADE_HERE"}
        ).json["value"],
        f"PUT /factories/default/secrets/{stocked.secret_name}": overheard.ask(
            "PUT", f"/factories/default/secrets/{stocked.secret_name}"
        ).json["value"],
        "POST /keys": overheard.ask("POST", "/keys", {"name": "new", "role": "admin"}).json["token"],
    }
    for secret in told.values():
        # A stranger who has it wrong by a mode, and the log that keeps the attempt.
        api.world.post(stocked.webhook, b"{}", token=f"{secret}x")
    overheard.ask("PATCH", f"{WEBHOOKS}/{by_url['uid']}", {"name": "renamed"})
    overheard.ask("POST", f"{WEBHOOKS}/{by_url['uid']}/sync")
    look_at_everything(overheard, stocked)

    assert len(overheard.answers) > 30
    assert {secret: overheard.saying(secret) for secret in told.values()} == {
        secret: [asked] for asked, secret in told.items()
    }
    assert by_url["url"].endswith(f"/{by_url['secret']}")


def test_what_was_there_before_is_never_said(api: Api, stocked: Stocked):
    overheard = Overheard(api)
    overheard.ask("POST", WEBHOOKS, {"name": "with the spare", "secret_name": stocked.secret_name})
    overheard.ask("POST", WEBHOOKS, {"name": "by URL", "auth_mode": "url_token", "secret_name": stocked.secret_name})
    look_at_everything(overheard, stocked)

    assert [answer.status for _, answer in overheard.answers[:2]] == [201, 201]
    for secret in (stocked.webhook.reveal(), stocked.by_url.reveal(), stocked.secret.reveal(), api.manager, api.viewer):
        assert overheard.saying(secret) == []


def test_what_somebody_gives_is_not_said_back(api: Api, stocked: Stocked):
    overheard = Overheard(api)
    uid = stocked.webhook.webhook.uid
    given = [
        ("POST", WEBHOOKS, {"name": "given", "secret": CANARY}),
        ("POST", WEBHOOKS, {"name": "given by URL", "auth_mode": "url_token", "secret": CANARY}),
        ("POST", f"{WEBHOOKS}/{uid}/rotate", {"secret": CANARY}),
        ("POST", "/factories/default/secrets", {"name": "GIVEN", "value": CANARY}),
        ("PUT", f"/factories/default/secrets/{stocked.secret_name}", {"value": CANARY}),
    ]
    for number, (method, path, body) in enumerate(given):
        headers = {"Idempotency-Key": f"given {number}"} if method == "POST" else {}
        assert overheard.ask(method, path, body, headers=headers).status in (200, 201)
        overheard.ask(method, path, body, headers=headers)
    look_at_everything(overheard, stocked)

    assert overheard.saying(CANARY) == []


@pytest.mark.parametrize(
    "body",
    [
        {"name": "x", "secret": [CANARY]},
        {"name": "x", "secret": {"value": CANARY}},
        {"name": "x", "secret": CANARY, "auth_mode": CANARY},
        {"name": "x", "secret": CANARY + "\x00"},
        {"name": "x", "secret": CANARY * 200},
        {"name": "x", "secret": f"{CANARY} with a space", "auth_mode": "url_token"},
        {"name": "x", "auth_mode": "signature", "signature_scheme": "standard_webhooks", "secret": f"whsec_{CANARY}"},
        {"name": "x", "secret_name": "lower", "secret": CANARY, "unknown": CANARY},
        {"name": "x", "delivery_id_header": f"{CANARY} {CANARY}"},
        {"name": "x", "signature_options": {"secret": CANARY}},
        {"name": "x", "enabled": CANARY},
        [CANARY],
        CANARY,
    ],
    ids=repr,
)
def test_a_refusal_does_not_repeat_what_was_given(api: Api, body):
    overheard = Overheard(api)

    answer = overheard.ask("POST", WEBHOOKS, body)

    assert 400 <= answer.status < 500
    assert overheard.saying(CANARY) == []


def test_a_refusal_does_not_repeat_a_body_that_is_no_json(api: Api):
    answer = api.post(WEBHOOKS, raw=f'{{"secret": "{CANARY}", '.encode())

    assert answer.status == 400
    assert CANARY.encode() not in answer.body


@pytest.mark.parametrize("where", ["header", "query", "path"])
def test_a_refusal_does_not_repeat_a_key_that_is_in_the_wrong_place(api: Api, where):
    token = api.key("misplaced", Role.ADMIN)
    answer = {
        "header": lambda: api.get("/me", key="", headers={"Authorization": f"Basic {token}"}),
        "query": lambda: api.get(f"/factories/default/deliveries?cursor={token}"),
        "path": lambda: api.get(f"/factories/default/webhooks/{token}"),
    }[where]()

    assert answer.status in (401, 404, 422)
    assert token.encode() not in answer.body
