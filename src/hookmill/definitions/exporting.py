"""Export a factory as definition files. Applying them changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookmill.definitions.applying import changes_nothing, state_of
from hookmill.definitions.folder import (
    AUTOMATION_BYTES_MAX,
    AUTOMATION_FILE,
    AUTOMATIONS,
    NAME,
    WEBHOOK_BYTES_MAX,
    WEBHOOK_SUFFIX,
    WEBHOOKS,
    Files,
    slug,
)
from hookmill.definitions.planning import State, plan_of, webhook_settings
from hookmill.definitions.problem import START, Problem, UnusableDefinitions
from hookmill.definitions.reading import prompt_of, read
from hookmill.definitions.writing import lines_of
from hookmill.domain.automation import Automation
from hookmill.domain.errors import Conflict
from hookmill.domain.permission import MayManage
from hookmill.domain.webhook import Webhook, WebhookState

if TYPE_CHECKING:
    # Only for types: importing it takes longer than checking a folder.
    from hookmill.management import Management

SCHEMA_PATH = "/api/v1/schemas/webhook.schema.json"


def export(management: Management, may: MayManage) -> dict[str, str]:
    """The texts of the definition files by their paths. Raises `UnusableDefinitions` if files can't express it."""
    state = state_of(management, may)
    files = files_of(state, schema_url=management.config.public_url + SCHEMA_PATH)
    _refuse_unfaithful(files, state)
    return files


def files_of(state: State, *, schema_url: str) -> dict[str, str]:
    """The definition files of this state. Pure."""
    names_by_uid: dict[str, str] = {item.uid: item.name for item in state.webhooks}
    live = state.live()
    files = {}
    for stem, name in _names_by_stem(live).items():
        files[f"{WEBHOOKS}/{stem}{WEBHOOK_SUFFIX}"] = _webhook_file(live[name], stem, schema_url)
    automations = {item.name: item for item in state.automations}
    for stem, name in _names_by_stem(automations).items():
        path = f"{AUTOMATIONS}/{stem}/{AUTOMATION_FILE}"
        files[path] = _automation_file(automations[name], stem, names_by_uid, state.default_runner)
    return files


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write the files into a folder without definitions. Otherwise raises `Conflict`, and writes nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in (WEBHOOKS, AUTOMATIONS):
        if (folder / part).exists() or (folder / part).is_symlink():
            raise Conflict(f"{folder / part} already exists. Nothing was written. Export into another folder.")
    for part in (WEBHOOKS, AUTOMATIONS):
        (folder / part).mkdir()
        if not any(path.startswith(f"{part}/") for path in files):
            # git keeps no empty folders, and the reader needs at least one of the two.
            (folder / part / ".gitkeep").touch()
    for path, text in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8", newline="\n")


def _webhook_file(webhook: Webhook, stem: str, schema_url: str) -> str:
    content: dict[str, Any] = {"name": webhook.name} if webhook.name != stem else {}
    content |= {key: value for key, value in webhook_settings(webhook).items() if value}
    if webhook.state is WebhookState.DISABLED:
        content["enabled"] = False
    return _text([f"# yaml-language-server: $schema={schema_url}", *lines_of(content)])


def _automation_file(automation: Automation, stem: str, names_by_uid: Mapping[str, str], default_runner: str) -> str:
    content: dict[str, Any] = {"name": automation.name} if automation.name != stem else {}
    if not automation.enabled:
        content["enabled"] = False
    if automation.runner != default_runner:
        content["runner"] = automation.runner
    content |= automation.policy.as_json()
    content["triggers"] = [trigger.as_json() for trigger in automation.all_triggers]
    comments = {
        uid: "".join(character if character.isprintable() else "?" for character in name)
        for uid, name in names_by_uid.items()
    }
    return _text(["---", *lines_of(content, comments=comments), "---", "", prompt_of(automation.prompt)])


def _text(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"


def _names_by_stem(names: Iterable[str]) -> dict[str, str]:
    """The names by file name (without suffix). It is the name itself if that is valid, otherwise a similar one."""
    by_stem = {name: name for name in sorted(names) if NAME.match(name)}
    for name in sorted(names):
        if name in by_stem:
            continue
        base = slug(name) or "unnamed"
        stem, number = base, 1
        while stem in by_stem:
            number += 1
            stem = f"{base[:58]}-{number}"
        by_stem[stem] = name
    return by_stem


def _refuse_unfaithful(files: Mapping[str, str], state: State) -> None:
    """Read the files back, and refuse them unless they describe the present state."""
    content = {path: text.encode() for path, text in files.items()}
    webhooks = {path: text for path, text in content.items() if path.startswith(f"{WEBHOOKS}/")}
    automations = {path: text for path, text in content.items() if path not in webhooks}
    problems = [
        Problem(path, START, "This file would exceed the size limit. Shorten its prompt or its filters.")
        for part, limit in ((webhooks, WEBHOOK_BYTES_MAX), (automations, AUTOMATION_BYTES_MAX))
        for path, text in part.items()
        if len(text) > limit
    ]
    definitions = read(Files(webhooks, automations))
    problems += definitions.problems
    plan = plan_of(definitions, replace(state, defined_by_files=True))
    problems += plan.problems
    if problems:
        raise UnusableDefinitions(problems)
    assert changes_nothing(plan), f"an export describes the present state: {[step.name for step in plan.steps]}"
