"""Sites are ingested side by side, also on a cluster that has no CPU before there is work."""

import threading

import pytest

from dupq.dump.files import DumpSite
from dupq.dump.reading import Ingest
from dupq.job import cluster
from dupq.pipelines import ingest
from dupq.settings.config import Settings


def test_a_cluster_without_a_cpu_yet_is_given_several_sites_at_once(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(3, timeout=10)

    def ingest_site(*_: object) -> float:
        together.wait()  # raises if the others do not begin before this one ends
        return 1.0

    monkeypatch.setattr(cluster, "may_grow", lambda: True)
    monkeypatch.setattr(cluster, "cpus", lambda: 1)
    monkeypatch.setattr(ingest, "_ingest_site", ingest_site)
    sites = [DumpSite(name, (), ()) for name in "abc"]
    assert ingest.ingest_sites(sites, Ingest(str(tmp_path), Settings().ingest, False)) == 1.0
