"""The hook: live iterators, their counters, the graph and its source lines, and the host."""
