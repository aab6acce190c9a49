"""Which sites are found in files and folders, by their names, and what is said of those that cannot be read."""

import warnings
import zipfile
from pathlib import Path

import py7zr
import pytest
from dump_files import LINKS, POSTS, noise, upload, with_header_changed, write_archive, write_files, write_parquet

from dupq.dump.files import DumpSite, Member
from dupq.dump.sites import find_sites
from dupq.errors import DupqError, SettingError

LINK_COLUMNS = ("Id", "PostId", "RelatedPostId", "LinkTypeId", "CreationDate")


def write(folder: Path, *names: str) -> Path:
    """Files of the kinds that their names say; an archive has both tables, unless its name has one."""
    for name in names:
        is_links = "links" in name.lower()
        if name.endswith(".7z"):
            tables = {"Posts.xml": POSTS} if "-Posts" in name else {"PostLinks.xml": LINKS}
            both = {"Posts.xml": POSTS, "PostLinks.xml": LINKS, "Tags.xml": b""}
            write_archive(folder / name, tables if "-" in name.removesuffix(".com.7z") else both)
        elif name.endswith(".parquet"):
            write_parquet(folder, name, **({"columns": LINK_COLUMNS} if is_links else {}))
        else:
            write_files(folder, name, content=LINKS if is_links else POSTS)
    return folder


def sites(*uris: Path | str, site: str | None = None) -> dict[str, list[str]]:
    """The sources of posts, then of links, by site."""
    found, failed, _ = find_sites([str(uri) for uri in uris], site)
    assert failed == []
    assert found == sorted(found, key=lambda dump: dump.site)
    return {dump.site: [member.source for member in dump.posts + dump.links] for dump in found}


def below(folder: Path | str, sources: dict[str, str]) -> dict[str, list[str]]:
    return {site: [f"{folder}/{name}" for name in names.split()] for site, names in sources.items()}


@pytest.mark.parametrize(
    ("member", "form", "compression", "is_packed"),
    [
        (Member("/a/Posts.xml"), "xml", None, False),
        (Member("/a/POSTS.XML.GZ"), "xml", "gzip", True),
        (Member("/a.7z", "x.zst/Posts.xml"), "xml", None, True),
        (Member("/a/q.tsv.xz"), "csv", "xz", True),
        (Member("s3://a/q.csv.zst"), "csv", "zstd", True),
        (Member("/a/q.parquet"), "parquet", None, False),
    ],
)
def test_a_member_is_what_its_name_says(member: Member, form: str, compression: str | None, is_packed: bool) -> None:
    assert (member.form, member.compression, member.is_packed) == (form, compression, is_packed)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("deep/er/c.com.7z a.com/Posts.xml a.com/PostLinks.xml.gz a.com/Tags.xml notes.txt q.csv Posts.json", {
            "a.com": "a.com/Posts.xml a.com/PostLinks.xml.gz",
            "c.com": "deep/er/c.com.7z/Posts.xml deep/er/c.com.7z/PostLinks.xml",
        }),
        ("a-b.com-Posts.7z a-b.com-PostLinks.7z a-b.com-Comments.7z cs.xml", {
            "a-b.com": "a-b.com-Posts.7z/Posts.xml a-b.com-PostLinks.7z/PostLinks.xml",
        }),
        ("a.com-posts.XML.zst a.com-PostLinks.xml.bz2 b.com-Posts.xml b.com-Users.xml", {
            "a.com": "a.com-posts.XML.zst a.com-PostLinks.xml.bz2",
            "b.com": "b.com-Posts.xml",
        }),
        ("cs/posts/1.parquet cs/posts/0.parquet cs/posts/y=2/0.parquet cs/PostLinks/0.parquet "
         "t/questions/0.parquet t/answers/0.parquet", {
            "cs": "cs/posts/0.parquet cs/posts/1.parquet cs/posts/y=2/0.parquet cs/PostLinks/0.parquet",
            "t": "t/answers/0.parquet t/questions/0.parquet",
        }),
        ("questions/site=a.com/x/0.parquet links/site=a.com/0.parquet questions/site=b.com/c.com-Posts.parquet", {
            "a.com": "questions/site=a.com/x/0.parquet links/site=a.com/0.parquet",
            "b.com": "questions/site=b.com/c.com-Posts.parquet",
        }),
        ("x/c.com-Posts.parquet x/d.com.parquet x/part-0-6c.snappy.parquet", {
            "c.com": "x/c.com-Posts.parquet",
            "d.com": "x/d.com.parquet",
            "x": "x/part-0-6c.snappy.parquet",
        }),
    ],
)  # fmt: skip
def test_the_sites_of_a_folder_are_told_by_the_names_of_its_files(names: str, expected: dict, tmp_path: Path) -> None:
    write(tmp_path, *names.split())
    assert sites(tmp_path) == sites(tmp_path, f"file://{tmp_path}") == below(tmp_path, expected)


