"""Describes a scheme to its users, for the command line and for docs/schemes.md."""

from hookmill.domain.signatures import catalogue
from hookmill.domain.signatures.scheme import Scheme


def covered_parts(scheme: Scheme) -> str:
    """The parts of a delivery that nobody can change without the secret."""
    parts = {"body": scheme.covers_body, "time": scheme.covers_time, "event id": scheme.covers_id}
    return (
        ", ".join(part for part, is_covered in parts.items() if is_covered) or "nothing (it identifies the sender only)"
    )


def event_in_words(scheme: Scheme, name: str | None) -> str | None:
    """The location of the event type, and whether it is signed.

    `name` is the scheme's name or one of its aliases: the event type can depend on it.
    """
    event = scheme.event_for(name)
    if event is None:
        return None
    signed = "signed" if scheme.covers_event(name) else "not signed: only the sender's claim"
    return f"{_source_in_words(event.source)}, {signed}"


def properties_in_words(scheme: Scheme, name: str | None = None) -> list[str]:
    """The scheme's properties, one sentence each. `name` is the scheme's name or one of its aliases."""
    sentences = [f"Covers: {covered_parts(scheme)}.", f"Signature: {_sources_in_words(scheme.signature.sources)}."]
    if (tolerance := _tolerance_in_words(scheme)) is not None:
        sentences.append(tolerance)
    if scheme.delivery_id:
        sentences.append(f"Event id: {_sources_in_words(scheme.delivery_id)}.")
    if (event := event_in_words(scheme, name)) is not None:
        sentences.append(f"Event type: {event}.")
    if scheme.handshake is not None:
        sentences.append("Signed challenges are answered if the webhook's handshakes are on (`--handshakes`).")
    if scheme.experimental:
        sentences.append(f"Experimental: no independent implementation confirms it ({scheme.proof.source}).")
    else:
        sentences.append(f"Proven by {scheme.proof.source}.")
    return [*sentences, *scheme.notes]


def _tolerance_in_words(scheme: Scheme) -> str | None:
    timestamp = scheme.timestamp
    if timestamp is None or timestamp.tolerance_seconds is None:
        return None
    if timestamp.enforced:
        seconds = f"{timestamp.tolerance_seconds} s"
        return f"A delivery is refused if its signed time is more than {seconds} in the past or the future."
    return (
        "A delivery is not refused because of its age. "
        f"The provider recommends refusing it after {timestamp.tolerance_seconds} s."
    )


def delivery_id_location(scheme_name: str | None) -> str | None:
    """Where the provider of a scheme sends its event id: `header x-github-delivery`. None if it sends none.

    None also stands for names that the catalogue does not have.
    """
    if scheme_name is None or scheme_name not in catalogue.names():
        return None
    return _sources_in_words(catalogue.find(scheme_name).delivery_id).replace("`", "") or None


def _sources_in_words(sources: tuple[str, ...]) -> str:
    return ", else ".join(_source_in_words(source) for source in sources)


def _source_in_words(source: str) -> str:
    kind, _, name = source.partition(":")
    if kind == "json":
        return f"field `{name}` of the body"
    # The remaining kind is `numbered`.
    return f"header `{name}`" if kind == "header" else f"headers `{name}1`, `{name}2` and so on"
