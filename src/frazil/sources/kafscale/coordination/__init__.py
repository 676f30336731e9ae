"""How workers share partitions: leases and offsets in etcd, or one worker alone (``workers``)."""
