"""What happens in a campaign, all of it from one seed: who asks for what, when the daemon dies, when policies change.

The machine decides how far each call has got when a death comes, so a seed repeats the plan and not every instant.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kblockd.client import Call
from tests.crash.daemon.story import merge, variant
from tests.crash.load.provider import AMOUNT, EFFECT_KEY, Fate
from tests.integration.concurrency.callers import made
from tests.integration.concurrency.crowd import ask, let_through

SECONDS_TO_START = 1.0
"""Some deaths come so soon after the start of the process that the daemon does not serve yet."""
FATES: Mapping[Fate, int] = {
    Fate.OK: 26,
    Fate.SLOW: 14,
    Fate.AFTER: 10,
    Fate.BEFORE: 9,
    Fate.REJECTED: 8,
    Fate.FAULT: 6,
    Fate.HALF: 6,
    Fate.BUSY: 5,
    Fate.TARDY: 9,
    Fate.NEVER: 3,
    Fate.WRONG: 3,
    Fate.IDLE: 2,
}
KINDS: Mapping[tuple[str, str], int] = {
    ("demo.refund", "demo"): 78,  # policy lets it through
    ("payment.refund.create", "production"): 15,  # a person approves, or denies
    ("account.close", "production"): 7,  # policy denies
}
UPSTREAM = {
    "adapter": "http",
    "maximum_concurrent_calls": 128,
    "breaker": {"failures": 1000, "open_seconds": 1},
    "settings": {
        "tools": {
            "refund": {
                "path": "/refunds",
                "success": {"pointer": "/ok", "equals": True},
            },
            "get_order": {"method": "GET", "path": "/orders/{order_id}"},
            "find_refund": {"method": "GET", "path": "/lookup"},
        }
    },
}
DAEMON = {
    "adapters": ["http"],
    "limits": {"executions": 256, "pending_approvals_per_agent": 256},
    "clocks": {"approval_ttl_seconds": 600},  # nothing expires here, however slow the machine
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """One deed, asked for under one key until its end is known."""

    order: str
    operation: str
    environment: str

    def call(self, wait_seconds: float | None = None) -> Call:
        """Identical whenever it is asked for; how long one waits is no part of it."""
        line = ask(self.order, f"key-{self.order}", AMOUNT, operation=self.operation, environment=self.environment)
        call = made(line)
        return Call(call.envelope, wait_seconds)


@dataclass(frozen=True, slots=True)
class Death:
    """``after`` are seconds from the start of the process where the death is ``early``, else from the first answer to a
    caller. Before it the policies change so many times; the first change may be ``spoilt``, and the start ``blind``:
    without policies that can be read."""

    after: float
    early: bool
    reloads: int
    spoilt: bool
    blind: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """A campaign; ``early`` is the share of deaths before the daemon serves."""

    seed: int
    kills: int
    callers: int
    early: float = 0.15

    def deaths(self) -> Iterator[Death]:
        """One after the other."""
        dice = random.Random(f"{self.seed}-deaths")
        for _ in range(self.kills):
            early = dice.random() < self.early
            long = dice.random() < 0.25
            after = dice.uniform(0.0, SECONDS_TO_START if early else 4.0 if long else 1.2)
            yield Death(after, early, dice.choice((0, 1, 1, 2)), dice.random() < 0.2, dice.random() < 0.1)

    def wanted(self, caller: int) -> Iterator[Wanted]:
        """What a caller asks for, without end. Every eighth deed two callers want, under one key."""
        number = 0
        while True:
            number += 1
            shared = number % 8 == 0
            name = f"{caller // 2}s{number}" if shared else f"{caller}n{number}"
            dice = random.Random(f"{self.seed}-{name}")
            fate = dice.choices(list(FATES), list(FATES.values()))[0]
            operation, environment = dice.choices(list(KINDS), list(KINDS.values()))[0]
            yield Wanted(f"{fate}-{name}", operation, environment)

    def refuses(self, order: str) -> bool:
        """Whether the approver denies it."""
        return random.Random(f"{self.seed}-{order}-approver").random() < 0.25


def contracts() -> dict[str, Any]:
    """One deed, let through, approved or denied, over the provider; what is asked twice may be attempted twice."""
    own = {"in": "body", "media_type": "application/json", "has": "/refused", "rejected_before_work": [422]}
    key = {"in": "header", "name": EFFECT_KEY}
    tool = {"errors_are_effect_free": False, "errors": own, "effect_key": key}
    bounds: dict[str, Any] = {
        "tool": tool,
        "reads": {"verify": {"tool": "get_order", "arguments": {"order_id": "/args/order_id"}}},
        "execution": {"maximum_attempts": 2, "maximum_concurrent_actions": 1000, "request_timeout_seconds": 1},
        "verification": {"authoritative_read_tool": "get_order", "maximum_duration_seconds": 2},
        "reveal": ["/output/ok"],
    }
    # The provider's promise is shorter, so that no pause of this machine makes it a lie.
    final = {"lookup": [{**let_through()["lookup"][0], "absent_final_after_seconds": 2}]}
    demo = merge(merge(let_through(), bounds), final)
    demo["verification"] |= {"expected": {"done": 1}, "prohibited": {"wrong": True}}
    approved = variant("production", bounds, final)
    denied = merge(approved, {"action": {"type": "account.close"}})
    return {"demo": demo, "approved": approved, "denied": denied}
