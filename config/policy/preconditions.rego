# METADATA
# title: May the consumption happen now
# description: |
#   Asked once at stage 8, with the snapshot that the authoritative read of stage 7 gave and the approval as it is now.
#   Output `result`: {ok: bool, stands: bool, reasons: [{code, message}]}. `ok`: the target is as it must be. `stands`:
#   kblock.decision, asked again with the present input, still lets the action through, its approval included.
#   `approval` is {id, state, count, roles, approvers: [{id, owner, roles}], not_before, not_after} or null; the roles
#   of approvers are those that they have now.
# authors:
# - kblockd
package kblock.preconditions

import data.kblock.decision
import rego.v1

refund := "payment.refund.create"

# METADATA
# description: Each problem is a reason why the target is not as it must be.
problems contains {"code": "NO_SNAPSHOT", "message": "the state of the target is not known"} if {
	snapshot_required
	not snapshot_known
}

problems contains {"code": "VERSION_CHANGED", "message": "the target is not at the version that the caller named"} if {
	input.envelope.target.version != ""
	not input.envelope.target.version == version
}

problems contains {"code": "NO_VERSION", "message": "the snapshot has no version, but the contract demands one"} if {
	input.contract.preflight.require_current_resource_version
	not version
}

problems contains {"code": "NOT_REFUNDABLE", "message": "the order does not exist or was not paid"} if {
	input.action.type == refund
	not payable
}

problems contains {"code": "ALREADY_REFUNDED", "message": "the order has a refund already"} if {
	input.action.type == refund
	not input.snapshot.refunded == "0.00"
}

problems contains {"code": "AMOUNT", "message": "the amount or currency does not fit the order"} if {
	input.action.type == refund
	not amount_fits
}

snapshot_known if is_object(input.snapshot)

snapshot_required if input.action.type == refund

snapshot_required if is_object(input.contract.reads.snapshot)

# METADATA
# description: The version as text, from where the contract says that it stands; undefined when there is none.
version := concat("", [format_version(value)]) if {
	snapshot_known
	path := array.slice(split(input.contract.reads.snapshot.version, "/"), 1, 32)
	value := object.get(input.snapshot, path, null)
	value != null
}

format_version(value) := value if is_string(value)

format_version(value) := format_int(value, 10) if is_number(value)

payable if {
	input.snapshot.exists == true
	input.snapshot.status == "paid"
}

amount_fits if {
	input.args.currency == input.snapshot.currency
	asked := minor_units(input.args.amount)
	asked > 0
	asked <= minor_units(input.snapshot.amount)
}

# METADATA
# description: Money is compared as a whole number of cents; what is not written with two decimals has none.
minor_units(text) := to_number(concat("", [trim_left(parts[0], "0"), parts[1]])) if {
	is_string(text)
	regex.match(`^[0-9]{1,13}\.[0-9]{2}$`, text)
	parts := split(text, ".")
	trim_left(parts[0], "0") != ""
}

minor_units(text) := to_number(concat("", ["1", parts[1]])) - 100 if {
	is_string(text)
	regex.match(`^[0-9]{1,13}\.[0-9]{2}$`, text)
	parts := split(text, ".")
	trim_left(parts[0], "0") == ""
}

stands if decision.result.effect == "allow"

stands if {
	decision.result.effect == "observe"
	time.parse_rfc3339_ns(decision.result.observe_until) > time.parse_rfc3339_ns(input.now)
}

stands if {
	decision.result.effect == "require_approval"
	approved_by_enough
}

approved_by_enough if {
	input.approval.state == "approved"
	time.parse_rfc3339_ns(input.approval.not_after) > time.parse_rfc3339_ns(input.now)
	owners := {approver.owner |
		some approver in input.approval.approvers
		approver.owner != input.principal.owner
		has_role(approver)
	}
	count(owners) >= max([1, decision.result.approvals.count])
}

has_role(approver) if {
	some role in approver.roles
	role in decision.result.approvals.roles
}

has_role(_) if count(decision.result.approvals.roles) == 0

objections contains {"code": "DECISION_CHANGED", "message": "policy would not let this action through any more"} if {
	not stands
}

default holds := false

holds if stands

default result := {
	"ok": false,
	"stands": false,
	"reasons": [{"code": "NO_RULE", "message": "the preconditions could not be judged"}],
}

result := {
	"ok": count(problems) == 0,
	"stands": holds,
	"reasons": sort(problems | objections),
}
