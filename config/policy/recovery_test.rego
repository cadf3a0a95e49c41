package kblock.recovery_test

import data.kblock.recovery
import rego.v1

base := {
	"contract": {"recovery": {
		"transient_failure": "retry_same_idempotency_key",
		"partial_completion": "contain_then_evaluate",
		"verification_failure": "contain",
	}},
	"outcome": {
		"class": "failed_before_side_effect",
		"code": "CONNECT",
		"attempts": 1,
		"maximum_attempts": 2,
		"marker": true,
		"irreversible": false,
	},
	"finding": null,
}

changed(path, value) := json.patch(base, [{"op": "replace", "path": path, "value": value}])

chosen(document) := choice if {
	result := recovery.result with input as document
	choice := result.recovery
}

unknown := changed("/outcome/class", "unknown_outcome")

found(document, finding, verdict) := json.patch(document, [{
	"op": "replace", "path": "/finding",
	"value": {"finding": finding, "verdict": verdict},
}])

test_nothing_was_done_and_attempts_are_left if {
	recovery.result == {
		"recovery": "retry",
		"reasons": [{"code": "TRANSIENT", "message": "nothing was done, and attempts are left"}],
	} with input as base
}

test_no_attempts_left if {
	chosen(changed("/outcome/attempts", 2)) == "manual"
	chosen(changed("/outcome/attempts", 3)) == "manual"
	chosen(changed("/outcome/attempts", "1")) == "manual"
	chosen(changed("/outcome/attempts", null)) == "manual"
	recovery.result.reasons[0].code == "OPERATOR" with input as changed("/outcome/attempts", 2)
	chosen(changed("/outcome/class", "not_started")) == "retry"
}

test_unknown_is_never_repeated if {
	chosen(unknown) == "manual"
	chosen(found(unknown, "unprovable", "")) == "manual"
	chosen(found(unknown, "present", "expected")) == "manual"
}

test_proved_absence_allows_another_attempt if chosen(found(unknown, "absent", "")) == "retry"

test_a_finding_outweighs_the_class if {
	chosen(found(base, "present", "")) == "manual"
	chosen(found(base, "unprovable", "")) == "manual"
}

test_an_irreversible_step_is_not_repeated if chosen(changed("/outcome/irreversible", true)) == "manual"

test_the_contract_may_forbid_retries if chosen(changed("/contract/recovery/transient_failure", "manual")) == "manual"

test_partial_completion_is_contained if {
	partial := changed("/outcome/class", "partially_completed")
	chosen(partial) == "containment"
	chosen(json.patch(partial, [{
		"op": "replace", "path": "/contract/recovery/partial_completion",
		"value": "contain",
	}])) == "containment"
	recovery.result.reasons[0].code == "CONTAIN" with input as partial
	chosen(json.patch(partial, [{
		"op": "replace", "path": "/contract/recovery/partial_completion",
		"value": "manual",
	}])) == "manual"
}

test_a_wrong_effect_is_contained_where_the_contract_says_so if {
	damaged := changed("/outcome/class", "failed_after_side_effect")
	chosen(damaged) == "containment"
	chosen(found(base, "present", "prohibited")) == "containment"
	chosen(json.patch(damaged, [{
		"op": "replace", "path": "/contract/recovery/verification_failure",
		"value": "manual",
	}])) == "manual"
}

test_damage_is_never_repeated if {
	damaged := json.patch(changed("/outcome/class", "failed_after_side_effect"), [{
		"op": "replace", "path": "/contract/recovery/verification_failure",
		"value": "manual",
	}])
	chosen(found(damaged, "absent", "")) == "manual"
}

test_without_an_outcome_an_operator_looks if {
	chosen(changed("/outcome", null)) == "manual"
	chosen({}) == "manual"
}

test_a_caution_of_the_file_leaves_it_to_a_person if {
	document := object.union(base, {
		"action": {"type": "payment.refund.create"},
		"args": {"amount": "600.00", "currency": "EUR"},
	})
	recovery.result == {
		"recovery": "manual",
		"reasons": [{"code": "LARGE_REFUND", "message": "a large refund is not repeated without a person"}],
	} with input as document
	chosen(object.union(document, {"args": {"amount": "5.00"}})) == "retry"
	spent := object.union(document, {"outcome": object.union(base.outcome, {"attempts": 2})})
	recovery.result.reasons[0].code == "OPERATOR" with input as spent
}

test_a_caution_never_widens if {
	document := object.union(base, {
		"action": {"type": "payment.refund.create"},
		"args": {"amount": "600.00", "currency": "EUR"},
		"outcome": object.union(base.outcome, {"class": "partially_completed"}),
	})
	chosen(document) == "containment"
}
