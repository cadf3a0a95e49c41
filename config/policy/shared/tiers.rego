# METADATA
# title: What an action's file may answer at stage 3
# description: |
#   A tier is {effect, approvals: {count, roles}, reason: {code, message}}. `count` counts distinct owners, `roles` are
#   alternatives.
# authors:
# - kblockd
package kblock.shared.tiers

import rego.v1

# METADATA
# description: What holds where no rule lets the action through; the default of every action's `tier`.
denied := {
	"effect": "deny",
	"approvals": {"count": 0, "roles": []},
	"reason": {"code": "NO_RULE", "message": "no rule lets this action through"},
}

# METADATA
# description: Nobody needs to be asked.
allowed(code, message) := {
	"effect": "allow",
	"approvals": {"count": 0, "roles": []},
	"reason": {"code": code, "message": message},
}

# METADATA
# description: So many owners with one of these roles must approve.
approved_by(number, roles, code, message) := {
	"effect": "require_approval",
	"approvals": {"count": number, "roles": roles},
	"reason": {"code": code, "message": message},
}
