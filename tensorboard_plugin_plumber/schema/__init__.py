"""The one schema: message classes of `proto/`, and the values that cross the layers."""
