# METADATA
# title: What follows a failure
# description: |
#   Asked once at stage 15. Input `outcome` {class, code, attempts, maximum_attempts, marker, irreversible} and
#   `finding` {finding: present | absent | unprovable, verdict} or null. A model may recommend, this alone selects.
#   Output `result`: {recovery: retry | rollback | compensation | forward | containment | manual,
#   reasons: [{code, message}]}. Retry only where absence is proved or nothing was done, and attempts are left; what
#   is unknown is never repeated. Rollback, compensation and forward need rules of your own.
# authors:
# - kblockd
package kblock.recovery

import data.kblock.actions.cautions as own
import rego.v1

nothing_was_done if input.finding.finding == "absent"

nothing_was_done if {
	input.outcome.class in {"failed_before_side_effect", "not_started"}
	not contradicted
}

contradicted if input.finding.finding in {"present", "unprovable"}

attempts_left if {
	is_number(input.outcome.attempts)
	input.outcome.attempts < input.outcome.maximum_attempts
}

damage if input.outcome.class in {"failed_after_side_effect", "partially_completed"}

damage if input.finding.verdict == "prohibited"

contained if {
	input.outcome.class == "partially_completed"
	input.contract.recovery.partial_completion in {"contain", "contain_then_evaluate"}
}

contained if {
	input.outcome.class != "partially_completed"
	input.contract.recovery.verification_failure == "contain"
}

repeatable if {
	not damage
	nothing_was_done
	attempts_left
	input.outcome.irreversible == false
	input.contract.recovery.transient_failure == "retry_same_idempotency_key"
}

default result := {
	"recovery": "manual",
	"reasons": [{"code": "OPERATOR", "message": "an operator must look at it"}],
}

result := {
	"recovery": "containment",
	"reasons": [{"code": "CONTAIN", "message": "the effect is not what was agreed; nothing more may touch the target"}],
} if {
	damage
	contained
} else := {"recovery": "manual", "reasons": sort(own)} if {
	repeatable
	count(own) > 0
} else := {
	"recovery": "retry",
	"reasons": [{"code": "TRANSIENT", "message": "nothing was done, and attempts are left"}],
} if {
	repeatable
}
