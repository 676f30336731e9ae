"""Which segments there are and which of them a batch reads; begin with ``discovery``."""
