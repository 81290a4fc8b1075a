"""For each finding a pipeline that makes it true, two more spellings of it, and a near miss."""
