"""stub"""
from typing import Any
def without_large_sources(dataset: Any) -> Any:
    return dataset
