package kblock.actions.issue_refund_test

import data.kblock.shared.samples_test as samples
import rego.v1

base := samples.call(
	"payment.refund.create",
	"production",
	{"order_id": "7", "amount": "25.00", "currency": "EUR"},
	{"order_id": "7", "exists": true, "version": 1, "status": "paid", "amount": "100.00", "currency": "EUR", "refunded": "0.00"},
	{"refunds": [row]},
)

row := {"refund_id": "rf_1", "amount": "25.00", "currency": "EUR"}

changed(path, value) := samples.changed(base, path, value)

of(amount, currency) := samples.changed(changed("/args/amount", amount), "/args/currency", currency)

test_small_refunds_need_one_of_finance if {
	every refund in [["0.01", "EUR"], ["500.00", "EUR"], ["400.00", "GBP"], ["500.00", "USD"]] {
		samples.effect(of(refund[0], refund[1])) == ["require_approval", 1, ["REFUND"]]
	}
	samples.roles(base) == ["finance"]
}

test_large_refunds_need_two_of_finance if {
	every refund in [
		["500.01", "EUR"], ["400.01", "GBP"], ["500.01", "USD"],
		["5000.00", "EUR"], ["4000.00", "GBP"], ["5000.00", "USD"],
	] {
		samples.effect(of(refund[0], refund[1])) == ["require_approval", 2, ["LARGE_REFUND"]]
	}
	samples.roles(of("500.01", "EUR")) == ["finance"]
}

test_beyond_the_limit_nothing_is_refunded if {
	every refund in [["5000.01", "EUR"], ["4000.01", "GBP"], ["5000.01", "USD"], ["9999999999999.99", "EUR"]] {
		samples.effect(of(refund[0], refund[1])) == ["deny", 0, ["REFUND_LIMIT"]]
	}
}

test_a_currency_without_a_limit_is_refused if {
	samples.effect(changed("/args/currency", "CHF")) == ["deny", 0, ["CURRENCY"]]
	samples.effect(changed("/args/currency", 978)) == ["deny", 0, ["CURRENCY"]]
	samples.effect(samples.without(base, "/args/currency")) == ["deny", 0, ["CURRENCY"]]
}

test_what_is_no_money_is_refused if {
	every amount in [
		"1e1", "25", "25.0", "25.000", ".50", "-25.00", "+25.00", " 25.00", "25,00", "", "1.2.34", "00000000000001.00",
		"00.00", "0.00", 25, null, ["25.00"],
	] {
		samples.effect(changed("/args/amount", amount)) == ["deny", 0, ["NOT_MONEY"]]
		"AMOUNT" in samples.problems(changed("/args/amount", amount))
	}
}

test_nobody_but_an_agent_asks_for_refunds if {
	samples.effect(samples.posing(base, "service")) == samples.denied
	samples.effect(samples.posing(of("500.01", "EUR"), "person")) == samples.denied
}

test_all_is_well_with_the_order if samples.problems(base) == set()

test_unpaid_or_missing_order if {
	samples.problems(changed("/snapshot/status", "open")) == {"NOT_REFUNDABLE"}
	samples.problems(changed("/snapshot/exists", false)) == {"NOT_REFUNDABLE"}
	samples.problems(changed("/snapshot/exists", "true")) == {"NOT_REFUNDABLE"}
}

test_refunded_already if {
	samples.problems(changed("/snapshot/refunded", "5.00")) == {"ALREADY_REFUNDED"}
	samples.problems(samples.without(base, "/snapshot/refunded")) == {"ALREADY_REFUNDED"}
}

test_amount_must_fit_the_order if {
	samples.problems(changed("/args/amount", "100.00")) == set()
	samples.problems(changed("/args/amount", "0.01")) == set()
	samples.problems(changed("/args/amount", "100.01")) == {"AMOUNT"}
	samples.problems(changed("/args/currency", "USD")) == {"AMOUNT"}
	samples.problems(changed("/snapshot/amount", 100)) == {"AMOUNT"}
}

test_a_cent_of_much_money_counts if {
	much := changed("/snapshot/amount", "9007199254740.92")
	samples.problems(samples.changed(much, "/args/amount", "9007199254740.92")) == set()
	samples.problems(samples.changed(much, "/args/amount", "9007199254740.93")) == {"AMOUNT"}
}

read(value) := changed("/read", value)

test_the_one_refund if samples.verdict(base) == samples.expected

test_not_there_yet if samples.verdict(read({"refunds": []})) == samples.unseen

test_two_refunds if samples.verdict(read({"refunds": [row, row]})) == ["prohibited", ["DUPLICATE"]]

test_another_amount_or_currency if {
	every key, value in {"amount": "52.00", "currency": "USD"} {
		samples.verdict(read({"refunds": [object.union(row, {key: value})]})) == ["prohibited", ["WRONG_AMOUNT"]]
	}
}

test_a_read_of_another_shape_proves_nothing if {
	every value in [
		null, "refunds", [], {}, {"refunds": null}, {"refunds": "1"}, {"refunds": 1}, {"refunds": {"first": row}},
		{"refunds": [{"amount": 25, "currency": "EUR"}]}, {"refunds": [{"amount": "25.00", "currency": 978}]},
		{"refunds": [1, 2]}, {"duplicate_operation": true},
	] {
		samples.verdict(read(value)) == samples.unseen
	}
}

test_refunds_are_not_compared_field_by_field if {
	document := samples.changed(read({"refunds": 0}), "/contract/verification/tolerated", {"refunds": 0})
	samples.verdict(document) == samples.unseen
}

test_the_contract_says_how_many if {
	two := changed("/contract/verification/expected", {"refunds": 2})
	samples.verdict(two) == samples.unseen
	samples.verdict(samples.changed(two, "/read", {"refunds": [row, row]})) == samples.expected
	samples.verdict(changed("/contract/verification/expected", {"refunds": "2"})) == samples.expected
}

test_a_large_refund_is_not_repeated_by_itself if {
	samples.recovery(base) == samples.retry
	samples.recovery(of("500.00", "EUR")) == samples.retry
	samples.recovery(of("500.01", "EUR")) == ["manual", ["LARGE_REFUND"]]
}
