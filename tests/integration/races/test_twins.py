"""Two keys, one deed, both approved: the second is stopped by the twin's row alone, at the consumption."""

from __future__ import annotations

import pytest

from kblockd.client.answers import Held, UpstreamError
from kblockd.client.errors import FailedPreconditionError
from kblockd.domain.outcome import Finding
from tests.harness import approve
from tests.integration.pipeline.local import ask, effects, order, refund_in, types
from tests.integration.staged import StagedSite
from tests.upstreams.payments import PaymentsServer


def test_c10_an_unknown_outcome_stops_its_twin_at_the_consumption(staged: StagedSite, pay: PaymentsServer) -> None:
    """C10: the first is sealed as unknown, its target is free and shows no effect, and the second was approved
    before: nothing but the twin's row says that the deed may have been done."""
    mine = order()
    first, second = (refund_in("blind", mine, key=order()) for _ in range(2))
    pending = [ask(staged, call) for call in (first, second)]
    for one in pending:
        approve(staged, one.approval_id)
    pay.control(refuse=True)
    with staged.client() as agent, staged.client("operator") as operator:
        held = agent.execute(first)
        assert isinstance(held, Held), held
        sealed = operator.resolve(held.execution_id, Finding.UNPROVABLE, "the provider does not answer")
        assert isinstance(sealed, UpstreamError)
        assert sealed.outcome_unknown
        pay.control(refuse=False)
        with pytest.raises(FailedPreconditionError) as twin:
            agent.execute(second)
    assert (twin.value.reason, twin.value.consumed) == ("TWIN_UNRESOLVED", False)
    assert "execution.claimed" not in types(staged, pending[1].execution_id)
    assert effects(pay, mine) == []
