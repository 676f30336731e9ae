"""What commands print: lines of text, and objects for ``--output json``; one module per verb."""
