"""Render a plan as text, line by line. A line begins with + for create, ~ for change and - for remove."""

import json
from collections.abc import Iterator
from difflib import unified_diff
from typing import Any, Final

from hookmill.definitions import planning
from hookmill.definitions.planning import Plan, PlannedAction, PlannedChange, Step
from hookmill.definitions.writing import lines_of
from hookmill.domain.definition_run import DefinitionKind

_SIGNS: Final = {PlannedAction.CREATE: "+", PlannedAction.CHANGE: "~", PlannedAction.REMOVE: "-"}
_DIFF_LINES_MAX: Final = 2_000
"""The maximum number of lines, of the old and the new text together, for a diff. Longer diffs take long."""


def lines_of_plan(plan: Plan) -> Iterator[str]:
    """One line per step, with a diff of a changed prompt or changed triggers.

    If files take over the factory, the first line says so.
    """
    if plan.files_take_over:
        yield f"~ factory {plan.factory_name}: defined by files from now on"
    for step in plan.steps:
        yield f"{_SIGNS[step.action]} {step.kind.value} {step.name}{_step_details(step)}"
        if step.action is PlannedAction.CHANGE:
            for change in step.changes:
                if change.key in _KEYS_WITH_DIFF:
                    yield from _diff_lines(change)


def summary_of(plan: Plan) -> str:
    """The number of steps by action, in one line."""
    if not plan.has_changes:
        return f"Nothing to do: all webhooks and automations match the files ({plan.unchanged_count})."
    counts = [
        sum(step.action is action for step in plan.steps)
        for action in (PlannedAction.CREATE, PlannedAction.CHANGE, PlannedAction.REMOVE)
    ]
    summary = "{} to create, {} to change, {} to remove, {} unchanged".format(*counts, plan.unchanged_count)
    return f"{summary}; afterwards only files can change the definitions." if plan.files_take_over else f"{summary}."


_KEYS_WITH_DIFF: Final = {"prompt", "triggers"}


def _step_details(step: Step) -> str:
    match step.kind, step.action:
        case DefinitionKind.WEBHOOK, PlannedAction.REMOVE:
            return f" ({step.id}): its URL stops working permanently"
        case DefinitionKind.AUTOMATION, PlannedAction.REMOVE:
            return ""
        case DefinitionKind.WEBHOOK, PlannedAction.CREATE:
            return ": " + ", ".join(_new_webhook_details({change.key: change.after for change in step.changes}))
        case DefinitionKind.AUTOMATION, PlannedAction.CREATE:
            return ": " + ", ".join(_new_automation_details({change.key: change.after for change in step.changes}))
        case _:
            return ": " + ", ".join(map(_change_text, step.changes))


def _new_webhook_details(settings: dict[str, Any]) -> Iterator[str]:
    yield from (f"{key} {_value(value)}" for key, value in settings.items() if key != "enabled")
    if not settings["enabled"]:
        yield "disabled"


def _new_automation_details(settings: dict[str, Any]) -> Iterator[str]:
    yield f"runner {settings['runner']}"
    trigger_count = len(settings["triggers"])
    yield f"{trigger_count} trigger{'s' if trigger_count > 1 else ''}"
    if not settings["enabled"]:
        yield "disabled"


def _change_text(change: PlannedChange) -> str:
    sender_note = " (senders must adapt)" if change.concerns_senders else ""
    match change.key:
        case "prompt" | "triggers":
            return change.key
        case planning.SYNC_CHANGE:
            return f"sync secret{sender_note}"
        case "enabled":
            return "enable" if change.after else "disable (senders get 404)" if change.concerns_senders else "disable"
        case _:
            return f"{change.key} {_value(change.before)} → {_value(change.after)}{sender_note}"


def _value(value: Any) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _diff_lines(change: PlannedChange) -> Iterator[str]:
    before, after = _text_lines(change.key, change.before), _text_lines(change.key, change.after)
    if len(before) + len(after) > _DIFF_LINES_MAX:
        yield f"    {change.key}: {len(before):,} lines → {len(after):,} lines"
        return
    yield f"    {change.key}:"
    for line in list(unified_diff(before, after, n=2, lineterm=""))[2:]:
        yield f"    {line}".rstrip() if line.startswith("@@") else f"    {line[0]} {line[1:]}".rstrip()


def _text_lines(key: str, value: Any) -> list[str]:
    if key == "prompt":
        return str(value).replace("\r\n", "\n").strip("\n").split("\n")
    return list(lines_of({"triggers": value}))
