"""The name under which a test records counts to be printed at the end of the run."""

from typing import Final

COUNTS: Final = "counts"
