"""Export a factory as definition files. Applying them to the same factory changes no definition, but from then on, only
files can change the definitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookmill.definitions.applying import changes_no_definition, state_of
from hookmill.definitions.folder import (
    AUTOMATION_BYTES_MAX,
    AUTOMATION_FILE,
    AUTOMATIONS,
    NAME,
    WEBHOOK_BYTES_MAX,
    WEBHOOK_SUFFIX,
    WEBHOOKS,
    Files,
    files_of,
    slug,
)
from hookmill.definitions.keys import REFERENCE
from hookmill.definitions.planning import State, plan_of, webhook_settings, with_webhook_ids
from hookmill.definitions.problem import START, Problem, UnusableDefinitions
from hookmill.definitions.reading import normalized_prompt, read_definitions
from hookmill.definitions.writing import lines_of
from hookmill.domain.automation import Automation
from hookmill.domain.errors import Conflict
from hookmill.domain.ids import WebhookUid
from hookmill.domain.permission import MayManage
from hookmill.domain.webhook import Webhook, WebhookState

if TYPE_CHECKING:
    # Only for types: importing it takes longer than the whole validation of a folder's definition files.
    from hookmill.management import Management

SCHEMA_PATH = "/api/v1/schemas/webhook.schema.json"


def export(management: Management, may: MayManage) -> dict[str, str]:
    """The definition files: texts by path. Raises `UnusableDefinitions` if files can't express the factory."""
    state = state_of(management, may)
    files = texts_of(state, schema_url=management.config.public_url + SCHEMA_PATH)
    _refuse_unfaithful(files, state)
    return files


def texts_of(state: State, *, schema_url: str) -> dict[str, str]:
    """The texts of this state's definition files by path. Pure."""
    name_by_uid: dict[str, str] = {webhook.uid: webhook.name for webhook in state.webhooks}
    live_webhooks = state.live_webhooks_by_name()
    references: dict[WebhookUid, str] = {webhook.uid: f"{REFERENCE}{name}" for name, webhook in live_webhooks.items()}
    files = {}
    for stem, name in _name_by_stem(live_webhooks).items():
        files[f"{WEBHOOKS}/{stem}{WEBHOOK_SUFFIX}"] = _webhook_file(live_webhooks[name], stem, schema_url)
    automations = {automation.name: automation for automation in state.automations}
    for stem, name in _name_by_stem(automations).items():
        path = f"{AUTOMATIONS}/{stem}/{AUTOMATION_FILE}"
        files[path] = _automation_file(automations[name], stem, name_by_uid, references, state.default_runner)
    return files


def write(folder: Path, texts: Mapping[str, str]) -> None:
    """Write the files into a folder without definitions. Otherwise raises `Conflict`, and writes nothing.

    The texts may come from a server that must not choose which files of this host are written. Raises
    `UnusableDefinitions` for other paths than those of definition files.
    """
    files = files_of(texts)
    if files.problems:
        raise UnusableDefinitions(files.problems)
    contents = {**files.webhook_contents, **files.automation_contents}
    folder.mkdir(parents=True, exist_ok=True)
    for part in (WEBHOOKS, AUTOMATIONS):
        if (folder / part).exists() or (folder / part).is_symlink():
            raise Conflict(f"{folder / part} already exists. Nothing was written. Export into another folder.")
    for part in (WEBHOOKS, AUTOMATIONS):
        (folder / part).mkdir()
        if not any(path.startswith(f"{part}/") for path in contents):
            # git stores no empty folders, and at least one of the two folders must exist when the files are read.
            (folder / part / ".gitkeep").touch()
    for path, content in contents.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(content)


def _webhook_file(webhook: Webhook, stem: str, schema_url: str) -> str:
    content: dict[str, Any] = {"name": webhook.name} if webhook.name != stem else {}
    content |= {key: value for key, value in webhook_settings(webhook).items() if value}
    if webhook.state is WebhookState.DISABLED:
        content["enabled"] = False
    return _text([f"# yaml-language-server: $schema={schema_url}", *lines_of(content)])


def _automation_file(
    automation: Automation,
    stem: str,
    name_by_uid: Mapping[str, str],
    references: Mapping[WebhookUid, str],
    default_runner: str,
) -> str:
    if parts := automation.unreadable_parts:
        raise Conflict(
            f"The stored {' and '.join(parts)} of automation {automation.name!r} can't be read. Replace all of it, and "
            "then export. Nothing was written."
        )
    content = with_webhook_ids(automation.spec, references).as_json()
    del content["prompt"]
    if automation.name == stem:
        del content["name"]
    if automation.runner == default_runner:
        del content["runner"]
    comment_by_uid = {
        uid: "".join(character if character.isprintable() else "?" for character in name)
        for uid, name in name_by_uid.items()
    }
    return _text(
        ["---", *lines_of(content, comment_by_text=comment_by_uid), "---", "", normalized_prompt(automation.prompt)]
    )


def _text(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"


def _name_by_stem(names: Iterable[str]) -> dict[str, str]:
    """The names by stem, which is the file's name without suffix: the name itself if it is valid, or a similar one."""
    name_by_stem = {name: name for name in sorted(names) if NAME.match(name)}
    for name in sorted(names):
        if name in name_by_stem:
            continue
        base = slug(name) or "unnamed"
        stem, number = base, 1
        while stem in name_by_stem:
            number += 1
            stem = f"{base[:58]}-{number}"
        name_by_stem[stem] = name
    return name_by_stem


def _refuse_unfaithful(files: Mapping[str, str], state: State) -> None:
    """Read the files back. Raises `UnusableDefinitions` unless they describe the present state."""
    content_by_path = {path: text.encode() for path, text in files.items()}
    webhooks = {path: text for path, text in content_by_path.items() if path.startswith(f"{WEBHOOKS}/")}
    automations = {path: text for path, text in content_by_path.items() if path not in webhooks}
    problems = [
        Problem(path, START, "This file would exceed the size limit. Shorten its prompt or its filters.")
        for part, limit in ((webhooks, WEBHOOK_BYTES_MAX), (automations, AUTOMATION_BYTES_MAX))
        for path, text in part.items()
        if len(text) > limit
    ]
    uid_by_name = {name: webhook.uid for name, webhook in state.live_webhooks_by_name().items()}
    definitions = read_definitions(Files(webhooks, automations), uid_by_name)
    problems += definitions.problems
    # That files take over the factory is not a difference.
    plan = plan_of(definitions, replace(state, defined_by_files=True))
    problems += plan.problems
    if problems:
        raise UnusableDefinitions(problems)
    assert changes_no_definition(plan), f"applying an export would change: {[step.name for step in plan.steps]}"
