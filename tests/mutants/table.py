"""The mutants by name: the file, the change, and the one test that must catch it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.crash.power.mutants import MUTANTS as SYNCS

_PIPELINE: Final = "kblockd/execution/pipeline.py"
_DISPATCHED: Final = "        dispatched = await dispatch(parts, marked)\n"
_RACES: Final = "tests/integration/races/test_races.py::test_apr_04_r112_a_change_is_seen_or_came_after_the_consumption"
_RELIED: Final = "tests/integration/races/test_relied.py"
_JUMPS: Final = "tests/integration/clocks/test_jumps.py"
_POWER: Final = (
    "tests/crash/power/test_power_loss.py::test_led_01_power_is_lost_inside_a_commit[plain-mark_sent-headed]"
)
_UPS: Final = "tests/integration/hostile/test_ups.py"
_SIGNALS: Final = "tests/crash/daemon/test_signals.py"
_KILLED: Final = "tests/crash/daemon/test_boundaries.py::test_rec_08_apr_13_a_kill_on_the_way_of_an_approved_refund"


@dataclass(frozen=True)
class Edit:
    """``old`` must stand in the file exactly once."""

    file: str
    old: str
    new: str

    def apply(self, root: Path) -> None:
        """Raises ValueError where it no longer fits: the mutant must follow the code."""
        (root / self.file).write_text(self.edited(root))

    def edited(self, root: Path) -> str:
        """The file's text with the change; raises ValueError."""
        source = (root / self.file).read_text()
        if source.count(self.old) != 1:
            raise ValueError(f"{self.file} does not hold {self.old!r} once: the mutant must follow the code")
        return source.replace(self.old, self.new)


@dataclass(frozen=True)
class Mutant:
    """``caught_by`` is one test; ``soak`` keeps the slow ones out of the ordinary run."""

    name: str
    edits: tuple[Edit, ...]
    caught_by: str
    soak: bool = False


_PERMIT: Final = Edit(
    "kblockd/execution/dispatch.py",
    "            lambda begun: parts.leases.holds(claim.lease) if begun else may_send(parts, marked),\n",
    "",
)


def _sync(name: str) -> Mutant:
    """One of the power-loss tests' own, which change the same line on its way into the interpreter."""
    module, old, new = SYNCS[name]
    return Mutant(name, (Edit(f"{module.replace('.', '/')}.py", old, new),), _POWER, soak=True)


