package kblock.actions.restart_service_test

import data.kblock.shared.samples_test as samples
import rego.v1

plain := samples.call(
	"service.restart.execute",
	"production",
	{"service": "search", "strategy": "rolling"},
	{
		"exists": true, "version": 4, "application_version": "3.1.4", "instances": 3, "healthy_instances": 2,
		"operation_running": false, "frozen_until": "",
	},
	{
		"operation_state": "completed", "restarts": 1, "instances": 3, "healthy_instances": 3,
		"application_version": "3.1.4", "other_changes": [],
	},
)

base := samples.changed(plain, "/contract/verification", {
	"expected": {"operation_state": "completed", "healthy_instances": "all", "application_version": "unchanged"},
	"tolerated": {"healthy_instances": "all_but_one"},
	"prohibited": {"duplicate_operation": true, "unrelated_service_change": true},
})

changed(path, value) := samples.changed(base, path, value)

of(service, strategy) := samples.changed(changed("/args/service", service), "/args/strategy", strategy)

in_staging(document) := samples.changed(document, "/action/environment", "staging")

test_a_restart_in_production_needs_one_of_operations if {
	samples.effect(base) == ["require_approval", 1, ["RESTART"]]
	samples.effect(of("search", "all_at_once")) == ["require_approval", 1, ["RESTART"]]
	samples.roles(base) == ["operations"]
	samples.effect(samples.posing(base, "person")) == samples.denied
}

test_a_critical_service_needs_two if {
	every service in ["identity", "ledger", "payments"] {
		samples.effect(of(service, "rolling")) == ["require_approval", 2, ["CRITICAL_SERVICE"]]
		samples.effect(in_staging(of(service, "rolling"))) == ["require_approval", 2, ["CRITICAL_SERVICE"]]
		samples.roles(of(service, "rolling")) == ["operations"]
	}
	samples.effect(samples.posing(of("ledger", "rolling"), "service")) == samples.denied
}

test_a_critical_service_is_never_restarted_all_at_once if {
	samples.effect(of("payments", "all_at_once")) == ["deny", 0, ["OUTAGE"]]
}

test_a_rolling_restart_in_staging_needs_nobody if {
	samples.effect(in_staging(base)) == ["allow", 0, ["RESTART"]]
	samples.effect(in_staging(of("search", "all_at_once"))) == samples.denied
	samples.effect(samples.posing(in_staging(base), "service")) == samples.denied
	samples.effect(changed("/action/environment", "elsewhere")) == samples.denied
}

test_the_service_can_be_restarted if samples.problems(base) == set()

test_a_service_that_does_not_exist if samples.problems(changed("/snapshot/exists", false)) == {"NO_SERVICE"}

test_another_operation_runs if {
	samples.problems(changed("/snapshot/operation_running", true)) == {"OPERATION_RUNNING"}
	samples.problems(samples.without(base, "/snapshot/operation_running")) == {"OPERATION_RUNNING"}
}

test_a_freeze_holds_until_its_end if {
	samples.problems(changed("/snapshot/frozen_until", "2026-11-29T10:00:00.000001Z")) == {"FROZEN"}
	samples.problems(changed("/snapshot/frozen_until", "2026-11-29T10:00:00Z")) == set()
	samples.problems(changed("/snapshot/frozen_until", "2025-01-01T00:00:00Z")) == set()
	every value in [null, "soon", "2026-11-29", "2026-11-29T10:00:00", "2026-11-29T09:00:00+01:00", "1999-01-01T00:00:00Z"] {
		samples.problems(changed("/snapshot/frozen_until", value)) == {"FROZEN"}
	}
}

test_a_rolling_restart_leaves_somebody_healthy if {
	samples.problems(changed("/snapshot/healthy_instances", 1)) == {"TOO_FEW_HEALTHY"}
	samples.problems(changed("/snapshot/healthy_instances", "2")) == {"TOO_FEW_HEALTHY"}
	lone := samples.changed(of("search", "all_at_once"), "/snapshot/healthy_instances", 0)
	samples.problems(lone) == set()
}

test_restarted_and_healthy if {
	samples.verdict(base) == samples.expected
	lone := samples.changed(changed("/read/instances", 1), "/read/healthy_instances", 1)
	samples.verdict(lone) == samples.expected
}

test_as_many_healthy_as_the_contract_says if {
	two := changed("/contract/verification/expected/healthy_instances", 2)
	samples.verdict(samples.changed(two, "/read/healthy_instances", 2)) == samples.expected
	samples.verdict(samples.changed(two, "/read/healthy_instances", 1)) == samples.unseen
	most := changed("/contract/verification/expected/healthy_instances", "most")
	samples.verdict(samples.changed(most, "/read/healthy_instances", 3)) == samples.tolerated
}

test_one_that_is_not_back_is_tolerated_where_the_contract_says_so if {
	two := changed("/read/healthy_instances", 2)
	samples.verdict(two) == samples.tolerated
	samples.verdict(samples.without(two, "/contract/verification/tolerated/healthy_instances")) == samples.unseen
	samples.verdict(samples.changed(two, "/read/healthy_instances", 1)) == samples.unseen
}

test_what_has_not_ended_or_cannot_be_read_proves_nothing if {
	every path, values in {
		"/read/operation_state": ["running", null],
		"/read/restarts": [0, "1", null],
		"/read/healthy_instances": ["3", null],
		"/read/instances": ["3", 0, null],
		"/read/other_changes": [null, false, "search"],
		"/read": [null, {}, []],
	} {
		every value in values {
			samples.verdict(changed(path, value)) == samples.unseen
		}
	}
}

test_two_restarts if {
	two := changed("/read/restarts", 2)
	samples.verdict(two) == ["prohibited", ["DUPLICATE"]]
	samples.verdict(samples.changed(two, "/contract/verification/prohibited/duplicate_operation", false)) == samples.unseen
}

test_another_service_changed if {
	document := changed("/read/other_changes", ["search", "payments"])
	samples.verdict(document) == ["prohibited", ["UNRELATED"]]
	samples.verdict(changed("/read/other_changes", ["search"])) == samples.expected
	path := "/contract/verification/prohibited/unrelated_service_change"
	samples.verdict(samples.changed(document, path, false)) == samples.expected
}

test_another_version_came_back if {
	other := changed("/read/application_version", "3.2.0")
	samples.verdict(other) == ["prohibited", ["OTHER_VERSION"]]
	samples.verdict(samples.changed(other, "/read/operation_state", "running")) == samples.unseen
	any := samples.without(other, "/contract/verification/expected/application_version")
	samples.verdict(any) == samples.unseen
}

test_a_critical_service_is_not_restarted_by_itself_again if {
	samples.recovery(base) == samples.retry
	samples.recovery(of("payments", "rolling")) == ["manual", ["CRITICAL_SERVICE"]]
}
