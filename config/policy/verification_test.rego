package kblock.verification_test

import data.kblock.verification
import rego.v1

answer(document) := result if {
	result := verification.result with input as document
}

note := {
	"action": {"type": "note.create"},
	"args": {"text": "hello"},
	"contract": {"verification": {
		"expected": {"state": "done", "text": "/args/text"},
		"tolerated": {"state": "queued"},
		"prohibited": {"state": "lost"},
	}},
}

seen(value) := answer(object.union(note, {"read": value})).verdict

test_fields_as_the_contract_names_them if {
	seen({"state": "done", "text": "hello"}) == "expected"
	seen({"state": "done", "text": "hallo"}) == "inconclusive"
	seen({"state": "queued"}) == "tolerated"
	seen({"state": "lost", "text": "hello"}) == "prohibited"
	answer(object.union(note, {"read": {"state": "lost"}})).reasons[0].code == "PROHIBITED"
	seen(["done"]) == "inconclusive"
	seen({}) == "inconclusive"
	seen("done") == "inconclusive"
}

test_what_is_no_pointer_is_compared_as_it_is if {
	fields := {"expected": {"count": 2}, "tolerated": {"count": "/other/text"}, "prohibited": {"count": "/args/none"}}
	document := {"action": {"type": "note.create"}, "args": {}, "contract": {"verification": fields}, "read": {"count": 2}}
	answer(document).verdict == "expected"
	answer(object.union(document, {"read": {"count": "/other/text"}})).verdict == "inconclusive"
}

test_the_file_of_an_action_outweighs_the_fields if {
	other := object.union(note, {"action": {"type": "payment.refund.create"}, "read": {"state": "done", "text": "hello"}})
	answer(other).verdict == "inconclusive"
	answer(object.union(other, {"read": {"state": "lost"}})).verdict == "inconclusive"
}

test_no_expectation_expects_nothing if {
	document := json.patch(note, [
		{"op": "replace", "path": "/contract/verification/expected", "value": {}},
		{"op": "add", "path": "/read", "value": {"state": "done"}},
	])
	answer(document).verdict == "inconclusive"
}
