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

large := json.patch(changed("/args/amount", "600.00"), [{"op": "replace", "path": "/snapshot/amount", "value": "600.00"}])

approved(owners) := json.patch(large, [{
	"op": "replace", "path": "/approval/approvers",
	"value": [{"id": owner, "owner": owner, "roles": ["finance"]} | some owner in owners],
}])

test_two_approvers_of_one_owner_are_one if {
	void(approved(["person:lead", "person:lead"]))
	answer(approved(["person:lead", "person:chief"])).stands == true
}

test_policy_denies_meanwhile if {
	void(changed("/args/amount", "99999.00"))
	posing := changed("/principal/kind", "service")
	void(posing)
	answer(posing).ok == true
}

test_an_approval_may_do_without_a_role if {
	rule := {"kinds": ["agent"], "count": 1, "roles": [], "reason": {"code": "NOTE", "message": ""}}
	document := json.patch(changed("/action/type", "note.create"), [
		{"op": "replace", "path": "/approval/approvers/0/roles", "value": []},
	])
	anybody := preconditions.result with input as document
		with data.kblock.decision.approval_required as {"note.create": rule}
	anybody.stands == true
	alone := preconditions.result with input as json.patch(document, [{"op": "replace", "path": "/approval/approvers", "value": []}])
		with data.kblock.decision.approval_required as {"note.create": object.union(rule, {"count": 0})}
	alone.stands == false
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

test_a_contract_without_a_version if {
	document := json.patch(plain, [
		{"op": "replace", "path": "/snapshot", "value": {"version": 1}},
		{"op": "replace", "path": "/contract/reads", "value": {"snapshot": {"tool": "x", "version": null}}},
	])
	answer(document).ok == true
	refused(json.patch(document, [{"op": "replace", "path": "/envelope/target/version", "value": "1"}]), "VERSION_CHANGED")
}
