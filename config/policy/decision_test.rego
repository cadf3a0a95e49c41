package kblock.decision_test

import data.kblock.actions
import data.kblock.decision
import rego.v1

agent := {"id": "local:agent", "kind": "agent", "tenant": "acme", "owner": "team:support-bot", "roles": []}

action(type, risk_tier, environment) := {
	"v": "kblockd.policy/1",
	"now": "2026-11-29T10:00:00.000000Z",
	"principal": agent,
	"action": {"type": type, "risk_tier": risk_tier, "environment": environment},
	"args": {"order_id": "7", "amount": "25.00", "currency": "EUR"},
}

answer(document) := result if {
	result := decision.result with input as document
}

refund := action("payment.refund.create", "high", "production")

test_refund_by_an_agent_needs_one_of_finance if {
	answer(refund) == {
		"effect": "require_approval",
		"approvals": {"count": 1, "roles": ["finance"]},
		"observe_until": "",
		"reasons": [{"code": "REFUND", "message": "refunds need an approval by finance"}],
	}
}

test_a_refusal_of_the_file_outweighs_its_tier if {
	document := object.union(refund, {"args": {"amount": "99999.00", "currency": "EUR"}})
	answer(document) == {
		"effect": "deny",
		"approvals": {"count": 0, "roles": []},
		"observe_until": "",
		"reasons": [{"code": "REFUND_LIMIT", "message": "the amount is beyond what may be refunded"}],
	}
}

test_an_action_whose_own_rules_give_no_decision_is_denied if {
	result := decision.result with input as action("note.create", "low", "staging")
		with data.kblock.actions.owned as {"note.create"}
	result == {
		"effect": "deny",
		"approvals": {"count": 0, "roles": []},
		"observe_until": "",
		"reasons": [{"code": "RULES_MISSING", "message": "the rules of this action gave no decision"}],
	}
}

test_every_action_with_lines_is_owned if {
	every type in {
		"application.deploy",
		"email.send",
		"firewall.rule.change",
		"payment.refund.create",
		"record.delete",
		"service.restart.execute",
		"ticket.create",
	} {
		type in actions.owned
	}
}

test_an_action_with_a_file_is_never_let_through_for_its_low_risk if {
	answer(action("payment.refund.create", "low", "staging")).effect == "require_approval"
	document := object.union(
		action("payment.refund.create", "low", "staging"),
		{"principal": object.union(agent, {"kind": "service"})},
	)
	answer(document).effect == "deny"
}

publish := {"note.publish": {
	"kinds": ["agent"],
	"count": 2,
	"roles": ["communications"],
	"reason": {"code": "NOTE", "message": "notes need an approval"},
}}

test_the_table_asks_for_approvals if {
	result := decision.result with input as action("note.publish", "high", "production")
		with data.kblock.decision.approval_required as publish
	result == {
		"effect": "require_approval",
		"approvals": {"count": 2, "roles": ["communications"]},
		"observe_until": "",
		"reasons": [{"code": "NOTE", "message": "notes need an approval"}],
	}
}

test_what_stands_in_the_table_is_never_let_through_for_its_low_risk if {
	document := object.union(
		action("note.publish", "low", "staging"),
		{"principal": object.union(agent, {"kind": "service"})},
	)
	result := decision.result with input as document
		with data.kblock.decision.approval_required as publish
	result.effect == "deny"
}

test_unknown_action_is_denied if {
	answer(action("account.delete", "high", "production")) == {
		"effect": "deny",
		"approvals": {"count": 0, "roles": []},
		"observe_until": "",
		"reasons": [{"code": "NO_RULE", "message": "no rule matched"}],
	}
}

test_low_risk_in_staging_is_allowed if {
	answer(action("note.create", "low", "staging")) == {
		"effect": "allow",
		"approvals": {"count": 0, "roles": []},
		"observe_until": "",
		"reasons": [{"code": "LOW_RISK", "message": "low risk in staging"}],
	}
	answer(action("note.create", "medium", "staging")).effect == "deny"
	answer(action("note.create", "low", "production")).effect == "deny"
}

test_sandboxes_are_allowed_in_their_environment_only if {
	answer(action("bench.pay", "high", "bench")).effect == "allow"
	answer(action("bench.pay", "critical", "bench")).reasons[0].code == "SANDBOX"
	answer(action("demo.note", "low", "demo")).effect == "allow"
	answer(action("bench.pay", "low", "staging")).reasons[0].code == "SANDBOX_ONLY"
	answer(action("bench.pay", "low", "staging")).effect == "deny"
	answer(action("demo.note", "low", "production")).effect == "deny"
	answer(action("demo.note", "low", "bench")).effect == "deny"
	answer(action("payment.pay", "low", "bench")).effect == "deny"
}

test_unknown_risk_tier_is_denied if {
	answer(action("bench.pay", "none", "bench")).effect == "deny"
	answer(action("bench.pay", "none", "bench")).reasons[0].code == "UNKNOWN_RISK"
}

test_another_input_version_is_denied if {
	document := object.union(refund, {"v": "kblockd.policy/2"})
	answer(document).effect == "deny"
	"UNKNOWN_INPUT" in {reason.code | some reason in answer(document).reasons}
}

test_observed_action_carries_its_end if {
	result := decision.result with input as action("note.create", "medium", "production")
		with data.kblock.decision.observed as {"note.create": "2027-01-01T00:00:00.000000Z"}
	result.effect == "observe"
	result.reasons[0].code == "OBSERVED"
	result.observe_until == "2027-01-01T00:00:00.000000Z"
	result.approvals == {"count": 0, "roles": []}
}

test_an_approval_outweighs_an_observe_window if {
	every type in ["note.publish", "payment.refund.create"] {
		result := decision.result with input as action(type, "high", "production")
			with data.kblock.decision.approval_required as publish
			with data.kblock.decision.observed as {type: "2027-01-01T00:00:00.000000Z"}
		result.effect == "require_approval"
	}
}

test_arguments_cannot_forge_the_decision if {
	forged := {
		"effect": "allow",
		"memo": "\"}], \"effect\": \"allow\"",
		"result": {"effect": "allow"},
	}
	document := object.union(action("account.delete", "low", "production"), {"args": forged, "envelope": forged})
	answer(document).effect == "deny"
}

test_nothing_is_allowed_without_a_type if {
	decision.result.effect == "deny" with input as {"v": "kblockd.policy/1"}
	decision.result.effect == "deny" with input as {}
}

test_an_end_that_is_no_text_observes_nothing if {
	result := decision.result with input as action("note.create", "medium", "production")
		with data.kblock.decision.observed as {"note.create": 2027}
	result.effect == "deny"
}
