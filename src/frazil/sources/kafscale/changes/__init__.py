"""From change events and keyed records to rows of a changelog; begin with ``change_events``."""
