"""The addresses of pages."""

from urllib.parse import quote, urlencode


def url(*path: str, **query: str) -> str:
    """The address of a page. Each part of the path is whatever it is: a name may hold a slash."""
    address = "/" + "/".join(quote(part, safe="") for part in path)
    parameters = {name: value for name, value in query.items() if value}
    return f"{address}?{urlencode(parameters)}" if parameters else address
