"""Creates and changes automations through management."""

from typing import Any

from hookmill.domain.automation import Automation, AutomationSpec
from hookmill.domain.permission import MayManage
from hookmill.domain.spec import read
from hookmill.management import Management


def automation_created(management: Management, may: MayManage, name: str, **fields: Any) -> Automation:
    """A new automation with these fields of its JSON. `policy` and `options` have more of them."""
    return management.automations.create(may, read(AutomationSpec, {"name": name, "prompt": "Look."} | _flat(fields)))


def automation_changed(management: Management, may: MayManage, id_or_name: str, **fields: Any) -> Automation:
    return management.automations.change(may, id_or_name, _flat(fields))


def _flat(fields: dict[str, Any]) -> dict[str, Any]:
    return {**(fields.pop("policy", None) or {}), **(fields.pop("options", None) or {}), **fields}
