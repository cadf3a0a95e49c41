# METADATA
# title: Times of a snapshot against the time of the decision
# description: A text that is no RFC 3339 time in UTC has no value, so no rule holds for it.
# authors:
# - kblockd
package kblock.shared.times

import rego.v1

# METADATA
# description: The time is the decision's or lies before it.
past(text) if nanoseconds(text) <= time.parse_rfc3339_ns(input.now)

# METADATA
# description: The time is past, and by so many seconds at most.
within(text, seconds) if {
	past(text)
	time.parse_rfc3339_ns(input.now) - nanoseconds(text) <= seconds * 1000000000
}

# METADATA
# description: The pattern keeps from the builtin what is no time; 31 February is an error, and so a denial.
nanoseconds(text) := time.parse_rfc3339_ns(text) if {
	is_string(text)
	regex.match(pattern, text)
}

pattern := `^20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?Z$`
