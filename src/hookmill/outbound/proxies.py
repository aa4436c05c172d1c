"""The proxies in the environment: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`, also in lower case."""

import base64
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies_environment

from hookmill.domain.alarm_destination import UrlParts, ascii_host
from hookmill.domain.errors import Invalid
from hookmill.domain.outgoing import parsed_address

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Proxy:
    scheme: str
    host: str
    port: int
    authorization: str | None = field(repr=False)
    """The value of the header `Proxy-Authorization`."""

    def __str__(self) -> str:
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def proxy_for(url: UrlParts) -> Proxy | None:
    """The proxy for requests to the URL; None if they need none. Raises `Invalid` if the proxy can't be used."""
    # In lower case, a variable overrides the one in upper case, as in curl.
    variables = getproxies_environment()
    kind = url.scheme if variables.get(url.scheme) else "all"
    proxy = variables.get(kind)
    if not proxy or _is_excluded(url, variables.get("no", "")):
        return None
    return _parse(f"{kind.upper()}_PROXY", proxy)


def proxies_in_environment() -> Iterator[tuple[Proxy | None, str]]:
    """The proxies for URLs with and without TLS, each with its variable, or with a text that says why it can't be used.

    The proxy is then None.
    """
    variables = getproxies_environment()
    if "*" in variables.get("no", "").split(","):
        return
    for kind in ("https", "http", "all"):
        is_replaced = kind == "all" and bool(variables.get("https")) and bool(variables.get("http"))
        if not (proxy := variables.get(kind)) or is_replaced:
            continue
        variable = f"{kind.upper()}_PROXY"
        try:
            yield _parse(variable, proxy), variable
        except Invalid as error:
            yield None, str(error)


def proxy_credentials() -> Iterator[str]:
    """What no text may repeat: the credentials of all proxies in the environment, also of kinds that only Git uses."""
    variables = getproxies_environment()
    for kind in ("https", "http", "all"):
        with suppress(ValueError):
            parts = _split(variables.get(kind, ""))
            if parts.username is not None:
                # Some proxies have a token instead of a user.
                yield unquote(parts.password or parts.username)
                yield _basic(parts)


def _split(proxy: str) -> SplitResult:
    return urlsplit(proxy if "://" in proxy else f"http://{proxy}")


def _basic(parts: SplitResult) -> str:
    return base64.b64encode(f"{unquote(parts.username or '')}:{unquote(parts.password or '')}".encode()).decode()


def _parse(variable: str, proxy: str) -> Proxy:
    """Raises `Invalid`, with a text that does not contain the URL, which may have a password."""
    try:
        parts = _split(proxy)
        scheme, host, port = parts.scheme.lower(), ascii_host(parts.hostname or ""), parts.port
    except ValueError:
        parts, scheme, host, port = urlsplit(""), "", None, None
    if scheme not in _DEFAULT_PORTS or not host:
        kind = f" of the kind {scheme[:20]}" if host else ""
        raise Invalid(
            f"{variable} names a proxy{kind} that can't be used. Write a URL such as http://proxy.example.com:3128, or "
            "add the destinations to NO_PROXY."
        )
    authorization = f"Basic {_basic(parts)}" if parts.username is not None else None
    return Proxy(scheme, host, port or _DEFAULT_PORTS[scheme], authorization)


def _is_excluded(url: UrlParts, no_proxy: str) -> bool:
    return any(_excludes(entry.lower(), url) for entry in no_proxy.replace(",", " ").split())


def _excludes(entry: str, url: UrlParts) -> bool:
    """Whether the entry names the URL's host, a domain or a network with it, or any host (`*`)."""
    if entry == "*":
        return True
    address = parsed_address(url.host)
    if address is not None and "/" in entry:
        try:
            return address in ip_network(entry, strict=False)
        except ValueError:
            return False
    host, port = entry.strip("[]"), ""
    if parsed_address(host) is None and ":" in entry:
        host, _, port = entry.rpartition(":")
        host = host.strip("[]")
    if port and port != str(url.port):
        return False
    if address is not None:
        return parsed_address(host) == address
    domain = host.removeprefix("*").strip(".")
    return bool(domain) and (url.host == domain or url.host.endswith(f".{domain}"))
