package kblock.authz_test

import data.kblock.authz
import rego.v1

agent := {"id": "local:agent", "kind": "agent", "tenant": "acme", "owner": "team:support-bot", "roles": []}

lead := {"id": "local:lead", "kind": "person", "tenant": "acme", "owner": "person:lead", "roles": ["finance"]}

operator := {"id": "local:operator", "kind": "person", "tenant": "*", "owner": "person:op", "roles": ["operator"]}

editor := {"id": "local:editor", "kind": "person", "tenant": "acme", "owner": "person:ed", "roles": ["policy-editor"]}

auditor := {"id": "local:audit", "kind": "person", "tenant": "acme", "owner": "person:audit", "roles": ["auditor"]}

answer(principal, method) := result if {
	result := authz.result with input as {"v": "kblockd.policy/1", "principal": principal, "method": method}
}

refused(principal, method) if answer(principal, method).allow == false

own := {"allow": true, "tenants": ["acme"], "agents": ["local:agent"], "reasons": []}

tenant := {"allow": true, "tenants": ["acme"], "agents": ["*"], "reasons": []}

all := {"allow": true, "tenants": ["*"], "agents": ["*"], "reasons": []}

test_agent_executes_and_sees_its_own_rows if {
	every method in ["Execute", "Get", "List", "Watch"] {
		answer(agent, concat("", ["/kblock.v1.ExecutionService/", method])) == own
	}
}

test_agent_withdraws_what_it_asked_for if answer(agent, "/kblock.v1.ApprovalService/Revoke") == own

test_agent_neither_resolves_nor_decides_nor_reads_the_ledger if {
	refused(agent, "/kblock.v1.ExecutionService/Resolve")
	refused(agent, "/kblock.v1.ApprovalService/Decide")
	refused(agent, "/kblock.v1.ApprovalService/List")
	refused(agent, "/kblock.v1.LedgerService/Read")
}

test_agent_with_an_operators_role_is_still_an_agent if {
	posing := object.union(agent, {"roles": ["operator", "finance", "auditor"]})
	answer(posing, "/kblock.v1.ExecutionService/Get") == own
	refused(posing, "/kblock.v1.ExecutionService/Resolve")
	refused(posing, "/kblock.v1.ApprovalService/Decide")
	refused(posing, "/kblock.v1.LedgerService/Read")
}

test_approver_decides_and_reads_in_the_own_tenant if {
	every method in ["Get", "List", "Decide", "Revoke"] {
		answer(lead, concat("", ["/kblock.v1.ApprovalService/", method])) == tenant
	}
	answer(lead, "/kblock.v1.ExecutionService/List") == tenant
}

test_whoever_a_tier_asks_for_may_decide if {
	every role in ["communications", "finance", "legal", "network", "operations", "records", "release", "security"] {
		answer(object.union(lead, {"roles": [role]}), "/kblock.v1.ApprovalService/Decide") == tenant
	}
	refused(object.union(lead, {"roles": ["sales"]}), "/kblock.v1.ApprovalService/Decide")
	refused(object.union(lead, {"kind": "service"}), "/kblock.v1.ApprovalService/Decide")
}

test_approver_does_not_execute_or_resolve if {
	refused(lead, "/kblock.v1.ExecutionService/Execute")
	refused(lead, "/kblock.v1.ExecutionService/Resolve")
	refused(lead, "/kblock.v1.LedgerService/Read")
}

test_person_without_a_role_does_nothing if {
	nobody := object.union(lead, {"roles": []})
	refused(nobody, "/kblock.v1.ApprovalService/Decide")
	refused(nobody, "/kblock.v1.ApprovalService/Revoke")
	refused(nobody, "/kblock.v1.ExecutionService/Get")
}

test_operator_does_everything_everywhere if {
	answer(operator, "/kblock.v1.ExecutionService/Resolve") == all
	answer(operator, "/kblock.v1.LedgerService/GetReceipt") == all
	answer(operator, "/kblock.v1.ApprovalService/List") == all
	answer(operator, "/kblock.v1.ApprovalService/Revoke") == all
}

test_operator_of_one_tenant_sees_no_other if {
	bound := object.union(operator, {"tenant": "acme"})
	answer(bound, "/kblock.v1.ExecutionService/Resolve").tenants == ["acme"]
	answer(bound, "/kblock.v1.LedgerService/Read").tenants == ["acme"]
}

test_operator_of_another_service_is_nobody if refused(operator, "/other.v1.Service/Get")

test_auditor_reads_and_changes_nothing if {
	answer(auditor, "/kblock.v1.LedgerService/Read") == tenant
	every method in ["GetCheckpoint", "GetConsistencyProof", "GetInclusionProof", "GetReceipt", "Read"] {
		answer(auditor, concat("", ["/kblock.v1.LedgerService/", method])) == tenant
	}
	answer(auditor, "/kblock.v1.ExecutionService/Get") == tenant
	answer(auditor, "/kblock.v1.ApprovalService/Get") == tenant
	refused(auditor, "/kblock.v1.ExecutionService/Execute")
	refused(auditor, "/kblock.v1.ExecutionService/Resolve")
	refused(auditor, "/kblock.v1.ApprovalService/Decide")
	refused(auditor, "/kblock.v1.ApprovalService/Revoke")
}

test_only_auditors_and_operators_ask_the_policy_without_consequence if {
	every method in ["Evaluate", "Explain", "GetStatus"] {
		path := concat("", ["/kblock.v1.PolicyService/", method])
		answer(auditor, path) == tenant
		answer(operator, path) == all
		refused(agent, path)
		refused(lead, path)
	}
}

test_policy_editors_and_operators_try_a_candidate if {
	every method in ["ClearCandidate", "GetCandidate", "SetCandidate"] {
		path := concat("", ["/kblock.v1.PolicyService/", method])
		answer(editor, path) == tenant
		answer(operator, path) == all
		refused(auditor, path)
		refused(agent, path)
		refused(lead, path)
		refused(object.union(editor, {"kind": "agent"}), path)
	}
	answer(editor, "/kblock.v1.PolicyService/Explain") == tenant
	refused(editor, "/kblock.v1.ExecutionService/Execute")
	refused(editor, "/kblock.v1.LedgerService/Read")
}

test_two_roles_add_up if {
	both := object.union(lead, {"roles": ["auditor", "finance"]})
	answer(both, "/kblock.v1.ApprovalService/Decide") == tenant
	answer(both, "/kblock.v1.LedgerService/Read") == tenant
}

test_empty_tenant_or_id_is_refused if {
	refused(object.union(agent, {"tenant": ""}), "/kblock.v1.ExecutionService/Get")
	refused(object.union(agent, {"id": ""}), "/kblock.v1.ExecutionService/Get")
	refused(object.union(agent, {"id": 7}), "/kblock.v1.ExecutionService/Get")
}

test_a_refusal_says_why if {
	answer(agent, "/kblock.v1.LedgerService/Read").reasons[0].code == "NOT_GRANTED"
	answer(agent, "").tenants == []
}
