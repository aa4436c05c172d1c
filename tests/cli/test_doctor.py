"""`hookmill doctor` on the command line: its options."""


def test_factory_without_a_url_is_refused(hookmill):
    refused = hookmill("doctor", "--factory", "shop", exit_code=2)

    assert "--factory needs --through" in " ".join(refused.err.split())
