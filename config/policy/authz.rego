# METADATA
# title: Who may call which RPC, and whose rows they see
# description: |
#   Asked at stage 0 for every RPC; the answer is remembered per principal version, method and policy revision.
#   Input: `principal` {id, kind: agent | person | service, tenant, owner, roles} and `method`, the full gRPC method
#   such as "/kblock.v1.ExecutionService/Execute". Everything else is null.
#   Output `result`: {allow: bool, tenants: [string], agents: [string], reasons: [{code, message}]}.
#   `tenants` and `agents` filter every row that is listed, read or watched; "*" means all.
# authors:
# - kblockd
package kblock.authz

import rego.v1

execution_reads := {
	"/kblock.v1.ExecutionService/Get",
	"/kblock.v1.ExecutionService/List",
	"/kblock.v1.ExecutionService/Watch",
}

approval_reads := {
	"/kblock.v1.ApprovalService/Get",
	"/kblock.v1.ApprovalService/List",
}

ledger_reads := {
	"/kblock.v1.LedgerService/GetCheckpoint",
	"/kblock.v1.LedgerService/GetConsistencyProof",
	"/kblock.v1.LedgerService/GetInclusionProof",
	"/kblock.v1.LedgerService/GetReceipt",
	"/kblock.v1.LedgerService/Read",
}

policy_reads := {
	"/kblock.v1.PolicyService/Evaluate",
	"/kblock.v1.PolicyService/Explain",
	"/kblock.v1.PolicyService/GetStatus",
}

candidate_methods := {
	"/kblock.v1.PolicyService/ClearCandidate",
	"/kblock.v1.PolicyService/GetCandidate",
	"/kblock.v1.PolicyService/SetCandidate",
}

# An agent may withdraw what it asked for, and no more of approvals than that.
agent_methods := execution_reads | {
	"/kblock.v1.ApprovalService/Revoke",
	"/kblock.v1.ExecutionService/Execute",
}

approver_methods := (execution_reads | approval_reads) | {
	"/kblock.v1.ApprovalService/Decide",
	"/kblock.v1.ApprovalService/Revoke",
}

# Not for agents or approvers: whoever may ask for any input learns where the limits lie.
auditor_methods := ((execution_reads | approval_reads) | ledger_reads) | policy_reads

# METADATA
# description: An agent executes, withdraws what it asked for, and sees its own rows.
grants contains {"tenants": [input.principal.tenant], "agents": [input.principal.id]} if {
	input.principal.kind == "agent"
	input.method in agent_methods
}

# METADATA
# description: The roles that the tiers of the actions ask for.
approver_roles := {"communications", "finance", "legal", "network", "operations", "records", "release", "security"}

# METADATA
# description: A person with such a role decides and revokes in the own tenant; the daemon asks for the right one.
grants contains {"tenants": [input.principal.tenant], "agents": ["*"]} if {
	input.principal.kind == "person"
	some role in input.principal.roles
	role in approver_roles
	input.method in approver_methods
}

# METADATA
# description: An auditor reads, and changes nothing.
grants contains {"tenants": [input.principal.tenant], "agents": ["*"]} if {
	input.principal.kind != "agent"
	"auditor" in input.principal.roles
	input.method in auditor_methods
}

# METADATA
# description: A policy editor tries a candidate beside the policy in force, and asks both; neither has consequences.
grants contains {"tenants": [input.principal.tenant], "agents": ["*"]} if {
	input.principal.kind != "agent"
	"policy-editor" in input.principal.roles
	input.method in (policy_reads | candidate_methods)
}

# METADATA
# description: An operator may do everything in the own tenant, which is "*" for all; an agent is never an operator.
grants contains {"tenants": [input.principal.tenant], "agents": ["*"]} if {
	input.principal.kind != "agent"
	"operator" in input.principal.roles
	startswith(input.method, "/kblock.v1.")
}

default result := {
	"allow": false,
	"tenants": [],
	"agents": [],
	"reasons": [{"code": "NOT_GRANTED", "message": "no grant covers this method for this principal"}],
}

result := {
	"allow": true,
	"tenants": sort({tenant | some grant in grants; some tenant in grant.tenants}),
	"agents": sort({agent | some grant in grants; some agent in grant.agents}),
	"reasons": [],
} if {
	count(grants) > 0
	is_string(input.principal.id)
	input.principal.id != ""
	input.principal.tenant != ""
}
