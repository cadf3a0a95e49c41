# METADATA
# title: Money as whole minor units
# authors:
# - kblockd
package kblock.shared.money

import rego.v1

# METADATA
# description: |
#   "25.00" is 2500. What is not written with one to thirteen digits, a point and two decimals has no value,
#   and neither has nothing, "0.00".
minor_units(text) := json.unmarshal(digits) if {
	is_string(text)
	trim(text, "0123456789") == "."
	parts := split(text, ".")
	parts[0] != ""
	count(parts[0]) <= 13
	count(parts[1]) == 2
	digits := trim_left(concat("", parts), "0")
	digits != ""
}
