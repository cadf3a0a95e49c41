# METADATA
# title: What a read shows, compared with a contract field by field
# description: A value that starts with / is a pointer into the arguments, as everywhere in a contract.
# authors:
# - kblockd
package kblock.shared.fields

import rego.v1

resolved(value) := value if not is_string(value)

resolved(value) := value if {
	is_string(value)
	not startswith(value, "/")
}

resolved(value) := object.get(input.args, array.slice(parts, 2, count(parts)), null) if {
	is_string(value)
	startswith(value, "/args/")
	parts := split(value, "/")
}

# METADATA
# description: All fields stand in the read as they are wanted; no fields are never shown.
shows(fields) if {
	count(fields) > 0
	every key, value in fields {
		input.read[key] == resolved(value)
	}
}