@pytest.mark.parametrize(
    ("named", "others", "expected"),
    [
        (
            "a.com-Posts.7z",
            "a.com-PostLinks.7z b.com-PostLinks.7z",
            {"a.com": "{}/Posts.xml a.com-PostLinks.7z/PostLinks.xml"},
        ),
        ("a.com-posts.XML.zst", "a.com-PostLinks.xml.bz2 b.com-Posts.xml", {"a.com": "{} a.com-PostLinks.xml.bz2"}),
        ("cs.XML.xz", "cs-PostLinks.xml", {"cs": "{} cs-PostLinks.xml"}),
        ("t/Posts.xml.gz", "t/PostLinks.xml", {"t": "{} t/PostLinks.xml"}),
        ("x/part-0-6c.snappy.parquet", "", {"part-0-6c.snappy": "{}"}),
        ("posts/x.parquet", "", {"x": "{}"}),
    ],
)
def test_a_file_that_is_named_brings_its_links(named: str, others: str, expected: dict, tmp_path: Path) -> None:
    write(tmp_path, named, *others.split())
    assert sites(tmp_path / named) == below(tmp_path, {site: of.format(named) for site, of in expected.items()})


def test_a_relative_path_names_its_folder_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write_files(tmp_path / "travel", "Posts.xml"))
    assert list(sites("Posts.xml")) == list(sites(".")) == ["travel"]


def test_tables_are_told_apart_by_what_is_in_them_and_archives_read_in_any_case(tmp_path: Path) -> None:
    names = ("dump/POSTS.XML", "dump/postlinks.xml", "NotPosts.xml", "posts")
    archive = write_archive(tmp_path / "a.7z", dict.fromkeys(names, POSTS))
    folder = write_parquet(tmp_path / "cs", "one.parquet", columns=("id", "posttypeid", "body"))
    write_parquet(folder, "two.parquet", columns=LINK_COLUMNS)
    write_parquet(folder, "users.parquet", columns=("Id", "DisplayName", "AboutMe"))
    expected = below(tmp_path, {"cs": "cs/one.parquet cs/two.parquet"})
    assert sites(tmp_path) == expected | below(archive, {"a": "dump/POSTS.XML dump/postlinks.xml"})


# Archives


def test_an_archive_with_two_files_of_one_name_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "all.7z"
    with warnings.catch_warnings(action="ignore"), py7zr.SevenZipFile(archive, "w") as packed:
        packed.writestr(b"<posts></posts>", "Posts.xml")
        packed.writestr(b"<posts></posts>", "Posts.xml")
    with pytest.raises(DupqError, match=r"all\.7z: holds Posts\.xml twice; expected is one site only"):
        sites(archive)


def test_a_link_in_an_archive_is_no_file_of_it_and_an_empty_one_has_no_dump(tmp_path: Path) -> None:
    (tmp_path / "Posts.xml").symlink_to("/etc/hostname")
    with py7zr.SevenZipFile(tmp_path / "a.7z", "w") as archive:
        archive.write(tmp_path / "Posts.xml", "Posts.xml")
    for archive in (tmp_path / "a.7z", write_archive(tmp_path / "empty.7z", {})):
        with pytest.raises(DupqError, match=rf"{archive}: no dump in it"):
            sites(archive)


