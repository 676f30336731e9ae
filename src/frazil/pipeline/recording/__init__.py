"""What the loops learn becomes status, metrics, log events, spans and error reports; only here."""
