"""Numbers as people read them."""


def duration(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 min`, `4.5 h`, `6.1 days`."""
    for unit, length, limit in (("s", 1, 120), ("min", 60, 7_200), ("h", 3_600, 172_800)):
        if seconds < limit:
            return f"{seconds / length:.{int(seconds / length < 10)}f} {unit}"
    return f"{seconds / 86_400:.1f} days"


def bytes_of(count: float) -> str:
    """In powers of 1,000."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 999.5:
            return f"{count:.{int(0 < count < 9.95 and unit != 'B')}f} {unit}"
        count /= 1_000
    return f"{count:,.1f} PB"


def count_of(count: float) -> str:
    """Whole, with commas; from a million on in millions."""
    return f"{count / 1e6:,.1f} M" if count >= 1e6 else f"{count:,.0f}"
