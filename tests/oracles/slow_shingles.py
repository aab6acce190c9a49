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


def slow_text_hash(content: bytes) -> tuple[int, int]:
    """MurmurHash3_x64_128 as Appleby describes it."""
    multipliers = 0x87C37B91114253D5, 0x4CF5AD432745937F
    first = second = 0
    for start in range(0, len(content), 16):
        block = content[start : start + 16]
        low, high = (int.from_bytes(half, "little") for half in (block[:8], block[8:]))
        if len(block) < 16:
            first ^= _rotate(low * multipliers[0], 31) * multipliers[1] & _MASK
            second ^= _rotate(high * multipliers[1], 33) * multipliers[0] & _MASK
            break
        first ^= _rotate(low * multipliers[0], 31) * multipliers[1] & _MASK
        first = ((_rotate(first, 27) + second) * 5 + 0x52DCE729) & _MASK
        second ^= _rotate(high * multipliers[1], 33) * multipliers[0] & _MASK
        second = ((_rotate(second, 31) + first) * 5 + 0x38495AB5) & _MASK
    first, second = first ^ len(content), second ^ len(content)
    first = (first + second) & _MASK
    second = (second + first) & _MASK
    first, second = _fmix(first), _fmix(second)
    first = (first + second) & _MASK
    return first, (second + first) & _MASK


def _rotate(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> 64 - bits) & _MASK


def _fmix(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33
