"""Encoding: the steps of a shard, and the pipeline of Ray Data that takes many shards through them."""
