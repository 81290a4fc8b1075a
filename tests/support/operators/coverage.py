"""The page docs/coverage.md, made of the table of operators."""

from __future__ import annotations

from collections.abc import Iterator

import tensorflow as tf

from tests.support.operators import CASES
from tests.support.operators.case import Case
from tests.support.operators.contexts import CONTEXTS
from tests.support.operators.others import OTHERS

_HEAD = """# What is seen of tf.data

Made by `python tools/coverage.py` from the table in `tests/support/operators`, to which
`tests/integration/test_operators.py` holds capture: for each pipeline that every row has the user's name for it,
its consumer, the user's line, what runs it, and visits and elements within 10 % of arithmetic or of the counts of
the pipeline's own functions. Each runs alone, in an interleave, behind a zip, below shuffle and repeat, and before
a batch, but where the column *not in* says otherwise.

## Operators

*Seen as*: the rows of the operator table, from the user's last operator down; `[…]` stands in a function body,
*dropped* is what TensorFlow does not run, *elsewhere* what runs out of this process's reach.

| tf.data | pipeline | seen as | not in | what is not seen, and why |
|---|---|---|---|---|
"""

_LIMITS = """
## What cannot be seen, and why

- **Behind a device.** `copy_to_device` and `prefetch_to_device` run what stands below them in an iterator of their
  own, whose handle never leaves TensorFlow. Its operators are shown as written, without counters; their time is
  part of the transfer's. Inside a function's body only the transfer itself is shown.
- **On service workers.** The client's model ends at `DataService`. What was distributed is shown as written, where
  `distribute` was used in this process; `from_dataset_id` names a dataset that nobody here knows.
- **A window's own iterator.** What a function of `window` or `group_by_window` is given hands on what is in memory
  already; it belongs to no row.
- **Readers of snapshots.** What reads the files for `load` and `snapshot`, a `reader_func` included, is one row.
- **Inputs that end before the first look.** An interleave may read all of a short input at once, after which
  TensorFlow drops its counters: the row then shows no elements.
- **One operation, no iterator.** `save` without checkpoints, `get_single_element`, `TFRecordWriter` and tables made
  from datasets run to their end inside one operation.
- **Names given through other names.** In code that autograph converted, a call through a variable stands at the
  first line of its statement.
- **Very many operators.** Of a pipeline of more than 1,000 (datasets that are used twice count twice) those nearest
  its end are described.
- **Ragged or sparse elements above a device or over large arrays.** Such a pipeline cannot be copied to be looked
  at; it is left alone, with one warning.

## Other public names

| tf.data | |
|---|---|
"""


def page() -> str:
    """The whole page."""
    rows = "".join(f"{_row(case)}\n" for case in CASES)
    others = "".join(f"| `{name}` | {what} |\n" for name, what in OTHERS.items())
    return f"{_HEAD}{rows}{_LIMITS}{others}"


def public_names() -> set[str]:
    """All that tf.data exports in this TensorFlow, as the table writes it."""
    service = tf.data.experimental.service
    spaces = {"": tf.data, "Dataset.": tf.data.Dataset, "experimental.": tf.data.experimental}
    spaces["experimental.service."] = service
    return {f"{prefix}{name}" for prefix, space in spaces.items() for name in dir(space) if name[0] != "_"}


def known_names() -> set[str]:
    """All that the table and the list of others name."""
    return {entry for case in CASES for entry in case.entries} | set(OTHERS)


def _row(case: Case) -> str:
    entries = ", ".join(f"`{entry}`" for entry in case.entries)
    excluded = ", ".join(context.replace("_", " ") for context in CONTEXTS if context in case.not_in)
    return f"| {entries} | {case.name} | {_tree(case)} | {excluded} | {case.unseen} |"


def _tree(case: Case) -> str:
    return "; ".join(_branch(case, position) for position, row in enumerate(case.rows) if row.parent is None)


def _branch(case: Case, position: int) -> str:
    row = case.rows[position]
    inputs = list(_below(case, position, in_body=False))
    bodies = list(_below(case, position, in_body=True))
    text = row.type
    if not row.runs:
        text += " *elsewhere*" if case.unseen else " *dropped*"
    if bodies:
        text += f" [{' or '.join(bodies)}]"
    if len(inputs) > 1:
        return f"{text} ← ({', '.join(inputs)})"
    return f"{text} ← {inputs[0]}" if inputs else text


def _below(case: Case, position: int, *, in_body: bool) -> Iterator[str]:
    for index, row in enumerate(case.rows):
        if row.parent == position and row.in_body is in_body:
            yield _branch(case, index)
