import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import obstore
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore

from dupq import objects, storage, tables
from dupq.errors import DupqError, StorageError
from dupq.system import thread_map

SCHEMA = tables.KEY_PAIRS


@pytest.fixture(params=["local", "s3", "gs", "az"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty folder on the local disk, one on a real S3 server, and one of each other scheme, in obstore's memory."""
    if request.param == "local":
        return str(tmp_path)
    if request.param in ("gs", "az"):
        bucket = MemoryStore()
        monkeypatch.setattr(objects, "_store", lambda *_: bucket)
        return f"{request.param}://bucket/storage"
    return storage.join(request.getfixturevalue("s3"), f"storage-{tmp_path.name}")


def test_an_empty_object_that_stands_for_a_folder_is_no_file(s3: str) -> None:
    for key in ("markers/", "markers/sub/", "markers/sub/a.xml"):
        boto3.client("s3").put_object(Bucket="dupq", Key=key, Body=b"")
    assert [file.relative for file in storage.list_files(f"{s3}/markers")] == ["sub/a.xml"]
    assert storage.names_in(f"{s3}/markers") == []


def test_a_process_that_was_forked_says_so_and_does_not_wait(s3: str) -> None:
    storage.exists(f"{s3}/x")
    child = os.fork()
    if not child:
        try:
            storage.exists(f"{s3}/x")
        except StorageError as error:
            os._exit(0 if "forked" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("folder", ["s3"], indirect=True)
def test_more_objects_than_a_request_lists_are_all_listed(folder: str) -> None:
    names = [f"{number:04}" for number in range(1_010)]
    thread_map(lambda name: storage.write_bytes(storage.join(folder, name), b""), names)
    assert [file.relative for file in storage.list_files(folder)] == sorted(storage.names_in(folder)) == names


@pytest.mark.parametrize("folder", ["az"], indirect=True)
def test_azure_is_asked_for_no_range_from_the_end_and_no_copy(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    places, get = [storage.join(folder, name) for name in "ab"], obstore.get
    asked: list[object] = []

    def noted(*place: Any, options: Any = None) -> object:
        asked.append(options and options.get("range"))
        return get(*place, options=options)

    monkeypatch.setattr(obstore, "get", noted)
    monkeypatch.setattr(obstore, "copy", None)
    storage.write_bytes(places[0], bytes(100_000) + b"end")
    storage.move(*places)
    with storage.open_input(places[1]) as stream:
        stream.seek(100_000)
        assert stream.read() == b"end"
    assert asked == [None, (0, 65_536), (34_467, 100_003)]
    assert storage.names_in(folder) == ["b"]


@pytest.mark.parametrize(
    ("endpoint", "scheme", "authority"),
    [
        ("http://127.0.0.1:10000/shop", "http", "127.0.0.1:10000"),
        ("https://shop.blob.core.chinacloudapi.cn", "https", ".blob.core.chinacloudapi.cn"),
    ],
)
def test_pyarrow_is_told_where_azure_is(endpoint: str, scheme: str, authority: str) -> None:
    key = {"AZURE_STORAGE_ACCOUNT_NAME": "shop", "AZURE_STORAGE_ACCOUNT_KEY": "aGVsbG8="}
    schemes = {"blob_storage_scheme": scheme, "dfs_storage_scheme": scheme}
    hosts = {"blob_storage_authority": authority, "dfs_storage_authority": authority.replace("blob", "dfs")}
    same = pafs.AzureFileSystem("shop", account_key="aGVsbG8=", **schemes, **hosts)
    assert objects._azure_filesystem({**key, "AZURE_STORAGE_ENDPOINT": endpoint}).equals(same)


def test_what_is_written_is_read_back(folder: str) -> None:
    place = storage.join(folder, "a", "b.json")
    storage.write_json(place, {"é": 1})
    assert storage.read_json(place) == {"é": 1}
    storage.write_json(place, {"é": 2})
    assert storage.read_json(place) == {"é": 2}
    storage.delete(place)
    storage.delete(place)
    assert not storage.exists(place)


@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 300_000])
def test_any_bytes_of_a_file_are_read_in_any_order(folder: str, size: int) -> None:
    if folder.startswith("az://") and not size:
        return  # obstore's memory refuses a range of nothing in other words than Azure
    place, dice = storage.join(folder, "bytes"), np.random.default_rng(size)
    content = dice.bytes(size)
    storage.write_bytes(place, content)
    with storage.open_input(place) as stream:
        assert stream.size() == size
        for start in [0, *dice.integers(0, size + 1, 20)]:
            stream.seek(start)
            for count in dice.choice([1, 10, 3_000, 65_536, 100_000], 2):
                at = stream.tell()
                assert stream.read(int(count)) == content[at : at + count]
        stream.seek(0)
        assert stream.read() == content


def test_only_one_of_many_racers_creates_a_file(folder: str) -> None:
    place = storage.join(folder, "mark")
    with ThreadPoolExecutor(16) as racers:
        created = list(racers.map(lambda racer: storage.create(place, str(racer).encode()), range(16)))
    assert created.count(True) == 1
    assert storage.read_bytes(place) == str(created.index(True)).encode()


def test_files_are_listed_by_path_and_hidden_ones_left_out(folder: str) -> None:
    for name in ("b/2.parquet", "a/1.parquet", "_tmp/3.parquet", "a/.hidden.parquet", "a/note.txt"):
        storage.write_bytes(storage.join(folder, name), b"x")
    assert [file.relative for file in storage.list_files(folder, ".parquet")] == ["a/1.parquet", "b/2.parquet"]
    assert storage.list_files(storage.join(folder, "nowhere")) == []


def test_the_same_table_gives_the_same_bytes_without_metadata(folder: str) -> None:
    table = pa.table({"left": [1, 2], "right": [3, 4]})
    places = [storage.join(folder, name) for name in ("x.parquet", "y.parquet")]
    for place in places:
        storage.write_table(place, table, SCHEMA)
    assert storage.read_bytes(places[0]) == storage.read_bytes(places[1])
    assert storage.read_table(places[0], SCHEMA).to_pydict() == table.to_pydict()
    assert storage.read_schema(places[0]).metadata is None


def test_a_missing_and_a_damaged_file_are_named(folder: str) -> None:
    place = storage.join(folder, "x.parquet")
    with pytest.raises(DupqError, match=r"x\.parquet.*no such file"):
        storage.read_bytes(place)
    storage.write_bytes(place, b"PAR1 no table PAR1")
    with pytest.raises(DupqError, match=r"x\.parquet.*not a readable Parquet file"):
        storage.read_table(place)
    with pytest.raises(DupqError, match="not valid JSON"):
        storage.read_json(place)


def test_a_column_that_appears_twice_is_named(folder: str) -> None:
    place, sink = storage.join(folder, "x.parquet"), pa.BufferOutputStream()
    pq.write_table(pa.table([[1], [2]], names=["id", "id"]), sink)
    storage.write_bytes(place, sink.getvalue().to_pybytes())
    schema = pa.schema([("id", pa.int64())])
    for read in (storage.read_table, lambda *given: next(storage.read_batches(*given, 9))):
        with pytest.raises(DupqError, match=r"x\.parquet: column 'id' appears 2 times"):
            read(place, schema, ["id"])


def test_a_folder_is_cleared_of_all_but_what_is_kept_and_deleted_whole(folder: str) -> None:
    places = [storage.join(folder, "x", name) for name in ("a.parquet", "b.parquet", "deep/c.json")]
    for place in places:
        storage.write_bytes(place, b"content")
    assert storage.size(places[0]) == len(b"content")
    storage.clear(storage.join(folder, "x"), {places[0]})
    assert [storage.exists(place) for place in places] == [True, False, False]
    storage.delete_folder(storage.join(folder, "x"))
    storage.delete_folder(storage.join(folder, "x"))
    assert not storage.exists(places[0])


def test_row_groups_are_written_as_given_with_statistics_of_all_but_texts(folder: str) -> None:
    schema = pa.schema([pa.field("question_id", pa.int64(), nullable=False), pa.field("title", pa.string())])
    rows = pa.table({"question_id": [1, 2, 5], "title": ["a", "b", "c"]})
    place = storage.join(folder, "groups.parquet")
    storage.write_row_groups(place, [rows.slice(0, 2), rows.slice(2)], schema)
    with storage.open_input(place) as stream:
        footer = pq.read_metadata(stream)
    assert [footer.row_group(index).num_rows for index in range(footer.num_row_groups)] == [2, 1]
    assert footer.row_group(0).column(0).statistics.max == 2
    assert not footer.row_group(0).column(1).is_stats_set
    assert storage.read_table(place).to_pylist() == rows.to_pylist()
    storage.write_row_groups(place, [], schema)
    assert storage.read_table(place, schema).num_rows == 0


def test_lists_of_fractions_are_kept_to_the_bit_and_without_a_dictionary(folder: str) -> None:
    schema = tables.embeddings(3, True)
    nan, tiny = float("nan"), 2.0**-24
    rows = {
        "site": ["a", "a"],
        "question_id": [1, 2],
        "embedding": [np.array([0.5, -0.0, tiny], np.float16), np.array([nan, 65504, -1], np.float16)],
        "words": [[2, 3], []],
        "word_weights": [np.array([0.25, 1], np.float16), np.array([], np.float16)],
        "fingerprint": [1, 0],
    }
    place = storage.join(folder, "embeddings.parquet")
    table = pa.table(rows, schema=schema)
    storage.write_table(place, table, schema)
    read = storage.read_table(place)
    for name in ("embedding", "word_weights"):
        bits = [side[name].combine_chunks().flatten().view(pa.int16()) for side in (read, table)]
        assert bits[0].equals(bits[1])
    assert read.drop_columns(["embedding"]).to_pylist() == table.drop_columns(["embedding"]).to_pylist()
    with storage.open_input(place) as stream:
        columns = pq.read_metadata(stream).row_group(0)
    plain = [column["path_in_schema"] for column in columns.to_dict()["columns"] if not column["has_dictionary_page"]]
    assert [path.partition(".")[0] for path in plain] == ["embedding", "word_weights"]


def test_a_file_tells_its_smallest_and_its_largest_key(folder: str) -> None:
    for name, keys in (("b", [3, 7]), ("a", [5]), ("c", [])):
        uri = storage.join(folder, f"{name}.parquet")
        storage.write_table(uri, pa.table([pa.array(keys, pa.int64())], schema=tables.KEYS), tables.KEYS)
    spans = [storage.key_span(storage.join(folder, f"{name}.parquet")) for name in "abc"]
    assert spans == [(5, 5), (3, 7), None]


def test_a_table_is_read_in_pieces_of_the_columns_asked_for(folder: str) -> None:
    uri = storage.join(folder, "pieces.parquet")
    table = pa.table([range(100_000), ["t"] * 100_000, [str(number) for number in range(100_000)]], schema=tables.TEXTS)
    storage.write_table(uri, table, tables.TEXTS)
    pieces = list(storage.read_batches(uri, tables.TEXTS, ["text", "key"], 7_000))
    assert pa.Table.from_batches(pieces) == table.select(["text", "key"])
    assert max(map(len, pieces)) == 7_000
    storage.write_table(uri, table.slice(0, 0), tables.TEXTS)
    assert sum(map(len, storage.read_batches(uri, tables.TEXTS, ["key"], 10))) == 0
    storage.write_bytes(uri, b"no Parquet")
    with pytest.raises(DupqError, match=r"pieces\.parquet: not a readable Parquet file"):
        list(storage.read_batches(uri, tables.TEXTS, ["key"], 10))


def test_what_the_disk_does_not_allow_is_an_error_of_storage() -> None:
    with pytest.raises(StorageError, match=r"^/sys/x: cannot be written: no right to \([^\n]*$"):
        storage.write_bytes("/sys/x", b"")
    with pytest.raises(StorageError, match=r"^/proc/self/mem: cannot be read \(Input/output error\)$"):
        storage.checksum("/proc/self/mem")
    with pytest.raises(DupqError, match=r"^/proc/self/nothing: no such file$"):
        storage.read_bytes("/proc/self/nothing")


def test_a_disk_without_space_is_an_error_of_storage_and_nothing_is_left(tmp_path: Path) -> None:
    code = f"""
import resource
from dupq import storage
from dupq.errors import StorageError
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
def write_stream():
    with storage.open_output("{tmp_path}/b") as sink:
        sink.write(bytes(2000))
for write in (lambda: storage.write_bytes("{tmp_path}/a", bytes(2000)), write_stream):
    try:
        write()
    except StorageError as error:
        print(error)
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown == "".join(
        f"{tmp_path}/{name}: cannot be written: no space left (File too large); make room and start again\n"
        for name in "ab"
    )
    assert list(tmp_path.iterdir()) == []


def test_the_mean_length_of_lists_is_read_from_the_footer(tmp_path: Path) -> None:
    lists = [[1, 2, 3], [], [4], [5, 6]] * 500
    table = pa.table({"key": pa.array(range(2000)), "words": pa.array(lists, pa.list_(pa.int32()))})
    uri = str(tmp_path / "lists.parquet")
    pq.write_table(table, uri, row_group_size=300)
    assert storage.mean_length(uri, "words") == pytest.approx(7 / 4)  # an empty list counts as one value
    assert storage.mean_length(uri, "bodies") == 0
    pq.write_table(table[:0], uri)
    assert storage.mean_length(uri, "words") == 0
