"""The version, in a module of its own that the build can read without importing the package."""

__version__ = "0.1.0"
