"""The main of an author's child: ``python -I -m kblockd.authoring.embedded.worker MEMORY_MIB PARENT_PID``."""

from __future__ import annotations

import sys

from kblockd.policy.embedded.worker import Answer, serve


def _answers() -> Answer:
    from kblockd.authoring.embedded.answers import answer

    return answer


if __name__ == "__main__":
    serve(sys.argv[1:], _answers)
