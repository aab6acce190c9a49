import contextlib
import lzma
import shutil
import struct
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import psutil
import py7zr
import pytest
from dump_files import (
    COMPRESS,
    LINKS,
    POSTS,
    noise,
    upload,
    with_member_renamed,
    write_archive,
    write_files,
)

from dupq.dump import streams
from dupq.dump.files import Member
from dupq.dump.sites import find_sites
from dupq.dump.streams import open_member
from dupq.errors import DupqError

MEGABYTE = 1 << 20


@pytest.fixture(autouse=True)
def _little_is_a_bomb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAXIMUM_RATIO", 50.0)


def read(member: Member) -> bytes:
    with open_member(member) as stream:
        return b"".join(iter(lambda: stream.read(MEGABYTE), b""))


def packed(folder: Path, suffix: str, content: bytes) -> Member:
    """A file of exactly these bytes, whatever its name promises."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"Posts.xml{suffix}").write_bytes(content)
    return Member(f"{folder}/Posts.xml{suffix}")


@pytest.fixture(params=["program", "py7zr"])
def unpacker(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    lacking: Callable[[str], NoReturn],
) -> str:
    """Both ways of unpacking: with a program, and where PATH has none."""
    if request.param == "py7zr":
        monkeypatch.setenv("PATH", str(tmp_path / "no-programs"))
    elif not any(map(shutil.which, streams.PROGRAMS)):
        lacking(f"unpacking with a program needs {', '.join(streams.PROGRAMS)} on PATH: install 7zip")
    return request.param


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    threads = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread not in threads]
    assert [child.name() for child in psutil.Process().children() if "7z" in child.name()] == []
    assert [thread for thread in left if thread.name.endswith("(_unpack)")] == []


# Every form


@pytest.mark.parametrize("suffix", ["", *COMPRESS])
def test_a_file_is_read_whole_and_a_missing_one_named(suffix: str, tmp_path: Path) -> None:
    content = noise(1_500_000) + b" " * 1_500_000
    folder = write_files(tmp_path, f"Posts.xml{suffix}", content=content)
    assert read(Member(f"{folder}/Posts.xml{suffix}")) == content
    write_files(folder, f"Posts.xml{suffix}", content=b"")
    assert read(Member(f"{folder}/Posts.xml{suffix}")) == b""
    with pytest.raises(DupqError, match=rf"gone\.xml{suffix}: no such file"):
        read(Member(f"{tmp_path}/gone.xml{suffix}"))


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_file_may_be_of_several_compressed_parts(suffix: str, tmp_path: Path) -> None:
    parts = [b"", noise(200_000), b"", b"x" * 3_000_000, b"", b"", b"end", b""]
    member = packed(tmp_path, suffix, b"".join(map(COMPRESS[suffix], parts)))
    assert read(member) == b"".join(parts)


def test_padding_between_xz_parts_is_skipped(tmp_path: Path) -> None:
    part = lzma.compress(POSTS)
    assert read(packed(tmp_path, ".xz", part + bytes(8) + part + bytes(2 * MEGABYTE) + part + bytes(4))) == POSTS * 3


def test_a_member_of_an_archive_is_read_whole(unpacker: str, tmp_path: Path) -> None:
    content = noise(300_000)
    archive = write_archive(tmp_path / "a.7z", {"PostLinks.xml": LINKS, "Posts.xml": content, "Empty.xml": b""})
    assert read(Member(str(archive), "Posts.xml")) == content
    assert read(Member(str(archive), "PostLinks.xml")) == LINKS
    assert read(Member(str(archive), "Empty.xml")) == b""


def member_of(folder: Path, suffix: str, content: bytes) -> Member:
    if suffix == ".7z":
        return Member(str(write_archive(folder / "a.7z", {"Posts.xml": content})), "Posts.xml")
    return packed(folder, suffix, COMPRESS.get(suffix, bytes)(content))


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz", ".7z"])
def test_a_read_gives_all_that_was_asked_for_but_at_the_end(suffix: str, tmp_path: Path) -> None:
    content, shares = noise(2_500_000), []
    member = member_of(tmp_path, suffix, content)
    with open_member(member) as stream:
        assert stream.packed_bytes == Path(member.uri).stat().st_size
        for expected in (1_000_000, 1_000_000, 500_000, 0):
            assert stream.read(1_000_000) == content[stream.position - expected : stream.position]
            shares.append(stream.share)
    assert shares == sorted(shares)
    assert 0 < shares[0] <= 1
    assert shares[-1] == 1


def test_an_archive_or_member_that_went_missing_is_named(unpacker: str, tmp_path: Path) -> None:
    with pytest.raises(DupqError, match=r"gone\.7z: no such file"):
        read(Member(f"{tmp_path}/gone.7z", "Posts.xml"))
    with pytest.raises(DupqError, match=r"a\.7z/Posts\.xml: no such file in the archive"):
        read(Member(str(write_archive(tmp_path / "a.7z", {"posts.xml": POSTS})), "Posts.xml"))


# Stopping early


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz", ".7z"])
def test_reading_may_stop_early(suffix: str, unpacker: str, tmp_path: Path) -> None:
    member = member_of(tmp_path, suffix, b"x" * 20_000_000)
    with open_member(member):
        pass
    with open_member(member) as stream:
        assert stream.read(10) == b"x" * 10
    with pytest.raises(KeyError), open_member(member) as stream:
        raise KeyError(stream.read(1))


# Hostile names in archives


@pytest.mark.parametrize("name", ["@list/Posts.xml", "*/Posts.xml", "-so/Posts.xml", "ü 文/Posts.xml"])
def test_odd_names_in_archives_select_only_themselves(name: str, unpacker: str, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "we*ird @.7z", {"x/Other.xml": b"other", name: POSTS, "Posts.xml.bak": b"other"})
    (site,) = find_sites([str(archive)], site="odd").sites
    assert [member.name for member in site.posts] == [name]
    assert read(site.posts[0]) == POSTS


@pytest.mark.parametrize("name", ["../../Posts.xml", "/xxxx/Posts.xml", "C:\\xx/Posts.xml"])
def test_names_in_archives_are_never_paths_to_write_to(name: str, unpacker: str, tmp_path: Path) -> None:
    neutral = "x" * (len(name) - len("/Posts.xml")) + "/Posts.xml"
    archive = write_archive(tmp_path / "deep" / "er" / "a.7z", {neutral: POSTS}, plain_header=True)
    archive.write_bytes(with_member_renamed(archive.read_bytes(), neutral, name))
    before = Path("/xxxx").exists()
    (site,) = find_sites([str(archive)]).sites
    with contextlib.suppress(DupqError):  # 7zz cannot find what looks like a drive, py7zr refuses what leads out
        assert read(site.posts[0]) == POSTS
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [archive]
    assert Path("/xxxx").exists() == before


def test_a_file_that_the_program_does_not_find_is_not_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "7zz").write_text("#!/bin/sh\n")  # as it does for odd names: no bytes, no error
    (tmp_path / "7zz").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    archive = write_archive(tmp_path / "a.7z", {"Posts.xml": POSTS})
    with pytest.raises(DupqError, match=r"Posts\.xml: damaged or cut short \(unpacks to 0 of 43 bytes\)"):
        read(Member(str(archive), "Posts.xml"))


# Damage


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_compressed_file_that_is_cut_short_is_named(suffix: str, tmp_path: Path) -> None:
    whole = COMPRESS[suffix](noise(300_000))
    for kept in (0, 3, 100, len(whole) // 2, -1):
        with pytest.raises(DupqError, match=rf"Posts\.xml{suffix}: damaged or cut short"):
            read(packed(tmp_path, suffix, whole[:kept]))
    for rest in (whole[:3], whole[:1000], whole[:-1], b"something else"):  # of a second part
        with pytest.raises(DupqError, match="damaged or cut short"):
            read(packed(tmp_path, suffix, whole + rest))


def test_xz_that_needs_much_memory_is_refused(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 16 * MEGABYTE}]
    content = bytearray(lzma.compress(POSTS, lzma.FORMAT_XZ, lzma.CHECK_CRC32, filters=filters))
    header = content[12:20].replace(b"\x21\x01\x18", b"\x21\x01\x27")  # a dictionary of 3 GiB
    assert header != content[12:20]
    content[12:24] = header + struct.pack("<I", zlib.crc32(header))
    with pytest.raises(DupqError, match=r"damaged or cut short \(Memory usage limit exceeded\)"):
        read(packed(tmp_path, ".xz", bytes(content)))


def test_damage_is_told_in_place_of_the_error_that_it_caused_in_the_reader(unpacker: str, tmp_path: Path) -> None:
    archive = damaged_archive(tmp_path)
    with pytest.raises(DupqError, match="damaged"), open_member(Member(str(archive), "Posts.xml")) as stream:
        raise DupqError(f"cut short after {len(stream.read(MEGABYTE))} bytes")
    archive = damaged_archive(tmp_path, size=2_000_000)  # an error before the damage is the reader's own
    with pytest.raises(KeyError), open_member(Member(str(archive), "Posts.xml")) as stream:
        raise KeyError(stream.read(1))


def damaged_archive(folder: Path, size: int = 300_000) -> Path:
    archive = write_archive(folder / "a.7z", {"Posts.xml": noise(size)})
    content = bytearray(archive.read_bytes())
    content[-size // 3] ^= 0xFF
    archive.write_bytes(content)
    return archive


# Bombs


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_bomb_is_stopped_by_its_ratio_early_and_in_little_memory(suffix: str, tmp_path: Path) -> None:
    bomb = packed(tmp_path, suffix, COMPRESS[suffix](b" " * (16 * MEGABYTE)) * 20)
    before = psutil.Process().memory_info().rss
    with open_member(bomb) as stream:
        for _ in range(64):
            stream.read(MEGABYTE)
            assert psutil.Process().memory_info().rss - before < 100 * MEGABYTE
        with pytest.raises(DupqError) as caught:
            stream.read(MEGABYTE)
    assert str(caught.value) == (
        f"{bomb.uri}: stopped: {stream.packed_bytes:,} bytes unpack to 68,157,440 or more; allowed are 50 times that; "
        "if it is to be trusted, unpack it first"
    )


def test_what_is_small_or_plain_may_have_any_ratio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    member = packed(tmp_path, ".gz", COMPRESS[".gz"](b" " * (16 * MEGABYTE)))
    assert len(read(member)) == 16 * MEGABYTE
    monkeypatch.setattr(streams, "HARMLESS", 8 * MEGABYTE)
    with pytest.raises(DupqError, match="unpack it first"):
        read(member)
    monkeypatch.setattr(streams, "HARMLESS", 0)
    monkeypatch.setattr(streams, "MAXIMUM_RATIO", 1.0)
    assert read(packed(tmp_path, "", POSTS)) == POSTS


@pytest.mark.parametrize("name", ["Posts.xml", "A.xml"])
def test_an_archive_that_holds_a_bomb_is_refused_before_it_is_unpacked(
    name: str, unpacker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a bomb before the file that is wanted would have to be unpacked to get at that
    filters = [{"id": py7zr.FILTER_LZMA2, "preset": 0}]
    archive = write_archive(tmp_path / "a.7z", {name: b" " * (66 * MEGABYTE), "B/Posts.xml": POSTS}, filters=filters)
    wanted = Member(str(archive), "Posts.xml" if name == "Posts.xml" else "B/Posts.xml")
    with pytest.raises(DupqError, match=r"a\.7z: stopped: .* 50 times that; .* unpack it first"):
        read(wanted)
    monkeypatch.setattr(streams, "MAXIMUM_RATIO", 1e6)
    assert len(read(wanted)) in (66 * MEGABYTE, len(POSTS))


def test_a_bomb_that_its_header_hides_is_stopped(
    unpacker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = write_archive(tmp_path / "a.7z", {"Posts.xml": b" " * (32 * MEGABYTE)})
    monkeypatch.setattr(streams, "HARMLESS", MEGABYTE)
    monkeypatch.setattr(streams, "read_header", lambda uri: {"Posts.xml": 1000})
    with open_member(Member(str(archive), "Posts.xml")) as stream:
        assert len(stream.read(MEGABYTE)) == MEGABYTE
        with pytest.raises(DupqError, match=r"a\.7z/Posts\.xml: stopped: .* unpack it first"):
            stream.read(MEGABYTE)


def test_without_the_program_memory_stays_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert peak_of_reading(big_archive(tmp_path)) < 32 * MEGABYTE


def big_archive(folder: Path) -> Member:
    archive = write_archive(folder / "a.7z", {"Posts.xml": noise(MEGABYTE) * 64}, filters=[{"id": py7zr.FILTER_COPY}])
    return Member(str(archive), "Posts.xml")


def peak_of_reading(member: Member) -> int:
    tracemalloc.start()
    with open_member(member) as stream:
        size = sum(len(chunk) for chunk in iter(lambda: stream.read(MEGABYTE), b""))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size == 64 * MEGABYTE
    return peak


# On S3


def test_an_archive_on_s3_takes_little_memory_and_no_disk(
    s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = big_archive(tmp_path / "up")
    uri = upload(tmp_path / "up", f"{s3}/streams")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    assert peak_of_reading(Member(f"{uri}/a.7z", member.name)) < 64 * MEGABYTE
    with open_member(Member(f"{uri}/a.7z", member.name)) as stream:
        assert stream.read(10) == noise(MEGABYTE)[:10]
    assert list((tmp_path / "temporary").iterdir()) == []


def test_what_is_missing_or_cut_short_on_s3_is_named(s3: str, tmp_path: Path) -> None:
    packed(tmp_path, ".gz", COMPRESS[".gz"](noise(100_000))[:-5])
    damaged_archive(tmp_path)
    uri = upload(tmp_path, f"{s3}/cut")
    for name in ("Posts.xml", "none.gz", "none.7z"):
        with pytest.raises(DupqError, match=f"s3://dupq/none/{name}: no such file"):
            read(Member(f"{s3}/none/{name}", "Posts.xml" if name == "none.7z" else None))
    with pytest.raises(DupqError, match=r"s3://dupq/cut/Posts\.xml\.gz: damaged or cut short"):
        read(Member(f"{uri}/Posts.xml.gz"))
    with pytest.raises(DupqError, match=r"s3://dupq/cut/a\.7z/Posts\.xml: damaged"):
        read(Member(f"{uri}/a.7z", "Posts.xml"))
