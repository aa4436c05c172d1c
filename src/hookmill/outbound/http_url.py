"""Which http and https URLs can be used for a request, and which host names can be looked up."""

# `encodings.idna` is imported before any process forks, as in `web/hosts.py`.
import encodings.idna  # noqa: F401
import re
from typing import Final
from urllib.parse import SplitResult, urlsplit

_VISIBLE: Final = re.compile(r"[!-~\u00a1-\U0010ffff]+")


def http_url_parts(url: str) -> SplitResult | None:
    """The parts of an http or https URL without a password and a fragment. None if no request can be sent to the URL.

    `urlsplit` alone is not enough: it drops line breaks, and accepts hosts and ports that nothing can connect to.
    """
    try:
        parts = urlsplit(url)
        # `parts.port` raises a `ValueError` for a port that is no number, or too large.
        is_usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    if not is_usable or parts.scheme not in {"http", "https"} or not _VISIBLE.fullmatch(url):
        return None
    if "@" in parts.netloc or parts.fragment or not is_host_name(parts.hostname or ""):
        return None
    return parts


def is_host_name(name: str) -> bool:
    """Whether a name or address can be looked up: no part of a name is empty, or longer than DNS permits."""
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    return bool(name)
