"""Makes a pipeline again, with other settings where it is asked to: the same elements, other operators."""
