"""A JSON Schema that nobody has reviewed, such as a server's of its own answers, checked within a number of steps.

What costs more than ``STEPS`` is not checked at all, which is said: it is no proof of anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from jsonschema import FormatChecker
from referencing import Registry

from kblockd.domain.contract.arguments import FORMATS, Validator
from kblockd.domain.contract.steps import STEPS, TooCostly, within

SECONDS: Final = 1.0
"""Of this thread's own work: how busy the machine is must not decide what is proved. The library puts whole values into
the words of each fault, which no step counts."""

__all__ = ["STEPS", "TooCostly", "keeps"]


def keeps(
    schema: Mapping[str, Any], value: Any, steps: int = STEPS, clock: Callable[[], float] = time.thread_time
) -> bool:
    """Whether the value is what the schema promises; nothing is fetched for a ``$ref``.

    Raises ``TooCostly``, and whatever the library raises for a schema that is none.
    """
    ends = clock() + SECONDS
    with within(steps, lambda: clock() >= ends):
        validator = Validator(schema, format_checker=FormatChecker(FORMATS), registry=Registry())
        return next(validator.iter_errors(value), None) is None
