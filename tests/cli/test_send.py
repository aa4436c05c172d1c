"""`hookmill send`, against a receiver that writes down what it gets."""

import json
from typing import Any

import pytest

from tests.cli.conftest import Hookmill, LogWriter, Receiver
from tests.support.ports import free_port


def test_a_sample_bears_the_webhooks_token(webhook: Any, hookmill: Hookmill, receiver: Receiver):
    printed = hookmill("send", "source", "--url", receiver.url)

    ((path, headers, _),) = receiver.requests
    assert path == f"/webhooks/w/{webhook['uid']}"
    assert headers["authorization"] == f"Bearer {webhook['secret']}"
    assert printed.out.splitlines()[1:] == ["202 dlv_1"]


def test_a_sample_for_a_url_token_webhook_goes_to_the_complete_url(
    log: LogWriter, hookmill: Hookmill, receiver: Receiver
):
    made = hookmill("webhook", "create", "a", "--mode", "url_token", "--json").json

    hookmill("send", "a", "--url", receiver.url + "/behind/a/proxy/")

    ((path, headers, _),) = receiver.requests
    assert path == f"/behind/a/proxy/webhooks/w/{made['uid']}/{made['secret']}"
    assert "authorization" not in headers


def test_the_first_line_says_where_deliveries_go_without_the_token(
    log: LogWriter, hookmill: Hookmill, receiver: Receiver
):
    made = hookmill("webhook", "create", "a", "--mode", "url_token", "--json").json

    printed = hookmill("send", "a", "--url", receiver.url + "/")

    assert printed.out.splitlines()[0] == f"To {receiver.url}/webhooks/w/{made['uid']}/{{token}} (webhook a):"


def test_the_secret_is_not_printed(webhook: Any, hookmill: Hookmill, receiver: Receiver):
    printed = hookmill("send", "source", "--url", receiver.url, "--json")

    assert webhook["secret"] not in printed.out + printed.err


def test_a_body_of_ones_own_is_sent_byte_for_byte(webhook: Any, hookmill: Hookmill, receiver: Receiver):
    hookmill("send", "source", "--url", receiver.url, "--body", "-", stdin=b"{not \xff json\r\n")
    hookmill("send", "source", "--url", receiver.url, "--data", '{"ü": 1}')

    assert [body for _, _, body in receiver.requests] == [b"{not \xff json\r\n", '{"ü": 1}'.encode()]


def test_samples_differ_so_that_none_is_a_duplicate(webhook: Any, hookmill: Hookmill, receiver: Receiver):
    printed = hookmill("send", "source", "--url", receiver.url, "--times", "5")

    assert len({body for _, _, body in receiver.requests}) == 5
    assert printed.out.splitlines()[1:] == ["202 dlv_1"] * 5


def test_an_event_id_goes_into_the_header_that_the_webhook_names(
    log: LogWriter, hookmill: Hookmill, receiver: Receiver
):
    hookmill("webhook", "create", "plain")
    hookmill("webhook", "create", "own", "--delivery-id-header", "X-Event")

    hookmill("send", "plain", "--url", receiver.url, "--id", "evt_1")
    hookmill("send", "own", "--url", receiver.url, "--id", "evt_2")

    (_, plain, _), (_, own, _) = receiver.requests
    assert plain["x-service-delivery-id"] == "evt_1"
    assert own["x-event"] == "evt_2"


def test_an_event_type_goes_where_the_webhooks_deliveries_have_it(
    hookmill: Hookmill, log: LogWriter, receiver: Receiver
):
    signed = ("--mode", "signature", "--secret-from-stdin", "--scheme")
    hookmill("webhook", "create", "own", "--event-header", "X-Kind")
    hookmill("webhook", "create", "hub", *signed, "github", stdin=b"given-secret")
    hookmill("webhook", "create", "payments", *signed, "stripe", stdin=b"given-secret")
    hookmill("webhook", "create", "none")

    for name in ("own", "hub", "payments"):
        hookmill("send", name, "--url", receiver.url, "--event", "paid")

    (_, own, _), (_, hub, _), (_, _, payment) = receiver.requests
    assert (own["x-kind"], hub["x-github-event"], json.loads(payment)["type"]) == ("paid", "paid", "paid")
    refused = hookmill("send", "none", "--url", receiver.url, "--event", "paid", exit_code=1).err
    assert "Deliveries of webhook 'none' have no event type" in refused


