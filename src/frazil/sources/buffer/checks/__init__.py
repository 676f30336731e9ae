"""A buffer database, checked before anything is started."""
