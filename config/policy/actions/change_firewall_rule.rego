# METADATA
# title: Change a firewall rule (firewall.rule.change)
# description: |
#   Arguments {group, change: add or remove, protocol, port, cidr}. Snapshot {exists, version, locked, most_rules, rules:
#   [{protocol, port, cidr}]} of the group. Read {rules} of the group.
# authors:
# - kblockd
package kblock.actions.change_firewall_rule

import data.kblock.shared.tiers
import rego.v1

# METADATA
# description: Our own networks; whatever lies outside needs a second approver.
own_networks := {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"}

# METADATA
# description: Nothing wider is ever opened, 0.0.0.0/0 least of all.
fewest_bits := 16

# METADATA
# description: Administration and databases are never opened to the outside.
inside_only := {22, 23, 445, 1433, 3306, 3389, 5432, 6379}

cidr := `^((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\.){3}(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])/(3[0-2]|[12]?[0-9])$`

approvers := ["network", "security"]

decision := {"refusals": refusals, "tier": tier}

refusals contains {"code": "NETWORK", "message": "the network is not an IPv4 network in CIDR notation"} if not bits

refusals contains {"code": "TOO_WIDE", "message": "the network is wider than may ever be opened"} if {
	not input.args.change == "remove"
	bits < fewest_bits
}

refusals contains {"code": "INSIDE_ONLY", "message": "this port is never opened to the outside"} if {
	not input.args.change == "remove"
	input.args.port in inside_only
	bits
	not inside
}

# METADATA
# description: The length of the prefix; only what passes the pattern reaches a builtin that takes addresses.
bits := json.unmarshal(split(input.args.cidr, "/")[1]) if {
	is_string(input.args.cidr)
	regex.match(cidr, input.args.cidr)
}

inside if {
	bits
	some network in own_networks
	net.cidr_contains(network, input.args.cidr)
}

tier := tiers.approved_by(1, approvers, "REMOVE_RULE", "closing needs one approver") if {
	input.principal.kind == "agent"
	input.args.change == "remove"
} else := tiers.approved_by(1, approvers, "OPEN_INSIDE", "opening to our own networks needs one approver") if {
	input.principal.kind == "agent"
	input.args.change == "add"
	inside
} else := tiers.approved_by(2, approvers, "OPEN_OUTSIDE", "opening to the outside needs two approvers") if {
	input.principal.kind == "agent"
	input.args.change == "add"
} else := tiers.denied

rule := {"protocol": input.args.protocol, "port": input.args.port, "cidr": input.args.cidr}

problems contains {"code": "GROUP_LOCKED", "message": "the group does not exist or is locked"} if not changeable

problems contains {"code": "RULES_UNKNOWN", "message": "the snapshot does not list the rules"} if {
	not listed
}

problems contains {"code": "RULE_EXISTS", "message": "the rule is there already"} if {
	input.args.change == "add"
	rule in snapshot_rules
}

problems contains {"code": "NO_SUCH_RULE", "message": "there is no such rule to remove"} if {
	input.args.change == "remove"
	count(snapshot_rules & {rule}) == 0
}

problems contains {"code": "GROUP_FULL", "message": "the group has as many rules as it may have"} if {
	input.args.change == "add"
	not room
}

changeable if {
	input.snapshot.exists == true
	input.snapshot.locked == false
}

room if {
	is_number(input.snapshot.most_rules)
	count(snapshot_rules) < input.snapshot.most_rules
}

listed if is_array(input.snapshot.rules)

snapshot_rules := {entry | some entry in input.snapshot.rules} if listed

read_rules := {entry | some entry in input.read.rules} if is_array(input.read.rules)

verification := {"violations": violations, "shown": shown}

violations contains {"code": "DUPLICATE", "message": "the rule is there more than once"} if {
	is_array(input.read.rules)
	count(input.read.rules) > count(read_rules)
}

violations contains {"code": "UNRELATED", "message": "another rule of the group changed with it"} if {
	read_rules - {rule} != snapshot_rules - {rule}
}

shown := "expected" if {
	input.args.change == "add"
	rule in read_rules
} else := "expected" if {
	input.args.change == "remove"
	count(read_rules & {rule}) == 0
} else := ""

cautions contains {"code": "OPENS", "message": "an opening is not tried again without a person"} if {
	input.args.change == "add"
}
