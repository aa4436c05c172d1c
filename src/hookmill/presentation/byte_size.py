"""Numbers of bytes, for people."""


def size_text(byte_count: int) -> str:
    """A number of bytes, for people: `12 B`, `3.4 kB`, `5.6 MB` or `7.8 GB`."""
    if byte_count < 1_000:
        return f"{byte_count} B"
    if byte_count < 1_000_000:
        return f"{byte_count / 1_000:.1f} kB"
    if byte_count < 1_000_000_000:
        return f"{byte_count / 1_000_000:.1f} MB"
    return f"{byte_count / 1_000_000_000:,.1f} GB"
