"""Cuts the function of a map in two, so that a cache can stand between: `input → first → cache → rest`.

Most people decode and augment in one map. What it returns is random, so no cache may stand behind it; but
the decoding is the same in each epoch. A `Split` holds two traced functions that do together what the one
did: `first` what is the same for the same element in each epoch, `rest` all that draws, writes or runs
Python, and what follows from it, as often and in the same order as before. The cut is where the fewest
bytes cross, among those that leave most of the deterministic work before it (`cut`).

How to use it:

    for one in candidates(dataset):              # each map of a pipeline, where a cut may pay
        for split in one.splits:                 # the one that saves most first, then those that hold less
            if prove_split(split, one.map_dataset, 8).same:
                made = applied(
                    split,
                    one.map_dataset,
                    input_dataset,
                    between=lambda first: first.cache(),
                    through=one.through,
                    pipeline=dataset,
                )

`input_dataset` is the map's own input or what a rewrite made of it. Where that ends in a shuffle or a repeat, on
which no cache may stand, `through` puts the first half and the cache below them (`lowering`). Everything else of
the pipeline is rebuilt around `made` as around any operator that was made again.
"""

from tensorboard_plugin_plumber.rewrite.split.candidates import Candidate, candidates
from tensorboard_plugin_plumber.rewrite.split.checking import prove_split
from tensorboard_plugin_plumber.rewrite.split.splitting import (
    Split,
    applied,
    split_at_fewest_bytes,
    split_at_randomness,
    splits_of,
)

__all__ = [
    "Candidate",
    "Split",
    "applied",
    "candidates",
    "prove_split",
    "split_at_fewest_bytes",
    "split_at_randomness",
    "splits_of",
]
