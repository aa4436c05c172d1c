"""Groups of options that several commands share: each is a dataclass, with an option for each field."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import Any, get_type_hints


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Give the command the options of each parameter whose type is a dataclass. The parameter gets an instance."""
    groups: dict[str, type] = {}
    parameters: list[Parameter] = []
    for parameter in signature(command, eval_str=True).parameters.values():
        group = parameter.annotation
        if is_dataclass(group):
            assert isinstance(group, type), "an annotation is a type"
            groups[parameter.name] = group
            types = get_type_hints(group, include_extras=True)
            parameters += [
                Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=types[field.name])
                for field in fields(group)
            ]
        else:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

    @wraps(command)
    def command_with_options(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    command_with_options.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]
    return command_with_options
