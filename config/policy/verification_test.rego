package kblock.verification_test

import data.kblock.verification
import rego.v1

base := {
	"action": {"type": "payment.refund.create"},
	"args": {"order_id": "7", "amount": "25.00", "currency": "EUR"},
	"contract": {"verification": {
		"expected": {"refunds": 1, "amount": "/args/amount"},
		"tolerated": {},
		"prohibited": {"duplicate_operation": true},
	}},
	"read": {"refunds": [{"refund_id": "rf_1", "amount": "25.00", "currency": "EUR"}]},
}

read(value) := object.union(base, {"read": value})

answer(document) := result if {
	result := verification.result with input as document
}

row := base.read.refunds[0]

test_the_one_refund if answer(base) == {"verdict": "expected", "reasons": []}

test_not_there_yet if answer(object.union(base, {"read": {"refunds": []}})).verdict == "inconclusive"

test_two_refunds if {
	answer(read({"refunds": [row, row]})).verdict == "prohibited"
	answer(read({"refunds": [row, row]})).reasons[0].code == "DUPLICATE"
}

test_another_amount_or_currency if {
	answer(read({"refunds": [object.union(row, {"amount": "52.00"})]})).verdict == "prohibited"
	answer(read({"refunds": [object.union(row, {"amount": "52.00"})]})).reasons[0].code == "WRONG_AMOUNT"
	answer(read({"refunds": [object.union(row, {"currency": "USD"})]})).verdict == "prohibited"
}

test_a_malformed_read_proves_nothing if {
	every value in [null, "refunds", [], {}, {"refunds": null}, {"refunds": "1"}, {"refunds": [{"amount": 25}]}] {
		document := json.patch(base, [{"op": "replace", "path": "/read", "value": value}])
		answer(document).verdict == "inconclusive"
	}
}

test_rows_and_lists_of_another_type_prove_nothing if {
	every value in [
		{"refunds": {"first": row}},
		{"refunds": [{"amount": 25, "currency": "EUR"}]},
		{"refunds": [{"amount": "25.00", "currency": 978}]},
		{"refunds": 1, "amount": "25.00"},
		{"duplicate_operation": true},
	] {
		document := json.patch(base, [{"op": "replace", "path": "/read", "value": value}])
		answer(document).verdict == "inconclusive"
	}
}

test_refunds_are_not_compared_field_by_field if {
	document := json.patch(base, [
		{"op": "replace", "path": "/contract/verification/tolerated", "value": {"refunds": 0}},
		{"op": "replace", "path": "/read", "value": {"refunds": 0}},
	])
	answer(document).verdict == "inconclusive"
}

test_a_list_of_refunds_says_nothing_of_another_action if {
	seen({"refunds": [row, row]}) == "inconclusive"
}

test_two_rows_that_cannot_be_read_prove_nothing if {
	document := json.patch(base, [{"op": "replace", "path": "/read", "value": {"refunds": [1, 2]}}])
	answer(document).verdict == "inconclusive"
}

test_the_contract_says_how_many if {
	document := json.patch(base, [{"op": "replace", "path": "/contract/verification/expected/refunds", "value": 2}])
	answer(document).verdict == "inconclusive"
	answer(json.patch(document, [{"op": "replace", "path": "/read", "value": {"refunds": [row, row]}}])).verdict == "expected"
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
	seen({}) == "inconclusive"
	seen("done") == "inconclusive"
}

test_no_expectation_expects_nothing if {
	document := json.patch(note, [
		{"op": "replace", "path": "/contract/verification/expected", "value": {}},
		{"op": "add", "path": "/read", "value": {"state": "done"}},
	])
	answer(document).verdict == "inconclusive"
}
