"""A typical repository: twelve webhooks of all modes and several providers, and an automation for each of them."""

from collections.abc import Mapping

SCHEMES = {
    "github": "github",
    "stripe": "stripe",
    "pagerduty": "pagerduty",
    "sentry": "sentry",
    "linear": "linear",
    "svix": "svix",
    "vercel": "vercel",
}

WEBHOOKS: Mapping[str, str] = {
    **{
        f"webhooks/{name}.yaml": f"authMode: signature\nsignatureScheme: {scheme}\nsecretName: {name.upper()}_SECRET\n"
        for name, scheme in SCHEMES.items()
    },
    "webhooks/homegrown.yaml": """\
# Our own build server.
authMode: signature
signatureScheme: hmac
signatureOptions:
  header: X-Build-Signature
  prefix: "sha256="
  content: "{ts}.{body}"
  timestamp_header: X-Build-Time
  tolerance_seconds: 600
secretName: HOMEGROWN_SECRET
deliveryIdHeader: X-Build-Id
""",
    "webhooks/cron.yaml": "secretName: CRON_SECRET\n",
    "webhooks/deploys.yaml": "authMode: token\nsecretName: DEPLOYS_SECRET\ndeliveryIdHeader: X-Deploy-Id\n",
    "webhooks/forms.yaml": "authMode: url_token\nsecretName: FORMS_SECRET\n",
    "webhooks/old-forms.yaml": "authMode: url_token\nsecretName: FORMS_SECRET\nenabled: false\n",
}
SECRETS: Mapping[str, str] = {
    **{f"{name.upper()}_SECRET": f"{name}-secret-of-32-characters-{'x' * 8}" for name in SCHEMES},
    "SVIX_SECRET": "whsec_" + "a" * 43 + "=",
    "HOMEGROWN_SECRET": "kept-between-us",
    "CRON_SECRET": "cron-token",
    "DEPLOYS_SECRET": "deploy-token",
    "FORMS_SECRET": "form_token-1.2~3",
}


def automations(uids: Mapping[str, str]) -> dict[str, str]:
    """The files of automations, one for each webhook. `uids` are those of the webhooks, by name."""
    return {
        f"automations/on-{name}/automation.md": f"""\
---
runner: package
triggers:
  - provider: webhook
    event: received
    filter:
      webhook_ids: [{uid}]
      payload:
        action: [opened, reopened]
        sender: {{type: {{not_in: [Bot]}}}}
---

# An event from {name}

Read `event-payload.json`, and summarize what happened.

---

Keep it short.
"""
        for name, uid in uids.items()
    }
