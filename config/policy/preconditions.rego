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

import data.kblock.actions.problems as own
import data.kblock.decision.result as decided
import rego.v1

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

problems contains problem if some problem in own

snapshot_known if is_object(input.snapshot)

snapshot_required if own

snapshot_required if is_object(input.contract.reads.snapshot)

# METADATA
# description: The version as text, from where the contract says that it stands; undefined when there is none.
version := format_version(value) if {
	snapshot_known
	is_string(input.contract.reads.snapshot.version)
	parts := split(input.contract.reads.snapshot.version, "/")
	value := object.get(input.snapshot, array.slice(parts, 1, count(parts)), null)
}

format_version(value) := value if is_string(value)

format_version(value) := format_int(value, 10) if is_number(value)

stands if decided.effect == "allow"

stands if {
	decided.effect == "observe"
	time.parse_rfc3339_ns(decided.observe_until) > time.parse_rfc3339_ns(input.now)
}

stands if {
	decided.effect == "require_approval"
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
	count(owners) >= max([1, decided.approvals.count])
}

has_role(approver) if {
	some role in approver.roles
	role in decided.approvals.roles
}

has_role(_) if count(decided.approvals.roles) == 0

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
