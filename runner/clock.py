"""The time as records write it."""

from datetime import UTC, datetime


def utc_now() -> str:
    """Now, in UTC, ISO 8601 to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
