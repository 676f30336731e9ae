"""What a merge will do, decided from facts and without doing it; pure. Start with ``plan.py``."""
