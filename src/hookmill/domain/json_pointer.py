"""JSON pointers (RFC 6901), such as `/triggers/0/filter`."""

from collections.abc import Iterable


def pointer_to(path: Iterable[object]) -> str:
    """The pointer to the value at this path of names and indexes."""
    return "".join(f"/{escape(str(step))}" for step in path)


def steps_of(pointer: str) -> list[str]:
    """The names and indexes of a pointer, unescaped."""
    return [unescape(step) for step in pointer.split("/")[1:]]


def escape(name: str) -> str:
    """A name as one step of a pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def unescape(step: str) -> str:
    # In this order: "~01" is "~1", not "/".
    return step.replace("~1", "/").replace("~0", "~")
