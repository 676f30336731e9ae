"""How a changelog follows its source: schema, column numbers, the state of each table; pure."""
