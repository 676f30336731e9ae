"""What benchmarks share: their lake, sources and reports."""
