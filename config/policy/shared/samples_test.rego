# METADATA
# title: What the tests of the actions share
# description: |
#   `call` makes an input as the daemon sends it; `effect`, `problems`, `verdict` and `recovery` ask the entry points.
# authors:
# - kblockd
package kblock.shared.samples_test

import data.kblock.decision
import data.kblock.preconditions
import data.kblock.recovery as recovering
import data.kblock.verification
import rego.v1

agent := {"id": "local:agent", "kind": "agent", "tenant": "acme", "owner": "team:bot", "roles": []}

call(type, environment, args, snapshot, read) := {
	"v": "kblockd.policy/1",
	"now": "2026-11-29T10:00:00.000000Z",
	"principal": agent,
	"method": "/kblock.v1.ExecutionService/Execute",
	"envelope": {"target": {"type": "", "id": "", "version": ""}},
	"action": {"type": type, "risk_tier": "high", "environment": environment},
	"args": args,
	"contract": {
		"reads": {"snapshot": {"tool": "get", "version": null}},
		"preflight": {"require_current_resource_version": false},
		"verification": {"expected": {}, "tolerated": {}, "prohibited": {}},
		"recovery": {
			"transient_failure": "retry_same_idempotency_key",
			"partial_completion": "contain_then_evaluate",
			"verification_failure": "contain",
		},
	},
	"approval": null,
	"snapshot": snapshot,
	"read": read,
	"outcome": {
		"class": "unknown_outcome",
		"code": "UPSTREAM_TIMEOUT",
		"attempts": 1,
		"maximum_attempts": 2,
		"marker": true,
		"irreversible": false,
	},
	"finding": {"finding": "absent", "verdict": ""},
}

# METADATA
# description: One value put in place of another; `path` is an RFC 6901 pointer.
changed(document, path, value) := json.patch(document, [{"op": "add", "path": path, "value": value}])

without(document, path) := json.patch(document, [{"op": "remove", "path": path}])

# METADATA
# description: As a principal of another kind.
posing(document, kind) := changed(document, "/principal/kind", kind)

effect(document) := [result.effect, result.approvals.count, [reason.code | some reason in result.reasons; reason.message != ""]] if {
	result := decision.result with input as document
}

roles(document) := result.approvals.roles if {
	result := decision.result with input as document
}

# METADATA
# description: What the target lacks; whether the decision stands is another question.
problems(document) := codes if {
	result := preconditions.result with input as document
	codes := {reason.code | some reason in result.reasons} - {"DECISION_CHANGED"}
	well := count(codes) == 0
	result.ok == well
}

verdict(document) := [result.verdict, [reason.code | some reason in result.reasons]] if {
	result := verification.result with input as document
}

recovery(document) := [result.recovery, [reason.code | some reason in result.reasons]] if {
	result := recovering.result with input as document
}

expected := ["expected", []]

tolerated := ["tolerated", ["TOLERATED"]]

unseen := ["inconclusive", ["NOT_SEEN"]]

retry := ["retry", ["TRANSIENT"]]

denied := ["deny", 0, ["NO_RULE"]]
