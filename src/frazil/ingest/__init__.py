"""From a source into changelogs: plan, read in tasks, commit each table, book, acknowledge."""
