"""From the parts that were read to sorted shards."""
