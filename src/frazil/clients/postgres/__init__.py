"""PostgreSQL behind one door: sessions, replication, and what its catalog says."""