def test_an_archive_that_is_cut_short_or_none_is_named(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "cut.7z", {"Posts.xml": noise(5000)}, plain_header=True)
    whole = archive.read_bytes()
    asks_for_more = with_header_changed(whole, b"\x05\x01", b"\x05\x7f")  # the number of files
    for content in (b"", whole[:31], whole[:100], whole[:-1], asks_for_more, noise(5000), whole[:8] + noise(5000)):
        archive.write_bytes(content)
        for uri in (archive, tmp_path):
            with pytest.raises(DupqError, match=r"cut\.7z: damaged, cut short or no \.7z archive"):
                sites(uri)


def test_an_archive_with_a_password_for_its_header_is_told_and_asks_nobody(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a.7z", {"Posts.xml": POSTS}, password="secret", header_encryption=True)
    with pytest.raises(DupqError, match=r"a\.7z: has a password"):
        sites(archive)


# Several


def test_one_name_for_several_sites_is_a_wrong_setting(tmp_path: Path) -> None:
    write_files(tmp_path, "a.com/Posts.xml", "b.com/Posts.xml")
    with pytest.raises(SettingError, match=r"several sites \(a\.com, b\.com\), which cannot all be called 'c\.com'"):
        sites(tmp_path, site="c.com")


@pytest.mark.parametrize("site", ["", "a/b", "..", "1.5", "a" * 101, "ж" * 51, "a\n", "site=a", "_hidden"])
def test_a_given_name_must_be_fit_too(site: str, tmp_path: Path) -> None:
    with pytest.raises(DupqError, match="is no site name") as caught:
        sites(write_files(tmp_path / "a", "Posts.xml"), site=site)
    assert len(str(caught.value)) < 300 + len(str(tmp_path))


@pytest.mark.parametrize("site", ["3dprinting.stackexchange.com", "ж" * 50, "x" * 100, "1e"])
def test_names_of_sites_that_are_fit(site: str, tmp_path: Path) -> None:
    assert list(sites(write_files(tmp_path / "a", "Posts.xml"), site=site)) == [site]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a.com.7z", "a.com/Posts.xml"),
        ("a.com/Posts.xml", "a.com/Posts.xml.gz"),
        ("a.com-Posts.7z", "a.com.7z"),
        ("a.com/posts/0.parquet", "b/a.com/posts/0.parquet"),
        ("a.com.7z", "a.com/0.parquet"),
    ],
)
def test_a_site_that_is_there_twice_is_refused(first: str, second: str, tmp_path: Path) -> None:
    for name in (first, second):
        if name.endswith(".7z"):
            write_archive(tmp_path / name, {"Posts.xml": POSTS})
        else:
            (write_parquet if name.endswith(".parquet") else write_files)(tmp_path, name)
    for uris in ([tmp_path], [tmp_path / first, tmp_path / second]):
        if "0.parquet" in first + second and len(uris) > 1:
            continue  # a part that is named by itself is called otherwise
        with pytest.raises(DupqError, match=r" both hold the posts of 'a\.com'; ingest one of them") as caught:
            sites(*uris)
        assert f"{tmp_path}/{first}" in str(caught.value)
        assert f"{tmp_path}/{second}" in str(caught.value)


def test_links_without_posts_are_refused(tmp_path: Path) -> None:
    write_archive(tmp_path / "1" / "a.com-PostLinks.7z", {"PostLinks.xml": LINKS})
    write_archive(tmp_path / "2" / "a.com.7z", {"PostLinks.xml": LINKS})
    write_files(tmp_path / "3" / "a.com", "PostLinks.xml.gz")
    write_parquet(tmp_path / "4" / "a.com", "links.parquet", columns=LINK_COLUMNS)
    for folder, missing in {"1": "a.com-Posts.7z", "2": "Posts.xml", "3": "Posts.xml.gz", "4": "Posts"}.items():
        with pytest.raises(DupqError) as caught:
            sites(tmp_path / folder)
        assert str(caught.value).endswith(f": links of 'a.com' without its posts; {missing} is missing")


