"""The words of the domain: schemas, partitioning and how they change; plain values only."""
