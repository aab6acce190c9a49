"""From candidate pairs to clusters: evidence, calibration, the best partition, canonical questions, stable ids."""
