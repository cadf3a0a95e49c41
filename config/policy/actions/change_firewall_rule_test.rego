package kblock.actions.change_firewall_rule_test

import data.kblock.shared.samples_test as samples
import rego.v1

other := {"protocol": "tcp", "port": 80, "cidr": "198.51.100.0/24"}

rule := {"protocol": "tcp", "port": 443, "cidr": "203.0.113.0/24"}

base := samples.call(
	"firewall.rule.change",
	"production",
	{"group": "web", "change": "add", "protocol": "tcp", "port": 443, "cidr": "203.0.113.0/24"},
	{"exists": true, "version": 12, "locked": false, "most_rules": 2, "rules": [other]},
	{"rules": [other, rule]},
)

changed(path, value) := samples.changed(base, path, value)

opening(port, cidr) := samples.changed(changed("/args/port", port), "/args/cidr", cidr)

removing := json.patch(base, [
	{"op": "replace", "path": "/args/change", "value": "remove"},
	{"op": "replace", "path": "/snapshot/rules", "value": [other, rule]},
	{"op": "replace", "path": "/read/rules", "value": [other]},
])

test_opening_to_the_outside_needs_two if {
	samples.effect(base) == ["require_approval", 2, ["OPEN_OUTSIDE"]]
	samples.roles(base) == ["network", "security"]
	samples.effect(samples.posing(base, "person")) == samples.denied
}

test_opening_to_our_own_networks_needs_one if {
	every network in ["10.0.0.0/16", "10.255.255.255/32", "172.16.0.0/16", "172.31.9.0/24", "192.168.0.0/16"] {
		samples.effect(opening(22, network)) == ["require_approval", 1, ["OPEN_INSIDE"]]
	}
	samples.effect(samples.posing(opening(443, "10.0.0.0/16"), "person")) == samples.denied
	samples.effect(opening(443, "172.32.0.0/16")) == ["require_approval", 2, ["OPEN_OUTSIDE"]]
}

test_removing_needs_one if {
	samples.effect(removing) == ["require_approval", 1, ["REMOVE_RULE"]]
	samples.effect(samples.changed(removing, "/args/cidr", "0.0.0.0/0")) == ["require_approval", 1, ["REMOVE_RULE"]]
	samples.effect(samples.changed(removing, "/args/port", 22)) == ["require_approval", 1, ["REMOVE_RULE"]]
	samples.effect(samples.posing(removing, "person")) == samples.denied
}

test_the_whole_internet_is_never_let_in if {
	samples.effect(opening(443, "0.0.0.0/0")) == ["deny", 0, ["TOO_WIDE"]]
	samples.effect(opening(443, "203.0.0.0/15")) == ["deny", 0, ["TOO_WIDE"]]
	samples.effect(opening(443, "10.0.0.0/8")) == ["deny", 0, ["TOO_WIDE"]]
	samples.effect(opening(443, "203.0.0.0/16")) == ["require_approval", 2, ["OPEN_OUTSIDE"]]
}

test_administration_stays_inside if {
	every port in [22, 23, 445, 1433, 3306, 3389, 5432, 6379] {
		samples.effect(opening(port, "203.0.113.7/32")) == ["deny", 0, ["INSIDE_ONLY"]]
	}
}

test_what_is_no_ipv4_network_is_refused if {
	samples.effect(opening(22, "::/0")) == ["deny", 0, ["NETWORK"]]
	every cidr in [
		"::/0", "2001:db8::/32", "203.0.113.7", "203.0.113.0/33", "203.0.113.0/033", "256.0.113.0/24", "203.0.113/24",
		"203.0.113.01/24", "0203.0.113.0/24", "203/0/113/0/24", "203.0.113.0/24 ", "", 24, null,
	] {
		samples.effect(opening(443, cidr)) == ["deny", 0, ["NETWORK"]]
		samples.effect(samples.changed(removing, "/args/cidr", cidr)) == ["deny", 0, ["NETWORK"]]
	}
}

test_another_change_is_denied if samples.effect(changed("/args/change", "replace")) == samples.denied

test_the_rule_can_be_changed if {
	samples.problems(base) == set()
	samples.problems(removing) == set()
}

test_a_group_that_is_locked_or_missing if {
	samples.problems(changed("/snapshot/exists", false)) == {"GROUP_LOCKED"}
	samples.problems(changed("/snapshot/locked", true)) == {"GROUP_LOCKED"}
	samples.problems(samples.without(base, "/snapshot/locked")) == {"GROUP_LOCKED"}
}

test_rules_that_are_not_listed if {
	samples.problems(changed("/snapshot/rules", null)) == {"RULES_UNKNOWN", "GROUP_FULL"}
	samples.problems(samples.changed(removing, "/snapshot/rules", {})) == {"RULES_UNKNOWN"}
}

test_a_rule_is_added_once if samples.problems(changed("/snapshot/rules", [rule])) == {"RULE_EXISTS"}

test_only_what_is_there_is_removed if {
	samples.problems(samples.changed(removing, "/snapshot/rules", [other])) == {"NO_SUCH_RULE"}
}

test_a_full_group if {
	samples.problems(changed("/snapshot/most_rules", 1)) == {"GROUP_FULL"}
	samples.problems(changed("/snapshot/most_rules", "many")) == {"GROUP_FULL"}
	samples.problems(samples.changed(removing, "/snapshot/most_rules", 1)) == set()
}

read(rules) := changed("/read", {"rules": rules})

test_added_and_nothing_else if {
	samples.verdict(base) == samples.expected
	samples.verdict(read([rule, other])) == samples.expected
	samples.verdict(read([other])) == samples.unseen
}

test_removed_and_nothing_else if {
	samples.verdict(removing) == samples.expected
	samples.verdict(samples.changed(removing, "/read/rules", [other, rule])) == samples.unseen
}

test_a_rule_twice if samples.verdict(read([other, rule, rule])) == ["prohibited", ["DUPLICATE"]]

test_another_rule_changed if {
	samples.verdict(read([rule])) == ["prohibited", ["UNRELATED"]]
	samples.verdict(read([other, rule, object.union(rule, {"port": 80})])) == ["prohibited", ["UNRELATED"]]
	samples.verdict(samples.changed(removing, "/read/rules", [])) == ["prohibited", ["UNRELATED"]]
}

test_a_read_of_another_shape_proves_nothing if {
	every value in [null, {}, {"rules": null}, {"rules": "web"}] {
		samples.verdict(changed("/read", value)) == samples.unseen
		samples.verdict(samples.changed(removing, "/read", value)) == samples.unseen
	}
}

test_an_opening_is_not_repeated_by_itself if {
	samples.recovery(base) == ["manual", ["OPENS"]]
	samples.recovery(removing) == samples.retry
}