def test_what_has_no_dump_is_named_though_others_have_one(tmp_path: Path) -> None:
    good = write_files(tmp_path / "good", "Posts.xml")
    write_files(tmp_path, "bad/Users.xml", "bad/notes.txt", "bad/a.com-Users.xml", content=b"<users/>")
    write_files(tmp_path, "empty/.hidden/Posts.xml")
    write_archive(tmp_path / "bad" / "a-Users.7z", {"Users.xml": b"<users></users>"})
    names = ("Users.xml", "notes.txt", "a.com-Users.xml", "a-Users.7z")
    for name in ("empty", "bad", *(f"bad/{name}" for name in names)):
        with pytest.raises(DupqError) as caught:
            sites(good, tmp_path / name)
        assert str(caught.value).startswith(f"{tmp_path}/{name}: no dump in it; looked for .7z archives with Posts.xml")


# Several, of which some cannot be read


def failures(*uris: Path, site: str | None = None) -> tuple[list[str], dict[str, str]]:
    """The names of the sites that were found, and why others failed."""
    found, failed, _ = find_sites(list(map(str, uris)), site)
    assert failed == sorted(failed, key=lambda failure: failure[0])
    return [dump.site for dump in found], {name: str(error) for name, error in failed}


def test_every_reason_fails_its_own_site_only(tmp_path: Path) -> None:
    write_files(tmp_path, "a/Posts.xml", "my dump (2)/Posts.xml", "twice/Posts.xml", "twice/Posts.xml.gz")
    write_files(tmp_path, "lone/PostLinks.xml", content=LINKS)
    write_archive(tmp_path / "locked.7z", {"Posts.xml": POSTS}, password="secret")
    write_archive(tmp_path / "many.7z", {"a/Posts.xml": POSTS, "b/Posts.xml": POSTS})
    write_files(tmp_path, "parquet/0.parquet", content=b"PAR1 nothing PAR1")

    found, failed = failures(tmp_path)

    assert found == ["a"]
    reasons = {
        "locked": "has a password",
        "lone": "links of 'lone' without its posts",
        "many": "expected is one site only",
        "my dump (2)": "is no site name",
        "parquet": "not a readable Parquet file",
        "twice": "both hold the posts",
    }
    assert failed.keys() == reasons.keys()
    assert all(reason in failed[name] for name, reason in reasons.items())


@pytest.mark.parametrize(("good", "bad"), [("Posts", "PostLinks"), ("PostLinks", "Posts")])
def test_a_site_of_which_one_file_is_damaged_is_not_read_without_it(good: str, bad: str, tmp_path: Path) -> None:
    write_archive(tmp_path / f"b.com-{good}.7z", {f"{good}.xml": POSTS if good == "Posts" else LINKS})
    write_files(tmp_path, f"b.com-{bad}.7z", "a.com/Posts.xml")
    (tmp_path / f"b.com-{bad}.7z").write_bytes(noise(100))
    found, failed = failures(tmp_path)
    assert found == ["a.com"]
    assert list(failed) == ["b.com"]
    assert f"b.com-{bad}.7z: damaged" in failed["b.com"]


def test_with_a_site_named_nothing_may_fail_and_else_not_all(tmp_path: Path) -> None:
    write_files(tmp_path, "a/Posts.xml")
    write_files(tmp_path, "b.7z", content=noise(100))
    with pytest.raises(DupqError, match=r"b\.7z: damaged"):
        failures(tmp_path, site="a.com")
    write_files(tmp_path / "bad", "a.7z", "b.7z", content=noise(100))
    with pytest.raises(DupqError, match=r"^2 sites cannot be read:\n  .*/a\.7z: damaged.*\n  .*/b\.7z: damaged[^\n]*$"):
        failures(tmp_path / "bad")


def test_files_may_be_left_out_by_how_their_uris_begin(tmp_path: Path) -> None:
    write_files(tmp_path, "a/Posts.xml", "out/b/Posts.xml", "outer/c/Posts.xml")
    found, failed, _ = find_sites([str(tmp_path)], left_out=[f"{tmp_path}/out/"])
    assert [site.site for site in found] == ["a", "c"]
    assert failed == []
    with pytest.raises(DupqError, match="out: no dump in it"):
        find_sites([f"{tmp_path}/a", f"{tmp_path}/out"], left_out=[f"{tmp_path}/out/"])


