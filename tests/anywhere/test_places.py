"""No place is taken for granted: not a home, a package or a /dev/shm that can be written, nor a short TMPDIR."""

import hashlib
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import test_image
from elsewhere import CGROUPS, NOBODY, SMALL_SHM, WITHOUT_SHM, in_cgroup, read_only, read_only_root, run_as
from inline import without_ray
from riddles.grammar import write_sample
from test_kernel_cache import ASK, small_package

from dupq import kernel_cache, local_files
from dupq.errors import ClusterError
from dupq.job import cluster
from dupq.pipelines.train import FromDumpJob, from_dump

REPOSITORY = Path(kernel_cache.__file__).parents[1]
QUICK = ("title_body.epochs=1", "training.epochs=1", "calibration.precision=0.5")
NO_NAME = 123456  # a user that the system does not know
TABLES = ("pairs", "clusters", "cluster_stats", "embeddings")


def digests(output: Path) -> dict[str, str]:
    """What the tables of the run below `output` hold; marks name URIs, so they differ."""
    (run,) = (path for path in (output / "runs").iterdir() if path.is_dir())
    files = [file for table in TABLES for file in sorted((run / table).rglob("*.parquet"))]
    assert len(files) >= len(TABLES)
    return {str(file.relative_to(run)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sample's dump, and what comes of it as usual."""
    folder = tmp_path_factory.mktemp("plain")
    archive = str(write_sample(folder / "dump", questions=300).archive)
    with without_ray():
        from_dump(FromDumpJob((archive,), str(folder / "out"), "dupq", None, QUICK))
    return folder


def command(dump: str, output: str) -> list[str]:
    chosen = [word for assignment in QUICK for word in ("--set", assignment)]
    script = str(REPOSITORY / "jobs" / "from_dump.py")
    chosen += ["--preset", "dupq", "--reranker", "none"]
    return [sys.executable, script, "--dump", dump, "--output", output, *chosen]


@pytest.fixture
def nobodys() -> Iterator[Path]:
    """A folder of user nobody's, which he may enter from the root on, as pytest's are not."""
    with tempfile.TemporaryDirectory(prefix="dupq-test-", dir="/tmp") as folder:
        os.chown(folder, NOBODY, NOBODY)
        yield Path(folder)


@pytest.fixture
def memory_limit() -> Iterator[str]:
    """What puts a process under a limit of 2 GB; nothing where no control group can be made."""
    if not os.access(CGROUPS / "cgroup.procs", os.W_OK):
        yield ""
        return
    name = f"dupq-test-{os.getpid()}"
    yield in_cgroup(name, 2 << 30)
    for _ in range(300):
        if not (CGROUPS / name / "cgroup.procs").read_text():  # Ray's processes end a little after the job
            break
        time.sleep(0.1)
    (CGROUPS / name).rmdir()


@pytest.mark.ray
@pytest.mark.usefixtures("elsewhere")
def test_a_container_that_is_read_only_gets_the_same_bytes(plain: Path, nobodys: Path, memory_limit: str) -> None:
    """Its user has no name and no home, the language C, a long TMPDIR, one CPU, 2 GB, and no /dev/shm.

    Only /tmp and the folder of the output can be written, and what is written there only the user may read.
    """
    shutil.copytree(plain / "dump", nobodys / "dump")
    temporary = "/tmp/" + "t" * 84
    os.chown(nobodys, NO_NAME, NO_NAME)
    set_up = f"{WITHOUT_SHM}{memory_limit}{read_only_root(REPOSITORY, nobodys)}mkdir -m 777 {temporary}\numask 077\n"
    environment = {"HOME": "/nonexistent", "TMPDIR": temporary, "LC_ALL": "C"}
    environment |= {name: value for name, value in os.environ.items() if name.startswith("RAY_idle")}  # as other tests
    cpus = [min(os.sched_getaffinity(0))]
    ended = run_as(NO_NAME, set_up, command("/mnt/dump", "/mnt/out"), environment, cpus)
    assert ended.returncode == 0, ended.stderr
    assert digests(nobodys / "out") == digests(plain / "out")


@pytest.fixture
def image() -> Iterator[Path]:
    """The folder /opt/dupq of the image: what is copied into it, and the compiled code that `dupq warm` leaves."""
    with tempfile.TemporaryDirectory(prefix="dupq-image-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for source in map(REPOSITORY.joinpath, test_image.copied()):
            if source.is_dir():
                shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, folder)
        compiled = Path(environment_in(folder)["NUMBA_CACHE_DIR"])
        place = kernel_cache.caching._CacheLocator.get_suitable_cache_subpath(str(folder / "dupq" / "_"))
        (compiled / place).mkdir(parents=True)
        for kernel in (REPOSITORY / "dupq" / "__pycache__").glob("*.nb[ic]"):
            shutil.copy(kernel, compiled / place)
        yield folder


def environment_in(folder: Path) -> dict[str, str]:
    return {name: value.replace("/opt/dupq", str(folder)) for name, value in test_image.environment().items()}


@pytest.mark.ray
@pytest.mark.full
@pytest.mark.usefixtures("elsewhere")
def test_the_image_that_is_read_only_with_64_mb_of_shared_memory_gets_the_same_bytes(
    plain: Path, nobodys: Path, image: Path
) -> None:
    """As docker and Kubernetes run it: its files, its user and its variables; /tmp and the output can be written."""
    shutil.copytree(plain / "dump", nobodys / "dump")
    os.chown(nobodys, test_image.user(), test_image.user())
    variables = environment_in(image) | {"HOME": "/tmp", "PYTHONPATH": f"{image}:{image}/papers"}
    words = [sys.executable, "-m", "dupq.cli", "from-dump", *command("/mnt/dump", "/mnt/out")[2:]]
    ended = run_as(test_image.user(), SMALL_SHM + read_only_root(image, nobodys), words, variables)
    assert ended.returncode == 0, ended.stderr
    assert "compil" not in ended.stderr
    assert digests(nobodys / "out") == digests(plain / "out")


@pytest.mark.usefixtures("elsewhere")
def test_compiled_code_is_kept_where_it_can_be(tmp_path: Path, nobodys: Path) -> None:
    small_package(tmp_path)
    environment = {"PYTHONPATH": str(tmp_path), "HOME": "/nonexistent", "TMPDIR": str(nobodys)}
    ask = [sys.executable, "-P", "-B", "-c", ASK]

    def asked(set_up: str = read_only(tmp_path)) -> tuple[str, str]:
        ended = run_as(NOBODY, set_up, ask, environment)
        return ended.stdout.strip(), ended.stderr

    everywhere = "".join(f"mount -o remount,ro,bind {place}\n" for place in ("/", "/dev/shm"))
    answer, told = asked(everywhere)
    assert answer == "19 0", told
    assert told.count("\n") == 1
    assert "compiled code cannot be kept" in told
    assert "NUMBA_CACHE_DIR" in told
    assert asked() == ("19 0", "")
    own = nobodys / f"dupq-{NOBODY}"
    assert own.stat().st_mode & 0o777 == 0o700
    assert asked() == ("19 1", "")
    shutil.rmtree(own)
    run_as(0, "", ask, environment | {"HOME": "/root"})  # leaves it beside the sources, as an image would have it
    assert asked() == ("19 1", "")
    assert not list(own.rglob("*.nbc"))


def test_what_another_user_may_write_to_is_not_taken(tmp_path: Path) -> None:
    name = f"dupq-{os.geteuid()}"
    assert local_files.own_folder([tmp_path]) == tmp_path / name
    (tmp_path / name).chmod(0o770)
    assert local_files.own_folder([tmp_path]) is None
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / name).symlink_to(tmp_path / "elsewhere")
    assert local_files.own_folder([tmp_path / "linked"]) is None
    assert local_files.own_folder([tmp_path / "missing", tmp_path / "linked", "~", tmp_path / "elsewhere"]) == (
        tmp_path / "elsewhere" / name
    )
    if os.geteuid() == 0:
        os.chown(tmp_path / name, NOBODY, NOBODY)
        (tmp_path / name).chmod(0o700)
        assert local_files.own_folder([tmp_path]) is None


def test_rays_sockets_are_in_a_short_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = local_files.own_folder(["/tmp"])
    assert short is not None
    monkeypatch.setenv("RAY_TMPDIR", str(short))
    assert cluster._session_folder() is None
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / ("x" * 60)))
    assert cluster._session_folder() == str(short / "ray")
    monkeypatch.setattr(cluster, "_SHORT_FOLDERS", ("/proc",))
    with pytest.raises(ClusterError, match=r"x{60}/ray.*set RAY_TMPDIR to a short path"):
        cluster._session_folder()


@pytest.mark.parametrize("limit", ["50000", "150000"])
def test_a_container_with_a_part_of_a_cpu_has_one_without_a_word_of_ray(
    limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cpu.max").write_text(f"{limit} 100000\n")
    monkeypatch.setattr(cluster, "_GROUPS", tmp_path)
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr(cluster, "_here", None)
    monkeypatch.setattr(logging.getLogger("ray"), "propagate", True)
    cluster.connect("none")
    assert cluster.cpus() == 1
    assert not caplog.messages


def test_a_job_takes_the_cpus_that_it_is_given() -> None:
    all_of_them = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(all_of_them)})
        assert cluster._cpus_here() == 1
    finally:
        os.sched_setaffinity(0, all_of_them)
