# METADATA
# title: Restart a service (service.restart.execute)
# description: |
#   Arguments {service, strategy}. Snapshot {exists, version, application_version, instances, healthy_instances,
#   operation_running, frozen_until} of the service. Read {operation_state, restarts, instances, healthy_instances,
#   application_version, other_changes} of the operation that carries the effect key.
# authors:
# - kblockd
package kblock.actions.restart_service

import data.kblock.shared.tiers
import data.kblock.shared.times
import rego.v1

# METADATA
# description: Services whose restart two people must agree on, and which are never restarted all at once.
critical := {"identity", "ledger", "payments"}

# METADATA
# description: A rolling restart needs so many healthy instances before it begins.
fewest_healthy := 2

approvers := ["operations"]

decision := {"refusals": refusals, "tier": tier}

refusals contains {"code": "OUTAGE", "message": "a critical service is restarted one instance after the other"} if {
	input.args.service in critical
	not input.args.strategy == "rolling"
}

tier := tiers.approved_by(2, approvers, "CRITICAL_SERVICE", "two must agree to restart a critical service") if {
	input.principal.kind == "agent"
	input.args.service in critical
} else := tiers.approved_by(1, approvers, "RESTART", "restarts in production need an approval by operations") if {
	input.principal.kind == "agent"
	input.action.environment == "production"
} else := tiers.allowed("RESTART", "restarts outside production need nobody") if {
	input.principal.kind == "agent"
	input.action.environment == "staging"
	input.args.strategy == "rolling"
} else := tiers.denied

problems contains {"code": "NO_SERVICE", "message": "the service does not exist"} if not input.snapshot.exists == true

problems contains {"code": "OPERATION_RUNNING", "message": "another operation on the service has not ended"} if {
	not input.snapshot.operation_running == false
}

problems contains {"code": "FROZEN", "message": "changes of the service are frozen, or it is not known whether"} if {
	not thawed
}

problems contains {"code": "TOO_FEW_HEALTHY", "message": "a rolling restart would leave no healthy instance"} if {
	input.args.strategy == "rolling"
	not healthy_enough
}

thawed if input.snapshot.frozen_until == ""

thawed if times.past(input.snapshot.frozen_until)

healthy_enough if {
	is_number(input.snapshot.healthy_instances)
	input.snapshot.healthy_instances >= fewest_healthy
}

verification := {"violations": violations, "shown": shown}

violations contains {"code": "DUPLICATE", "message": "the service was restarted more than once"} if {
	input.contract.verification.prohibited.duplicate_operation == true
	is_number(input.read.restarts)
	input.read.restarts > 1
}

violations contains {"code": "UNRELATED", "message": "another service changed with it"} if {
	input.contract.verification.prohibited.unrelated_service_change == true
	is_array(input.read.other_changes)
	asked := input.args.service
	some change in input.read.other_changes
	change != asked
}

violations contains {"code": "OTHER_VERSION", "message": "the service came back as another version"} if {
	input.contract.verification.expected.application_version == "unchanged"
	input.read.operation_state == "completed"
	before := input.snapshot.application_version
	after := input.read.application_version
	after != before
}

shown := "expected" if {
	restarted_once
	input.read.healthy_instances >= wanted_healthy
} else := "tolerated" if {
	restarted_once
	input.contract.verification.tolerated.healthy_instances == "all_but_one"
	input.read.healthy_instances >= input.read.instances - 1
} else := ""

restarted_once if {
	input.read.operation_state == input.contract.verification.expected.operation_state
	input.read.restarts == 1
	is_array(input.read.other_changes)
	is_number(input.read.healthy_instances)
	is_number(input.read.instances)
	input.read.instances > 0
	input.read.application_version == input.snapshot.application_version
}

wanted_healthy := input.read.instances if input.contract.verification.expected.healthy_instances == "all"

wanted_healthy := input.contract.verification.expected.healthy_instances if {
	is_number(input.contract.verification.expected.healthy_instances)
}

cautions contains {"code": "CRITICAL_SERVICE", "message": "a critical service is not restarted by itself again"} if {
	input.args.service in critical
}
