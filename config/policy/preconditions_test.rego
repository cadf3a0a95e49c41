package kblock.preconditions_test

import data.kblock.preconditions
import rego.v1

base := {
	"v": "kblockd.policy/1",
	"now": "2026-11-29T10:00:00.000000Z",
	"principal": {"id": "local:agent", "kind": "agent", "tenant": "acme", "owner": "team:support-bot", "roles": []},
	"envelope": {"target": {"type": "order", "id": "7", "version": ""}},
	"action": {"type": "payment.refund.create", "risk_tier": "high", "environment": "production"},
	"args": {"order_id": "7", "amount": "25.00", "currency": "EUR"},
	"contract": {
		"reads": {"snapshot": {"tool": "get_order", "version": "/version"}},
		"preflight": {"require_current_resource_version": true},
	},
	"approval": {
		"id": "apr_1",
		"state": "approved",
		"count": 1,
		"roles": ["finance"],
		"approvers": [{"id": "local:lead", "owner": "person:lead", "roles": ["finance"]}],
		"not_before": "2026-11-29T09:55:00.000000Z",
		"not_after": "2026-11-29T10:05:00.000000Z",
	},
	"snapshot": {
		"order_id": "7",
		"exists": true,
		"version": 1,
		"status": "paid",
		"amount": "100.00",
		"currency": "EUR",
		"refunded": "0.00",
	},
}

changed(path, value) := json.patch(base, [{"op": "replace", "path": path, "value": value}])

answer(document) := result if {
	result := preconditions.result with input as document
}

codes(document) := {reason.code | some reason in answer(document).reasons}

refused(document, code) if {
	answer(document).ok == false
	code in codes(document)
}

void(document) if {
	answer(document).stands == false
	"DECISION_CHANGED" in codes(document)
}

test_all_is_well if answer(base) == {"ok": true, "stands": true, "reasons": []}

test_no_snapshot if refused(changed("/snapshot", null), "NO_SNAPSHOT")

test_a_snapshot_that_says_nothing_of_refunds if {
	silent := json.patch(base, [{"op": "remove", "path": "/snapshot/refunded"}])
	refused(silent, "ALREADY_REFUNDED")
}

test_snapshot_of_another_type if refused(changed("/snapshot", "paid"), "NO_SNAPSHOT")

test_named_version_must_be_current if {
	answer(changed("/envelope/target/version", "1")).ok == true
	refused(changed("/envelope/target/version", "2"), "VERSION_CHANGED")
}

test_textual_version if {
	document := json.patch(base, [
		{"op": "replace", "path": "/snapshot/version", "value": "W/abc"},
		{"op": "replace", "path": "/envelope/target/version", "value": "W/abc"},
	])
	answer(document).ok == true
}

test_demanded_version_must_exist if refused(changed("/snapshot/version", null), "NO_VERSION")

test_unpaid_or_missing_order if {
	refused(changed("/snapshot/status", "open"), "NOT_REFUNDABLE")
	refused(changed("/snapshot/exists", false), "NOT_REFUNDABLE")
	refused(changed("/snapshot/exists", "true"), "NOT_REFUNDABLE")
}

test_refunded_already if {
	refused(changed("/snapshot/refunded", "5.00"), "ALREADY_REFUNDED")
	refused(changed("/snapshot/status", "partially_refunded"), "NOT_REFUNDABLE")
}

test_amount_must_fit if {
	answer(changed("/args/amount", "100.00")).ok == true
	answer(changed("/args/amount", "0.01")).ok == true
	answer(changed("/args/amount", "0.99")).ok == true
	refused(changed("/args/amount", "100.01"), "AMOUNT")
	refused(changed("/args/amount", "0.00"), "AMOUNT")
	every amount in ["1e1", "25", "25.0", "25.000", "0.5", "0.500", "-25.00", "+25.00", " 25.00", "25,00", ""] {
		refused(changed("/args/amount", amount), "AMOUNT")
	}
	refused(changed("/args/amount", 25), "AMOUNT")
	refused(changed("/args/currency", "USD"), "AMOUNT")
}

test_a_cent_of_much_money_counts if {
	document := changed("/snapshot/amount", "9007199254740.92")
	answer(json.patch(document, [{"op": "replace", "path": "/args/amount", "value": "9007199254740.92"}])).ok == true
	refused(json.patch(document, [{"op": "replace", "path": "/args/amount", "value": "9007199254740.93"}]), "AMOUNT")
}

test_no_approval if void(changed("/approval", null))

test_approval_in_another_state if {
	every state in ["pending", "denied", "expired", "revoked", "used", "void"] {
		void(changed("/approval/state", state))
	}
}

test_approval_has_lapsed if {
	void(changed("/approval/not_after", "2026-11-29T10:00:00.000000Z"))
	void(changed("/approval/not_after", "2026-11-29T09:59:59.999999Z"))
}

test_approver_lost_the_role if void(changed("/approval/approvers/0/roles", ["auditor"]))

test_approver_has_the_requesters_owner if void(changed("/approval/approvers/0/owner", "team:support-bot"))

test_two_approvers_of_one_owner_are_one if {
	pair := [
		{"id": "a", "owner": "person:lead", "roles": ["finance"]},
		{"id": "b", "owner": "person:lead", "roles": ["finance"]},
	]
	rule := {"payment.refund.create": {
		"kinds": ["agent"], "count": 2, "roles": ["finance"],
		"reason": {"code": "REFUND", "message": ""},
	}}
	one := preconditions.result with input as changed("/approval/approvers", pair)
		with data.kblock.decision.approval_required as rule
	one.stands == false
	apart := json.patch(pair, [{"op": "replace", "path": "/1/owner", "value": "person:chief"}])
	two := preconditions.result with input as changed("/approval/approvers", apart)
		with data.kblock.decision.approval_required as rule
	two.stands == true
}

test_policy_denies_meanwhile if {
	result := preconditions.result with input as base
		with data.kblock.decision.approval_required as {}
	result.stands == false
	result.ok == true
}

plain := json.patch(base, [
	{"op": "replace", "path": "/action/type", "value": "note.create"},
	{"op": "replace", "path": "/action/risk_tier", "value": "low"},
	{"op": "replace", "path": "/action/environment", "value": "staging"},
	{"op": "replace", "path": "/approval", "value": null},
	{"op": "replace", "path": "/snapshot", "value": null},
	{"op": "replace", "path": "/contract", "value": {"reads": {"snapshot": null}}},
])

test_an_allowed_action_without_a_snapshot_read if answer(plain) == {"ok": true, "stands": true, "reasons": []}

test_a_declared_snapshot_is_demanded if {
	document := json.patch(plain, [{"op": "replace", "path": "/contract/reads/snapshot", "value": {"tool": "x"}}])
	refused(document, "NO_SNAPSHOT")
}

test_observe_stands_until_its_end if {
	document := json.patch(plain, [{"op": "replace", "path": "/action/environment", "value": "production"}])
	within := preconditions.result with input as document
		with data.kblock.decision.observed as {"note.create": "2026-11-29T10:00:01.000000Z"}
	within.stands == true
	ended := preconditions.result with input as document
		with data.kblock.decision.observed as {"note.create": "2026-11-29T10:00:00.000000Z"}
	ended.stands == false
}

test_what_holds_for_refunds_does_not_bind_others if {
	document := json.patch(plain, [{"op": "replace", "path": "/snapshot", "value": {"refunded": "5.00"}}])
	answer(document).ok == true
}
