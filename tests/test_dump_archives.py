import contextlib
import random
import shutil
import struct
import threading
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path

import psutil
import py7zr
import pytest
from moto.server import ThreadedMotoServer

from dupq import storage
from dupq.dump import seven_zip
from dupq.dump.archives import DumpSite, Member, find_sites, open_member
from dupq.errors import DupqError, SettingError

POSTS = b'<posts><row Id="1" PostTypeId="1"/></posts>'
LINKS = b"<postlinks></postlinks>"


def write_archive(path: Path, members: dict[str, bytes], plain_header: bool = False, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with py7zr.SevenZipFile(path, "w", **options) as archive:
        archive.set_encoded_header_mode(not plain_header)
        for name, content in members.items():
            archive.writestr(content, name)
    return path


def write_plain(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(POSTS)
    return folder


def read(member: Member) -> bytes:
    with open_member(member) as stream:
        return stream.read()


def noise(size: int) -> bytes:
    return random.Random(1).randbytes(size)


@pytest.fixture(params=["program", "py7zr"])
def unpacker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Both ways of unpacking: with a program, and where PATH has none."""
    if request.param == "py7zr":
        monkeypatch.setenv("PATH", str(tmp_path / "no-programs"))
    elif not any(map(shutil.which, seven_zip.PROGRAMS)):
        pytest.skip("no 7zz, 7z or 7za on PATH")
    return request.param


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    threads = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread not in threads and "moto" not in str(thread)]
    assert [child.name() for child in psutil.Process().children() if "7z" in child.name()] == []
    assert [thread for thread in left if thread.name.endswith("(_unpack)")] == []


# Which sites there are


def test_an_archive_is_a_site_called_like_its_file(tmp_path: Path) -> None:
    archive = write_archive(
        tmp_path / "cs.stackexchange.com.7z", {"Posts.xml": POSTS, "PostLinks.xml": LINKS, "Tags.xml": b""}
    )

    assert find_sites(str(archive)) == [
        DumpSite("cs.stackexchange.com", Member(str(archive), "Posts.xml"), Member(str(archive), "PostLinks.xml"))
    ]


def test_members_are_found_by_base_name_in_any_case(tmp_path: Path) -> None:
    archive = write_archive(
        tmp_path / "a.7z", {"dump/POSTS.XML": POSTS, "dump/postlinks.xml": LINKS, "NotPosts.xml": b""}
    )

    (site,) = find_sites(str(archive))

    assert (site.posts.name, site.links.name) == ("dump/POSTS.XML", "dump/postlinks.xml")
    assert read(site.posts) == POSTS


def test_an_archive_without_links_is_a_site_without_links(tmp_path: Path) -> None:
    (site,) = find_sites(str(write_archive(tmp_path / "a.7z", {"Posts.xml": POSTS})))

    assert site.links is None


def test_a_big_site_has_an_archive_for_each_file(tmp_path: Path) -> None:
    posts = write_archive(tmp_path / "stackoverflow.com-Posts.7z", {"Posts.xml": POSTS})
    links = write_archive(tmp_path / "stackoverflow.com-PostLinks.7z", {"PostLinks.xml": LINKS})
    (tmp_path / "stackoverflow.com-Comments.7z").write_bytes(b"not needed, so not even opened")
    expected = [DumpSite("stackoverflow.com", Member(str(posts), "Posts.xml"), Member(str(links), "PostLinks.xml"))]

    assert find_sites(str(posts)) == expected
    assert find_sites(str(tmp_path)) == expected


def test_a_big_site_may_lack_its_links(tmp_path: Path) -> None:
    (site,) = find_sites(str(write_archive(tmp_path / "stackoverflow.com-Posts.7z", {"Posts.xml": POSTS})))

    assert (site.site, site.links) == ("stackoverflow.com", None)


def test_a_hyphen_in_a_name_is_no_split(tmp_path: Path) -> None:
    (site,) = find_sites(str(write_archive(tmp_path / "my-site.7z", {"Posts.xml": POSTS})))

    assert site.site == "my-site"


def test_plain_files_are_a_site_called_like_their_folder(tmp_path: Path) -> None:
    folder = write_plain(tmp_path / "travel.stackexchange.com", "Posts.xml", "PostLinks.xml", "Tags.xml")
    expected = [DumpSite("travel.stackexchange.com", Member(f"{folder}/Posts.xml"), Member(f"{folder}/PostLinks.xml"))]

    assert find_sites(str(folder)) == expected
    assert find_sites(f"{folder}/Posts.xml") == expected


def test_a_relative_path_names_its_folder_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write_plain(tmp_path / "travel", "Posts.xml"))

    assert [site.site for site in find_sites("Posts.xml")] == ["travel"]
    assert [site.site for site in find_sites(".")] == ["travel"]


def test_a_folder_holds_sites_of_every_form_at_any_depth(tmp_path: Path) -> None:
    write_archive(tmp_path / "b.com.7z", {"Posts.xml": POSTS})
    write_archive(tmp_path / "deep" / "er" / "a.com.7z", {"Posts.xml": POSTS})
    write_archive(tmp_path / "no-dump.7z", {"readme.txt": b"hello"})
    write_plain(tmp_path / "c.com", "Posts.xml", "Users.xml", "notes.txt")

    assert [site.site for site in find_sites(str(tmp_path))] == ["a.com", "b.com", "c.com"]


def test_a_name_that_is_given_overrides_the_files_name(tmp_path: Path) -> None:
    folder = write_plain(tmp_path / "my dump (2)", "Posts.xml")

    assert [site.site for site in find_sites(str(folder), site="cs.stackexchange.com")] == ["cs.stackexchange.com"]


def test_one_name_for_several_sites_is_a_wrong_setting(tmp_path: Path) -> None:
    write_plain(tmp_path / "a.com", "Posts.xml")
    write_plain(tmp_path / "b.com", "Posts.xml")

    with pytest.raises(SettingError, match=r"several sites \(a\.com, b\.com\), which cannot all be called 'c\.com'"):
        find_sites(str(tmp_path), site="c.com")


@pytest.mark.parametrize("name", ["my dump (2)", "site=a", ".hidden", "a%2Fb"])
def test_a_name_that_is_not_fit_for_a_partition_is_refused(name: str, tmp_path: Path) -> None:
    folder = write_plain(tmp_path / name, "Posts.xml")

    with pytest.raises(DupqError, match="is no site name"):
        find_sites(f"{folder}/Posts.xml")


@pytest.mark.parametrize("site", ["", "a/b", "..", "a b"])
def test_a_given_name_must_be_fit_too(site: str, tmp_path: Path) -> None:
    with pytest.raises(DupqError, match="is no site name"):
        find_sites(str(write_plain(tmp_path / "a", "Posts.xml")), site=site)


def test_two_sites_of_one_name_are_refused(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a.com.7z", {"Posts.xml": POSTS})
    folder = write_plain(tmp_path / "a.com", "Posts.xml")

    with pytest.raises(DupqError) as caught:
        find_sites(str(tmp_path))

    assert str(caught.value) == f"{archive} and {folder}/Posts.xml are both called 'a.com'"


def test_an_archive_with_two_sites_is_refused(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "all.7z", {"a/Posts.xml": POSTS, "b/Posts.xml": POSTS})

    with pytest.raises(DupqError, match=r"all\.7z: holds a/Posts\.xml and b/Posts\.xml; expected is one site only"):
        find_sites(str(archive))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DupqError, match=r"missing\.7z: no such file or folder"):
        find_sites(str(tmp_path / "missing.7z"))


def test_a_folder_or_file_without_a_dump_is_named(tmp_path: Path) -> None:
    (tmp_path / "Users.xml").write_bytes(b"<users></users>")
    archive = write_archive(tmp_path / "other" / "a.7z", {"Users.xml": b"<users></users>"})

    for uri in (str(tmp_path), str(tmp_path / "Users.xml"), str(archive)):
        with pytest.raises(DupqError) as caught:
            find_sites(uri)
        assert str(caught.value).startswith(f"{uri}: no dump in it; name a Posts.xml, a .7z")


@pytest.mark.parametrize("kept", [0, 10, 31, 32, 100, -1])
def test_an_archive_whose_end_is_missing_is_named(kept: int, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "cut.7z", {"Posts.xml": noise(5000)})
    archive.write_bytes(archive.read_bytes()[:kept])

    with pytest.raises(DupqError, match=r"cut\.7z: damaged, cut short or no \.7z archive"):
        find_sites(str(archive))


@pytest.mark.parametrize("prefix", [b"", b"7z\xbc\xaf\x27\x1c\x00\x04"])
def test_random_bytes_are_no_archive(prefix: bytes, tmp_path: Path) -> None:
    archive = tmp_path / "random.7z"
    archive.write_bytes(prefix + noise(5000))

    with pytest.raises(DupqError, match=r"random\.7z: damaged, cut short or no \.7z archive"):
        find_sites(str(archive))


# Reading members


def test_a_member_is_read_whole(unpacker: str, tmp_path: Path) -> None:
    content = noise(3_000_000)
    archive = write_archive(tmp_path / "a.7z", {"PostLinks.xml": LINKS, "Posts.xml": content, "Tags.xml": b"x" * 100})

    assert read(Member(str(archive), "Posts.xml")) == content
    assert read(Member(str(archive), "PostLinks.xml")) == LINKS


def test_an_archive_that_went_missing_is_named(unpacker: str, tmp_path: Path) -> None:
    with pytest.raises(DupqError, match=r"gone\.7z/Posts\.xml: no such file"):
        read(Member(str(tmp_path / "gone.7z"), "Posts.xml"))


def test_an_empty_member_is_read(unpacker: str, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a.7z", {"Posts.xml": b"", "Tags.xml": b"x"})

    assert read(Member(str(archive), "Posts.xml")) == b""


def test_a_plain_file_is_a_member_too(tmp_path: Path) -> None:
    assert read(Member(f"{write_plain(tmp_path, 'Posts.xml')}/Posts.xml")) == POSTS


@pytest.mark.parametrize("name", ["@list/Posts.xml", "*/Posts.xml", "-so/Posts.xml", "!x/Posts.xml", "ü 文/Posts.xml"])
def test_odd_names_in_archives_select_only_themselves(name: str, unpacker: str, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "we*ird @.7z", {"x/Other.xml": b"other", name: POSTS, "Posts.xml.bak": b"other"})

    (site,) = find_sites(str(archive), site="odd")

    assert site.posts.name == name
    assert read(site.posts) == POSTS


def test_names_in_archives_are_never_paths_to_write_to(unpacker: str, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "deep" / "er" / "a.7z", {"xx/xx/Posts.xml": POSTS}, plain_header=True)
    archive.write_bytes(with_member_renamed(archive.read_bytes(), "xx/xx/Posts.xml", "../../Posts.xml"))

    (site,) = find_sites(str(archive))
    with contextlib.suppress(DupqError):  # py7zr refuses such names, 7zz streams them
        assert read(site.posts) == POSTS

    assert site.posts.name == "../../Posts.xml"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [archive]


def with_member_renamed(archive: bytes, old: str, new: str) -> bytes:
    """The archive with another name in its header, and the header's checksums made right again."""
    renamed = archive.replace(old.encode("utf-16-le"), new.encode("utf-16-le"))
    offset, size = struct.unpack("<QQ", renamed[12:28])
    start = renamed[12:28] + struct.pack("<I", zlib.crc32(renamed[32 + offset : 32 + offset + size]))
    return renamed[:8] + struct.pack("<I", zlib.crc32(start)) + start + renamed[32:]


def test_reading_may_stop_early(unpacker: str, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a.7z", {"Posts.xml": b"x" * 20_000_000})

    with open_member(Member(str(archive), "Posts.xml")) as stream:
        assert stream.read(10) == b"x" * 10


def test_reading_may_stop_before_it_began(unpacker: str, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a.7z", {"Posts.xml": b"x" * 20_000_000})

    with open_member(Member(str(archive), "Posts.xml")):
        pass


def test_the_readers_own_error_is_kept_when_it_stops_early(unpacker: str, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a.7z", {"Posts.xml": b"x" * 20_000_000})

    with pytest.raises(KeyError), open_member(Member(str(archive), "Posts.xml")) as stream:
        raise KeyError(stream.read(1))


def test_a_reader_may_close_the_stream(unpacker: str, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a.7z", {"Posts.xml": b"x" * 20_000_000})

    with open_member(Member(str(archive), "Posts.xml")) as stream:
        stream.close()


def test_damaged_bytes_inside_an_archive_are_told_when_it_was_read(unpacker: str, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a.7z", {"Posts.xml": noise(300_000)})
    content = bytearray(archive.read_bytes())
    content[150_000] ^= 0xFF
    archive.write_bytes(content)

    with pytest.raises(DupqError, match=r"a\.7z/Posts\.xml: damaged, cut short or no \.7z archive"):
        read(Member(str(archive), "Posts.xml"))


def test_damage_is_told_in_place_of_the_error_that_it_caused_in_the_reader(unpacker: str, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a.7z", {"Posts.xml": noise(300_000)})
    archive.write_bytes(archive.read_bytes()[:200_000])

    with pytest.raises(DupqError, match="damaged"), open_member(Member(str(archive), "Posts.xml")) as stream:
        raise DupqError(f"cut short after {len(stream.read())} bytes")


def test_an_archive_with_a_password_is_told_and_asks_nobody(unpacker: str, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a.7z", {"Posts.xml": POSTS}, password="secret")

    with pytest.raises(DupqError, match=r"a\.7z/Posts\.xml: damaged"):
        read(Member(str(archive), "Posts.xml"))


def test_without_the_program_memory_stays_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    megabyte = noise(1 << 20)
    archive = write_archive(tmp_path / "a.7z", {"Posts.xml": megabyte * 64}, filters=[{"id": py7zr.FILTER_COPY}])
    tracemalloc.start()

    with open_member(Member(str(archive), "Posts.xml")) as stream:
        size = sum(len(chunk) for chunk in iter(lambda: stream.read(1 << 20), b""))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert size == 64 << 20
    assert peak < 32 << 20


# On S3


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    server = ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as environment:
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            environment.setenv(name, value)
        storage._s3_client(storage._endpoint()).create_bucket(Bucket="dumps")
        yield "s3://dumps"
    server.stop()


def test_dumps_on_s3_are_found_and_read(bucket: str, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a.7z", {"Posts.xml": POSTS, "PostLinks.xml": LINKS})
    storage.write_bytes(f"{bucket}/all/a.com.7z", archive.read_bytes())
    storage.write_bytes(f"{bucket}/all/b.com/Posts.xml", POSTS)
    storage.write_bytes(f"{bucket}/all/b.com/PostLinks.xml", LINKS)

    first, second = find_sites(f"{bucket}/all")

    assert (first.site, second.site) == ("a.com", "b.com")
    assert [read(site.posts) for site in (first, second)] == [POSTS, POSTS]
    assert [read(site.links) for site in (first, second)] == [LINKS, LINKS]
    assert find_sites(f"{bucket}/all/b.com/Posts.xml") == [second]


def test_what_is_missing_on_s3_is_named(bucket: str) -> None:
    with pytest.raises(DupqError, match="s3://dumps/none: no such file or folder"):
        find_sites(f"{bucket}/none")
    with pytest.raises(DupqError, match=r"s3://dumps/none/Posts\.xml: no such file"):
        read(Member(f"{bucket}/none/Posts.xml"))
