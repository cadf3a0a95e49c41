# METADATA
# title: Delete a record (record.delete)
# description: |
#   Arguments {record, type, reason}. Snapshot {exists, version, type, legal_hold, retained_until, dependents, backed_up_at}
#   of the record. Read {record, state, dependents_deleted} of the record. Nothing brings the record back, so two must
#   agree, and the contract says irreversible_step.
# authors:
# - kblockd
package kblock.actions.delete_record

import data.kblock.shared.tiers
import data.kblock.shared.times
import rego.v1

# METADATA
# description: What may be deleted at all, and why.
reasons_for := {
	"customer": {"erasure_request"},
	"draft": {"erasure_request", "duplicate", "test_data"},
	"ticket": {"erasure_request", "duplicate"},
}

# METADATA
# description: The last backup may be so old, in seconds.
oldest_backup := 86400

approvers := ["legal", "records"]

decision := {"refusals": refusals, "tier": tier}

refusals contains {"code": "KEPT", "message": "records of this type are not deleted for this reason"} if {
	not deletable
}

deletable if input.args.reason in reasons_for[input.args.type]

tier := tiers.approved_by(2, approvers, "IRREVERSIBLE", "two must agree to what cannot be undone") if {
	input.principal.kind == "agent"
} else := tiers.denied

problems contains {"code": "NO_RECORD", "message": "the record does not exist or has another type"} if not found

problems contains {"code": "LEGAL_HOLD", "message": "the record is under legal hold, or it is not known"} if {
	not input.snapshot.legal_hold == false
}

problems contains {"code": "RETAINED", "message": "the record must be kept for longer"} if not retention_over

problems contains {"code": "DEPENDENTS", "message": "other records depend on it"} if {
	not input.snapshot.dependents == 0
}

problems contains {"code": "NO_BACKUP", "message": "there is no backup that is fresh enough"} if not backed_up

found if {
	input.snapshot.exists == true
	input.snapshot.type == input.args.type
}

retention_over if input.snapshot.retained_until == ""

retention_over if {
	times.past(input.snapshot.retained_until)
}

backed_up if times.within(input.snapshot.backed_up_at, oldest_backup)

verification := {"violations": violations, "shown": shown}

violations contains {"code": "CASCADED", "message": "other records were deleted with it"} if {
	is_number(input.read.dependents_deleted)
	input.read.dependents_deleted > 0
}

violations contains {"code": "OTHER_RECORD", "message": "the read is of another record"} if {
	is_string(input.read.record)
	asked := input.args.record
	input.read.record != asked
}

shown := "expected" if {
	complete
	input.read.state == "deleted"
} else := "tolerated" if {
	complete
	input.read.state == "purging"
} else := ""

complete if {
	input.read.record == input.args.record
	input.read.dependents_deleted == 0
}

cautions contains {"code": "IRREVERSIBLE", "message": "a deletion is never tried again without a person"}
