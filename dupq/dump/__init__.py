"""Reading Stack Exchange dumps of any form (archives, XML, tables) into partitions and sorted shards."""
