"""From changelog to mirror: fold, plan, apply."""
