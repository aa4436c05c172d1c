"""The URLs of pages."""

from urllib.parse import quote, urlencode


def url(*path: str, **query: str) -> str:
    """The URL of a page. The parts of the path are escaped, because a name may contain a slash."""
    address = "/" + "/".join(quote(part, safe="") for part in path)
    parameters = {name: value for name, value in query.items() if value}
    return f"{address}?{urlencode(parameters)}" if parameters else address
