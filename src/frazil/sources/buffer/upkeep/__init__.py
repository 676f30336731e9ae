"""Work next to the batches: retention, back-pressure and health."""
