"""Steps of the nightly job: terms, calibration, pairs, the partition, clusters, the worklist."""