MUTANTS: Final = (
    _sync("log never synced"),
    _sync("head never synced"),
    Mutant(
        "marker after dispatch",
        (
            Edit(_PIPELINE, "marked = await mark_sent(parts, claim)\n", "marked = Marked(claim)\n"),
            Edit(_PIPELINE, _DISPATCHED, f"{_DISPATCHED}        await mark_sent(parts, claim)\n"),
            Edit(_PIPELINE, "import LeaseEnded, mark_sent\n", "import LeaseEnded, Marked, mark_sent\n"),
        ),
        f"{_KILLED}[dispatch:after=kill]",
        soak=True,
    ),
    Mutant(
        "twin condition removed",
        (Edit("kblockd/execution/consume.py", "        Absent(rows.twin(action.twin)),\n", ""),),
        "tests/integration/races/test_twins.py::test_c10_an_unknown_outcome_stops_its_twin_at_the_consumption",
    ),
    Mutant(
        "lease check removed",
        (Edit("kblockd/execution/leases.py", "            self._lose(lease)\n", "            pass\n"),),
        f"{_JUMPS}::test_lse_01_a_lease_ends_by_itself_and_nothing_is_sent_under_it[mark_sent:before]",
    ),
    Mutant(
        # Four nets under one another: the approval's version, the execution's, the fold's own check, and the table of
        # transitions.
        "approval condition removed",
        (
            Edit(
                "kblockd/execution/preflight.py",
                "    conditions: list[Condition] = [AtVersion(rows.approval(approval_id), version)]\n",
                "    conditions: list[Condition] = []\n",
            ),
            Edit(
                "kblockd/execution/journal.py",
                "parts.store.commit([held, *conditions], ",
                "parts.store.commit(list(conditions) if stage.order == 9 else [held, *conditions], ",
            ),
            Edit(
                "kblockd/domain/ledger/claim.py",
                '        check(approval.state == "approved", record, f"the approval is {approval.state}")\n',
                "",
            ),
            Edit(
                "kblockd/domain/states.py",
                "    **{_at(state): {} for state in sorted(TERMINAL)},\n",
                "    **{_at(state): {Event.CLAIMED: _CLAIMED} for state in sorted(TERMINAL)},\n",
            ),
        ),
        f"{_RACES}[approval-revoked-consume:ordering]",
    ),
    Mutant(
        "revocation on no condition",
        (Edit("kblockd/approvals/asked.py", "store.commit(self.conditions, records,", "store.commit((), records,"),),
        "tests/integration/races/test_revocations.py::test_r036_disabled_meanwhile[revoke]",
        soak=True,
    ),
    Mutant(
        "approval's time not looked at again",
        (
            Edit(
                "kblockd/execution/consume.py",
                "    check_clock(parts, run.action, again=run.again)\n",
                "",
            ),
        ),
        "tests/integration/clocks/test_stopped.py::test_apr_04_no_consumption_is_dated_after_the_approval_it_used",
        soak=True,
    ),
    Mutant(
        "principals no condition",
        (
            Edit(
                "kblockd/execution/preflight.py",
                "    return [AtVersion(rows.principal(principal_id), found[0])]\n",
                "    return []\n",
            ),
        ),
        f"{_RACES}[approver-disabled-consume:ordering]",
        soak=True,
    ),
    Mutant(
        "policy revision no condition",
        (Edit("kblockd/execution/consume.py", "    return [AtVersion(rows.policy(), found[0])]\n", "    return []\n"),),
        f"{_RACES}[policy-forbids-consume:ordering]",
        soak=True,
    ),
    Mutant(
        "binding no condition",
        (Edit("kblockd/execution/preflight.py", "        conditions.append(AtVersion(key, found[0]))\n", ""),),
        f"{_RACES}[tool-repinned-consume:ordering]",
        soak=True,
    ),
    Mutant(
        "marker on no condition",
        (Edit("kblockd/execution/mark_sent.py", "conditions=claim.relied, at=at", "at=at"),),
        f"{_RELIED}::test_apv_01_a_policy_that_denies_while_the_consumption_is_synced[consume:written]",
    ),
    Mutant(
        "rows not looked at behind the marker",
        (
            Edit(
                "kblockd/execution/mark_sent.py",
                "    return all(row is not None and",
                "    return True or all(row is not None and",
            ),
        ),
        f"{_RELIED}::test_apv_01_a_policy_that_denies_while_the_consumption_is_synced[mark_sent:written]",
        soak=True,
    ),
    Mutant(
        "approval's end not looked at behind the consumption",
        (
            Edit(
                "kblockd/execution/preflight.py",
                '    bounded = not again or action.effect == "require_approval"\n',
                "    bounded = not again\n",
            ),
        ),
        f"{_RELIED}::test_apv_02_the_approval_ends_before_the_bytes_leave[mark_sent:written]",
        soak=True,
    ),
    Mutant(
        "approval's end not looked at behind the marker",
        (Edit("kblockd/execution/mark_sent.py", " and not claim.over(parts.clock) and _in_time(parts, claim)", ""),),
        f"{_RELIED}::test_apv_02_the_approval_ends_before_the_bytes_leave[dispatch:before]",
        soak=True,
    ),
    Mutant(
        "a rotated credential not waited for",
        (Edit("kblockd/execution/preflight.py", " or (again and fault.code in _ROTATED)\n", "\n"),),
        f"{_RELIED}::test_ups_16_a_credential_that_is_being_rotated_is_waited_for[dispatch:before-unlinked-write]",
        soak=True,
    ),
    Mutant(
        "a call that was never begun counts as an attempt",
        (Edit("kblockd/execution/pipeline.py", "        if dispatched.begun:\n", "        if True:\n"),),
        f"{_RELIED}::test_ups_16_a_credential_that_is_being_rotated_is_waited_for[dispatch:before-unlinked-write]",
        soak=True,
    ),
    Mutant(
        "the sweep closes without a look",
        (Edit("kblockd/execution/sweeper.py", " and (looked or not row.marker):\n", ":\n"),),
        "tests/crash/daemon/test_interrupted.py::test_ups_15_the_first_sweep_looks_up_before_it_closes",
        soak=True,
    ),
    Mutant(
        "now by the wall clock",
        (
            Edit(
                "kblockd/system.py",
                "        moment = self._elapsed()\n        return",
                "        moment = self._read_wall()\n        return",
            ),
        ),
        f"{_JUMPS}::test_lse_04_a_jump_of_the_wall_clock_at_any_stage_changes_nothing[mark_sent:before-hour-on]",
        soak=True,
    ),
    Mutant(
        "a start behind goes on",
        (Edit("kblockd/system.py", "        if wall < self._floor:\n            return True\n", ""),),
        "tests/integration/clocks/test_start.py::test_lse_03_behind_its_last_record_a_daemon_consumes_nothing[3600.0]",
        soak=True,
    ),
    Mutant(
        # Two nets: the last look, and the permit that is asked for before each write.
        "last look before the call removed",
        (
            Edit("kblockd/execution/dispatch.py", "            unfit=lambda: unfit(parts, marked),\n", ""),
            _PERMIT,
        ),
        f"{_JUMPS}::test_lse_04_leases_and_deadlines_end_by_monotonic_time[dispatch:before-day-back]",
        soak=True,
    ),
    Mutant(
        "lease not asked for while a call is on its way",
        (_PERMIT,),
        f"{_SIGNALS}::test_lse_01_a_call_that_waits_for_a_handshake_is_not_sent_past_its_lease[long]",
        soak=True,
    ),
    Mutant(
        "deadline by monotonic time alone",
        (Edit("kblockd/execution/consume.py", " or clock.now() >= self.deadline_at\n", "\n"),),
        f"{_JUMPS}::test_r572_no_attempt_begins_after_the_deadline_that_is_on_record[mark_sent:before]",
        soak=True,
    ),
    Mutant(
        "an exchange proves without its marked request",
        (Edit("kblockd/upstream/scope.py", "asked = any(meter.asked for meter", "asked = any(True for meter"),),
        "tests/unit/upstream/test_wrapper.py::"
        "test_ups_09_an_exchange_that_was_not_used_for_the_marked_request_proves_nothing[unused]",
    ),
    Mutant(
        "the shape of an error is not compared",
        (
            Edit(
                "kblockd/execution/absence.py",
                "    if errors.has is not None and _at(outcome.output, errors.has) is None:\n",
                "    if False:\n",
            ),
        ),
        f"{_UPS}::test_ups_06_the_answer_of_something_in_between_proves_nothing[problem-400-http-free]",
        soak=True,
    ),
    Mutant(
        "no look-up before an absence is sealed",
        (Edit(_PIPELINE, "        ended = await confirm(parts, ended)\n", "        pass\n"),),
        f"{_UPS}::test_ups_07_a_lost_attempt_is_looked_up_once_more_before_it_is_sealed_as_absent",
        soak=True,
    ),
    Mutant(
        "finality counts from the answer",
        (
            Edit(
                "kblockd/execution/dispatch.py",
                "            on_outlive=lambda: parts.late.outlives(execution_id),\n",
                "",
            ),
        ),
        f"{_UPS}::test_ups_08_nothing_is_absent_while_the_call_still_runs",
        soak=True,
    ),
    Mutant(
        "another place is asked",
        (Edit("kblockd/execution/place.py", "    return upstream if run", "    return upstream if True or run"),),
        f"{_UPS}::test_ups_14_a_verification_reads_only_where_the_action_was_agreed",
        soak=True,
    ),
    Mutant(
        "watchdog removed",
        (Edit("kblockd/watchdog.py", "                self._end()\n", ""),),
        "tests/integration/stalls/test_stalls.py::test_lse_01_a_loop_that_is_blocked_for_longer_than_a_lease_ends_the_daemon",
        soak=True,
    ),
    Mutant(
        "plugins contained by Exception only",
        (
            Edit(
                "kblockd/upstream/wrapper.py",
                "    except BaseException as error:\n",
                "    except Exception as error:\n",
            ),
        ),
        "tests/integration/stalls/test_stalls.py::test_out_08_what_is_no_answer_is_an_unknown_outcome[exit]",
        soak=True,
    ),
)
