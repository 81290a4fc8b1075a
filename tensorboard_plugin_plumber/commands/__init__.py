"""Commands that have a module of their own, and what all of them share."""
