package kblock.actions.delete_record_test

import data.kblock.shared.samples_test as samples
import rego.v1

base := samples.call(
	"record.delete",
	"production",
	{"record": "c-81", "type": "customer", "reason": "erasure_request"},
	{
		"exists": true, "version": 3, "type": "customer", "legal_hold": false, "dependents": 0,
		"retained_until": "2026-11-29T10:00:00Z", "backed_up_at": "2026-11-28T10:00:00Z",
	},
	{"record": "c-81", "state": "deleted", "dependents_deleted": 0},
)

changed(path, value) := samples.changed(base, path, value)

for(type, reason) := samples.changed(changed("/args/type", type), "/args/reason", reason)

test_two_must_agree if {
	samples.effect(base) == ["require_approval", 2, ["IRREVERSIBLE"]]
	samples.roles(base) == ["legal", "records"]
	samples.effect(samples.posing(base, "service")) == samples.denied
}

test_what_may_be_deleted_and_why if {
	every pair in [
		["draft", "erasure_request"], ["draft", "duplicate"], ["draft", "test_data"],
		["ticket", "erasure_request"], ["ticket", "duplicate"],
	] {
		samples.effect(for(pair[0], pair[1])) == ["require_approval", 2, ["IRREVERSIBLE"]]
	}
	every pair in [
		["customer", "duplicate"], ["ticket", "test_data"], ["invoice", "erasure_request"], ["audit_log", "test_data"],
		["customer", null], [null, "duplicate"],
	] {
		samples.effect(for(pair[0], pair[1])) == ["deny", 0, ["KEPT"]]
	}
}

test_the_record_may_go if samples.problems(base) == set()

test_a_record_that_is_not_what_was_named if {
	samples.problems(changed("/snapshot/exists", false)) == {"NO_RECORD"}
	samples.problems(changed("/snapshot/type", "invoice")) == {"NO_RECORD"}
}

test_legal_hold if {
	samples.problems(changed("/snapshot/legal_hold", true)) == {"LEGAL_HOLD"}
	samples.problems(samples.without(base, "/snapshot/legal_hold")) == {"LEGAL_HOLD"}
}

test_retention if {
	samples.problems(changed("/snapshot/retained_until", "")) == set()
	samples.problems(changed("/snapshot/retained_until", "2026-11-29T10:00:00.000001Z")) == {"RETAINED"}
	samples.problems(changed("/snapshot/retained_until", "2036-01-01T00:00:00Z")) == {"RETAINED"}
	samples.problems(samples.without(base, "/snapshot/retained_until")) == {"RETAINED"}
}

test_dependents if {
	samples.problems(changed("/snapshot/dependents", 1)) == {"DEPENDENTS"}
	samples.problems(samples.without(base, "/snapshot/dependents")) == {"DEPENDENTS"}
}

test_a_backup_of_the_last_day if {
	samples.problems(changed("/snapshot/backed_up_at", "2026-11-29T10:00:00Z")) == set()
	samples.problems(changed("/snapshot/backed_up_at", "2026-11-28T09:59:59.999999Z")) == {"NO_BACKUP"}
	samples.problems(changed("/snapshot/backed_up_at", "2026-11-29T10:00:01Z")) == {"NO_BACKUP"}
	samples.problems(changed("/snapshot/backed_up_at", null)) == {"NO_BACKUP"}
}

test_deleted_alone if samples.verdict(base) == samples.expected

test_marked_for_purging if {
	samples.verdict(changed("/read/state", "purging")) == samples.tolerated
	samples.verdict(changed("/read/state", "active")) == samples.unseen
	samples.verdict(samples.without(base, "/read/dependents_deleted")) == samples.unseen
	samples.verdict(samples.without(base, "/read/record")) == samples.unseen
	samples.verdict(changed("/read", null)) == samples.unseen
	samples.verdict(changed("/read/record", 81)) == samples.unseen
	samples.verdict(changed("/read/dependents_deleted", "1")) == samples.unseen
	samples.verdict(samples.without(changed("/read/state", "purging"), "/read/dependents_deleted")) == samples.unseen
}

test_others_went_with_it if {
	samples.verdict(changed("/read/dependents_deleted", 1)) == ["prohibited", ["CASCADED"]]
}

test_a_read_of_another_record if {
	samples.verdict(changed("/read/record", "c-82")) == ["prohibited", ["OTHER_RECORD"]]
}

test_a_deletion_is_never_repeated_by_itself if samples.recovery(base) == ["manual", ["IRREVERSIBLE"]]
