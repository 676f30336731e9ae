"""What commands print, as lines for people and objects for programs."""
