"""Which traces are kept."""

from __future__ import annotations

import pytest

from kblockd.telemetry.contract import RESULT_CLASS, STATE
from kblockd.telemetry.recorder import Trace
from kblockd.telemetry.sampling import Sampling

IDS = [f"{n * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128:032x}" for n in range(1, 2001)]


def test_the_flag_counts_only_for_configured_principals() -> None:
    """A caller that is not configured can neither force nor prevent."""
    none = Sampling(0, frozenset({"local:trusted"}))
    full = Sampling(1, frozenset({"local:trusted"}))
    asks, refuses = Trace(trace_id=IDS[0], parent_sampled=True), Trace(trace_id=IDS[0], parent_sampled=False)
    assert none.at_start(asks, "local:trusted")
    assert not none.at_start(asks, "local:agent")
    assert not full.at_start(refuses, "local:trusted")
    assert full.at_start(refuses, "local:agent")


def test_a_trusted_principal_without_a_context_falls_under_the_ratio() -> None:
    assert Sampling(1, frozenset({"t"})).at_start(Trace(trace_id=IDS[0]), "t")
    assert not Sampling(0, frozenset({"t"})).at_start(Trace(trace_id=IDS[0]), "t")


def test_the_ratio_is_deterministic_and_about_right() -> None:
    sampling = Sampling(0.25, key=b"k")
    taken = [sampling.at_start(Trace(trace_id=trace_id), "a") for trace_id in IDS]
    assert taken == [sampling.at_start(Trace(trace_id=trace_id), "a") for trace_id in IDS]
    assert 400 < sum(taken) < 600


def test_a_larger_ratio_keeps_what_a_smaller_one_kept() -> None:
    small, large = Sampling(0.1), Sampling(0.5)
    traces = [Trace(trace_id=trace_id) for trace_id in IDS]
    assert all(large.at_start(trace, "a") for trace in traces if small.at_start(trace, "a"))


def test_another_key_takes_other_ids() -> None:
    """A caller cannot pick trace ids that are always taken."""
    one, other = Sampling(0.5, key=b"1"), Sampling(0.5, key=b"2")
    traces = [Trace(trace_id=trace_id) for trace_id in IDS]
    assert [one.at_start(trace, "a") for trace in traces] != [other.at_start(trace, "a") for trace in traces]


@pytest.mark.parametrize("ratio", [-0.1, 1.1, float("nan")])
def test_a_ratio_outside_is_refused(ratio: float) -> None:
    with pytest.raises(ValueError, match=r"telemetry\.sample_ratio"):
        Sampling(ratio)


def test_a_key_that_is_too_long_is_refused_at_the_start() -> None:
    with pytest.raises(ValueError, match="65 bytes"):
        Sampling(0.5, key=bytes(65))


def test_an_uneventful_trace_is_not_kept_late() -> None:
    trace = Trace(attributes={RESULT_CLASS: "completed_verified", STATE: "succeeded"})
    with trace.stage(16, "seal"):
        pass
    assert not Sampling(0).at_end(trace)
    trace.sampled = True
    assert Sampling(0).at_end(trace)


@pytest.mark.parametrize(("name", "word"), [(RESULT_CLASS, "unknown_outcome"), (STATE, "held")])
def test_unknown_and_held_are_always_kept(name: str, word: str) -> None:
    on_root, on_row = Trace(attributes={name: word}), Trace()
    with on_row.stage(12, "classify") as row:
        row.attributes[name] = word
    assert Sampling(0).at_end(on_root)
    assert Sampling(0).at_end(on_row)


def test_an_error_is_always_kept() -> None:
    trace = Trace()
    with pytest.raises(OSError, match="x"), trace.stage(9, "consume"):
        raise OSError("x")
    with trace.stage(16, "seal"):
        pass
    assert Sampling(0).at_end(trace)