def test_the_answer_as_json(webhook: Any, hookmill: Hookmill, receiver: Receiver):
    one = hookmill("send", "source", "--url", receiver.url, "--json").json
    two = hookmill("send", "source", "--url", receiver.url, "--json", "--times", "2").json

    answer = {"status": 202, "delivery_id": "dlv_1", "title": None, "retry_after": None}
    url = f"{receiver.url}/webhooks/w/{webhook['uid']}"
    assert one == answer | {"url": url}
    assert two == {"sent": [answer, answer], "url": url}


def test_a_refusal_is_printed_with_its_reason_and_fails(webhook: Any, hookmill: Hookmill, receiver: Receiver):
    receiver.status, receiver.headers = 429, {"Retry-After": "7"}
    receiver.answer = b'{"title": "Too many deliveries for now."}'

    printed = hookmill("send", "source", "--url", receiver.url, exit_code=1)

    assert printed.out.splitlines()[1:] == ["429 Too many deliveries for now., retry in 7 s"]


def test_an_answer_cannot_take_over_the_terminal(webhook: Any, hookmill: Hookmill, receiver: Receiver):
    receiver.answer = b'{"delivery_id": "\\u001b[31m[red]"}'

    assert hookmill("send", "source", "--url", receiver.url).out.endswith("\n202 \\u001b[31m[red]\n")


@pytest.mark.parametrize("answer", [b"", b"<html>", b"[]", b"\xff", b'{"delivery_id": 1}'])
def test_an_answer_of_another_service_is_shown_by_its_status(
    webhook: Any, hookmill: Hookmill, receiver: Receiver, answer: bytes
):
    receiver.status, receiver.answer = 502, answer

    assert hookmill("send", "source", "--url", receiver.url, exit_code=1).out.endswith("\n502 Bad Gateway\n")


def test_a_body_that_is_refused_unread_still_gets_its_answer(webhook: Any, hookmill: Hookmill, receiver: Receiver):
    receiver.status, receiver.reads_body, receiver.answer = 413, False, b'{"title": "Too large."}'
    more_than_fits_between_two_sockets = b"1" * 16_000_000

    printed = hookmill(
        "send", "source", "--url", receiver.url, "--body", "-", stdin=more_than_fits_between_two_sockets, exit_code=1
    )

    assert printed.out.endswith("\n413 Too large.\n")


def test_where_nothing_listens_the_error_says_so(webhook: Any, hookmill: Hookmill):
    url = f"http://127.0.0.1:{free_port()}"

    printed = hookmill("send", "source", "--url", url, exit_code=1)

    assert printed.err == f"Nothing listens at {url}. Start the service: hookmill serve\n"


@pytest.mark.parametrize("url", ["localhost:8420", "ftp://x", "http://", "http://[", "http://x:99999", "http://x/a b"])
def test_an_address_that_cannot_be_one_is_refused(webhook: Any, hookmill: Hookmill, url: str):
    assert f"{url} is not the URL of a service" in hookmill("send", "source", "--url", url, exit_code=1).err


def test_a_secret_that_no_header_can_carry_is_not_repeated(log: LogWriter, hookmill: Hookmill, receiver: Receiver):
    hookmill("webhook", "create", "a", "--secret-from-stdin", stdin=b"two\nlines")

    printed = hookmill("send", "a", "--url", receiver.url, exit_code=1)

    assert printed.err == "The secret, the event id or the event type has a character that a request can't contain.\n"


def test_a_deleted_webhook_is_not_sent_to(webhook: Any, hookmill: Hookmill):
    hookmill("webhook", "delete", "source", "--yes")

    assert "is permanently deleted" in hookmill("send", webhook["uid"], exit_code=1).err