# Tables from elsewhere


def test_tables_below_a_folder_are_one_site_called_like_it(tmp_path: Path) -> None:
    names = ["a.csv", "b.TSV", "c.csv.gz", "d.tsv.xz", "deep/e.csv.zst", "deep/f.jsonl.bz2", "h.json"]
    folder = tmp_path / "my faq (2)"
    write_files(folder, *names, "README.md", content=b"id,title\n")
    write_parquet(folder, "g.parquet", columns=("question", "answer"))
    expected = tuple(Member(f"{folder}/{name}") for name in sorted([*names, "g.parquet"]))
    ((site,), failed, _) = find_sites([str(folder)])
    assert failed == []
    assert site == DumpSite("my-faq-2", expected, is_table=True)
    assert [dump.site for dump in find_sites([f"{folder}/d.tsv.xz"]).sites] == ["d"]
    assert find_sites([f"{folder}/deep", f"{folder}/a.csv"], "quora").sites == [
        DumpSite("quora", tuple(Member(f"{folder}/{name}") for name in ("a.csv", *names[4:6])), is_table=True)
    ]


def test_tables_in_a_zip_are_found(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "faq.zip", "w") as archive:
        for name in ("a/q.csv", "b.jsonl", "README", "__MACOSX/._b.jsonl", "c.csv.gz"):
            archive.writestr(name, b"title\n")
    (site,) = find_sites([str(tmp_path / "faq.zip")]).sites
    assert site.site == "faq"
    assert [member.name for member in site.posts] == ["a/q.csv", "b.jsonl"]


def test_tables_beside_a_dump_are_left_alone_unless_columns_are_named(tmp_path: Path) -> None:
    write_files(tmp_path, "a.com/Posts.xml", "notes.csv")
    assert [site.site for site in find_sites([str(tmp_path)]).sites] == ["a.com"]
    assert find_sites([str(tmp_path)], "faq", has_columns=True).sites[0].posts == (Member(f"{tmp_path}/notes.csv"),)


def test_several_tables_are_several_sites_and_none_can_have_a_name_of_signs(tmp_path: Path) -> None:
    write_files(tmp_path, "a.csv", "b.csv", "123.csv")
    assert [site.site for site in find_sites([f"{tmp_path}/a.csv", f"{tmp_path}/b.csv"]).sites] == ["a", "b"]
    with pytest.raises(DupqError, match=r"'123' is no site name .*; give one with --site"):
        find_sites([f"{tmp_path}/123.csv"])


# On S3


def test_dumps_and_tables_on_s3_are_found(s3: str, tmp_path: Path) -> None:
    names = ("a.com.7z", "b.com-Posts.7z", "b.com-PostLinks.7z", "c.com/Posts.xml", "c.com/postlinks.xml.gz")
    uri = upload(write(tmp_path, *names, "d.com/posts/0.parquet", "d.com/posts/1.parquet"), f"{s3}/found")
    named = {"b.com": "b.com-Posts.7z/Posts.xml b.com-PostLinks.7z/PostLinks.xml"}
    named["c.com"] = "c.com/Posts.xml c.com/postlinks.xml.gz"
    others = {
        "a.com": "a.com.7z/Posts.xml a.com.7z/PostLinks.xml",
        "d.com": "d.com/posts/0.parquet d.com/posts/1.parquet",
    }

    assert sites(uri) == below(uri, named | others)
    assert sites(f"{uri}/b.com-Posts.7z", f"{uri}/c.com/Posts.xml") == below(uri, named)
    (site,) = find_sites([upload(write_files(tmp_path / "t", "a.csv", "b.tsv.gz"), f"{s3}/tables/")], "quora").sites
    assert site.posts == (Member(f"{s3}/tables/a.csv"), Member(f"{s3}/tables/b.tsv.gz"))
    with pytest.raises(DupqError, match="s3://dupq/none: no such file or folder"):
        sites(f"{s3}/none")
