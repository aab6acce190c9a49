"""Reading Stack Exchange dumps of any form (archives, XML, tables) into parts and sorted shards."""
