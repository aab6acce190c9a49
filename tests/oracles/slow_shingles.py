"""The hashes of shingles and texts in plain Python: the oracle of the compiled ones."""

_MASK = (1 << 64) - 1


def words_of(text: str) -> list[str]:
    return text.split(" ") if text else []


def slow_hashes(text: str, size: int) -> list[int]:
    """A hash a shingle of `size` words, in order; one of all words where there are fewer."""
    words = words_of(text)
    if not words:
        return []
    length = min(size, len(words))
    return [slow_shingle(words[start : start + length]) for start in range(len(words) - length + 1)]


def slow_shingle(words: list[str]) -> int:
    """The polynomial of the words' hashes, and a last mix."""
    value = 0
    for word in words:
        value = (value * 0x9E3779B97F4A7C15 + slow_word(word.encode())) & _MASK
    value = (value ^ value >> 32) * 0x94D049BB133111EB & _MASK
    return value ^ value >> 29


def slow_word(word: bytes) -> int:
    value = 0x243F6A8885A308D3
    for start in range(0, len(word) + 1, 8):
        value = (value ^ int.from_bytes(word[start : start + 8], "little")) * 0xD6E8FEB86659FD93 & _MASK
        value ^= value >> 32
    return _fmix(value)


def _fmix(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33
