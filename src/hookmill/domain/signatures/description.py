"""What a scheme means for those who use it, in words: for the command line and the page of schemes alike."""

from hookmill.domain.signatures.scheme import Scheme


def covered(scheme: Scheme) -> str:
    """What of a delivery nobody can change without the secret."""
    parts = {"body": scheme.covers_body, "time": scheme.covers_time, "event id": scheme.covers_id}
    return ", ".join(part for part, is_covered in parts.items() if is_covered) or "nothing: names the sender only"


def event_in_words(scheme: Scheme, name: str | None) -> str | None:
    """Where the event's type is, and whether it is signed. `name` is the provider's name for the scheme."""
    event = scheme.event_for(name)
    if event is None:
        return None
    signed = "signed" if scheme.covers_event(name) else "not signed: only the sender's claim"
    return f"{_place(event.source)}, {signed}"


def facts(scheme: Scheme, name: str | None = None) -> list[str]:
    """What to know before relying on it, a sentence each. `name` is the provider's name for the scheme."""
    found = [f"Covers: {covered(scheme)}.", f"Signature: {_places(scheme.signature.sources)}."]
    if (age := _age(scheme)) is not None:
        found.append(age)
    if scheme.delivery_id:
        found.append(f"Event id: {_places(scheme.delivery_id)}.")
    if (event := event_in_words(scheme, name)) is not None:
        found.append(f"Event type: {event}.")
    if scheme.handshake is not None:
        found.append("Signed challenges are answered where the webhook says so (`--handshakes`).")
    if scheme.experimental:
        found.append(f"Experimental: nothing independent has confirmed it ({scheme.proof.source}).")
    else:
        found.append(f"Proven by {scheme.proof.source}.")
    return [*found, *scheme.notes]


def _age(scheme: Scheme) -> str | None:
    timestamp = scheme.timestamp
    if timestamp is None or timestamp.tolerance_seconds is None:
        return None
    if timestamp.enforced:
        return f"Refused when signed more than {timestamp.tolerance_seconds} s ago or ahead."
    return f"Not refused for its age, though the provider advises at most {timestamp.tolerance_seconds} s."


def _places(sources: tuple[str, ...]) -> str:
    return ", else ".join(_place(where) for where in sources)


def _place(where: str) -> str:
    kind, _, name = where.partition(":")
    if kind == "json":
        return f"field `{name}` of the body"
    return f"header `{name}`" if kind == "header" else f"headers `{name}1`, `{name}2` and so on"
