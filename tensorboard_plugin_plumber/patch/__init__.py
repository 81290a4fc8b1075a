"""A plan as a change to the user's own files."""
